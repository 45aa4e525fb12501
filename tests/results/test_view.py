"""The viewer: what a run holds, as text, in a real browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from browser import dom
from toy_runs import run_of

from agentloop.ledger.store import Ledger
from agentloop.run.collect import SpendingLimits
from analysis.cli import main
from analysis.view.data import view_data
from analysis.view.page import view
from occupancy.record.errors import DataError
from occupancy.record.recipe import preset
from occupancy.record.rows import Key, episode_row, proposal_row, trace_row, turn_row
from occupancy.runs import Run, create_run, open_run

HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    "<svg onload=alert(1)>&lt;b&gt; \u202e javascript:alert(1) {{ 7*7 }} '\"`"
)
PILOT = Path(__file__).parents[1] / "scripted_pilot"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return view(PILOT, tmp_path_factory.mktemp("view") / "pilot.html")


def hostile_run(folder: Path) -> Run:
    run = create_run(folder, preset("op-short"), {"kind": "import", "student": HOSTILE})
    key = Key("rollout", f"{HOSTILE}task", rollout=0)
    more = Key("continuation", key.task_id, rollout=0, proposal=0, continuation=0)
    turn = {
        "text": HOSTILE,
        "observation": HOSTILE,
        "context_id": HOSTILE,
        "output_tokens": 1,
        "counter": HOSTILE,
    }
    turn |= {"finish_reason": HOSTILE, "parse_status": HOSTILE}
    prompt = [{"role": HOSTILE, "content": HOSTILE, "author": "task"}]
    names = {
        "policy": HOSTILE,
        "environment": HOSTILE,
        "status": HOSTILE,
        "error": HOSTILE,
        "phi": {HOSTILE: True},
    }
    run.commit(
        {
            "episodes": [
                episode_row(key, length=1, R=0.0, prompt=prompt, **names),
                episode_row(
                    more,
                    length=1,
                    R=None,
                    parent=key.episode_id,
                    teacher=HOSTILE,
                    switch_turn=1,
                    **names,
                ),
            ],
            "turns": [
                turn_row(key, 1, author="student", **turn),
                turn_row(more, 1, author="teacher", **turn),
            ],
            "proposals": [
                proposal_row(
                    replace(more, continuation=-1),
                    cluster_id="c",
                    recipe_hash="h",
                    outcome=HOSTILE,
                    T=1,
                    R=0.0,
                    t_prime=1,
                    probability=1.0,
                    psi={HOSTILE: None},
                )
            ],
            "traces": [
                trace_row(
                    more,
                    recipe_hash="h",
                    target_turns=1,
                    C_tr=1,
                    messages=[{"role": "assistant", "content": HOSTILE, "author": "teacher", "train": True}],
                )
            ],
        }
    )
    return run


@pytest.mark.parametrize("kind", ["rollout", "continuation"])
def test_hostile_text_is_text_in_a_real_browser(kind: str, tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "<img src=x onerror=alert(1)>")
    piece = {"text": HOSTILE, "author": "teacher", "target": True, "ids": 1}
    (name,) = [e for e in run.read("episodes")["episode_id"].to_pylist() if f"#{kind}" in e]
    rendered = {
        name: {"rows": [{"pieces": [piece], "targets": 1, "ids": 1}], "dropped": [[HOSTILE, HOSTILE]]}
    }
    found = dom(view(run.folder, tmp_path / "page.html", rendered=rendered), e=name, q=HOSTILE[:30])
    assert found.find("title") == [f"{run.folder.name}: episodes"]
    tags = [tag for tag, _, _ in found.all]
    assert tags.count("script") == 2
    assert not {"img", "svg"} & set(tags)
    assert not [a for _, a, _ in found.all if any(name.startswith("on") for name in a)]
    assert not [a for _, a, _ in found.all if (a.get("href") or "#")[0] != "#"]
    assert found.find("h2") == [f"{HOSTILE}task"]
    assert HOSTILE in found.find("div", "said")
    assert HOSTILE in found.find("div", "seen")
    assert found.find("mark")


def test_a_page_forbids_foreign_scripts_and_the_network(page: Path) -> None:
    (policy,) = [a["content"] for tag, a, _ in dom(page).all if tag == "meta" and "http-equiv" in a]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "://" not in page.read_text("utf-8")


def test_a_deep_link_shows_its_episode_with_switch_targets_and_verdicts(page: Path) -> None:
    run = open_run(PILOT)
    name = [e for e in run.read("episodes")["episode_id"].to_pylist() if "#continuation" in e][3]
    rows = {table: run.read(table).to_pandas() for table in ("episodes", "turns", "proposals")}
    (episode,) = rows["episodes"][rows["episodes"]["episode_id"] == name].to_dict("records")
    found = dom(page, e=name, t="2")
    assert len(found.find("article", "turn")) == episode["length"]
    own = rows["turns"][rows["turns"]["episode_id"] == name]
    assert len(found.find("article", "teacher")) == len(own)
    assert found.find("div", "switch") == [f"Switch: the teacher plays from turn {episode['switch_turn']}"]
    trained = [
        json.loads(m) for m in run.read("traces").to_pandas().set_index("episode_id").loc[[name], "messages"]
    ]
    assert len(found.find("article", "target")) == sum(message["train"] for message in trained[0])
    assert [a["data-t"] for _, a, _ in found.all if found.has(a, "here")] == ["2"]
    assert "accepted" in "".join(found.find("p"))


def test_a_hand_back_is_beside_its_continuation(page: Path) -> None:
    episodes = open_run(PILOT).read("episodes").to_pandas()
    back = episodes[(episodes["kind"] == "handback") & (episodes["K"] == 2)].iloc[0]
    found = dom(page, e=back["episode_id"])
    assert len(found.find("h3")) == 2
    first = back["switch_turn"] + 2
    assert f"Hand-back: the student plays from turn {first}" in "".join(found.find("div", "switch"))
    parent = episodes.set_index("episode_id").loc[back["parent"]]
    assert len(found.find("article", "turn")) == first - 1 + sum(
        max(0, n - first + 1) for n in (back["length"], parent["length"])
    )


def test_search_finds_turns_observations_and_tasks(page: Path) -> None:
    turns = open_run(PILOT).read("turns").to_pandas()
    episodes = open_run(PILOT).read("episodes").to_pandas()
    word = "desklamp 1"
    hits = turns[turns["text"].str.contains(word) | turns["observation"].str.contains(word)]
    prompts = episodes[episodes["prompt"].str.contains(word)]
    expected = set(hits["episode_id"]) | set(prompts["episode_id"])
    found = dom(page, q=word)
    assert found.find("div")[1].strip().endswith(f"{len(expected)} of {len(episodes)} episodes")
    assert set(found.find("mark")) <= {word}
    assert found.find("mark")


def test_a_link_to_nothing_says_so(page: Path) -> None:
    assert dom(page, e="nobody").find("p", "warn") == ["This run has no episode nobody."]


def test_the_page_is_small_and_keeps_every_text_once(page: Path) -> None:
    data = view_data(open_run(PILOT))
    assert len(data["texts"]) == len(set(data["texts"]))
    turns = open_run(PILOT).read("turns").to_pandas().sort_values(["episode_id", "t"])
    assert sorted(data["texts"][at] for at in data["turns"]["text"]) == sorted(turns["text"])
    assert page.stat().st_size < 400_000


def test_costs_come_from_the_ledger(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", preset("op-short", K=2, n=1, T_max=12), spending=SpendingLimits())
    data = view_data(run)
    ledger = Ledger(run.folder / "ledger.sqlite", read_only=True)
    attempts = ledger.query("select count(*) as n from attempts where t > 0")[0]["n"]
    ledger.close()
    assert sum(n or 0 for n in data["turns"]["attempts"]) == attempts > 0
    targets = sum(sum(m["train"] for m in json.loads(t)) for t in run.read("traces")["messages"].to_pylist())
    assert sum(data["turns"]["target"]) == targets > 0


def test_the_command_and_its_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(PILOT), "--out", str(tmp_path / "p.html"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == (tmp_path / "p.html").stat().st_size
    kept = tmp_path / "run.json"
    kept.write_text("{}")
    for arguments in (
        [str(PILOT), "--out", str(tmp_path)],
        [str(tmp_path), "--out", str(tmp_path / "q.html")],
        [str(PILOT), "--out", str(kept)],
    ):
        assert main(["view", *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert kept.read_text() == "{}", "a file of another kind is never replaced"
    empty = create_run(tmp_path / "empty", preset("op-short"), {})
    with pytest.raises(DataError, match="holds no episode"):
        view(empty.folder, tmp_path / "e.html")
