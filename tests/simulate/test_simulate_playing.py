import json
from itertools import groupby

import pytest

from occupancy import preset
from occupancy.record.errors import DataError, InputError
from occupancy.runs import open_run
from simulate import PilotSize, answers, family, hand_backs, play_pilot
from simulate.pilots.playing import labels_of, pilot_rows

WORLD = family("middle").draw(0)
SIZE = PilotSize(tasks=150, rollouts=2, demos=30)


@pytest.fixture(scope="module")
def pilot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pilot") / "run"
    play_pilot(WORLD, folder, size=SIZE, seed=5)
    return open_run(folder)


def test_rows_are_unique_and_lengths_add_up(pilot):
    episodes, turns = pilot.read("episodes").to_pandas(), pilot.read("turns").to_pandas()
    assert episodes["episode_id"].is_unique
    assert set(episodes["kind"]) == {"rollout", "continuation", "handback", "demo"}
    stored = turns.groupby("episode_id")["t"].agg(["min", "max", "size"])
    episodes = episodes.set_index("episode_id").join(stored)
    assert (episodes["max"] == episodes["length"]).all()
    assert (episodes["size"] == episodes["max"] - episodes["min"] + 1).all()
    own = episodes[episodes["kind"] == "continuation"]
    assert (own["min"] == own["switch_turn"]).all()
    handed = episodes[episodes["kind"] == "handback"]
    parents = episodes.loc[handed["parent"]]
    assert (handed["min"].to_numpy() == parents["switch_turn"].to_numpy() + handed["K"].to_numpy()).all()
    assert (parents["teacher_turns"].to_numpy() > handed["K"].to_numpy()).all()
    assert (turns[turns["episode_id"].isin(own.index)]["author"] == "teacher").all()


def test_rewards_estimate_the_exact_values(pilot):
    episodes = pilot.read("episodes").to_pandas()
    exact = answers(WORLD)
    mean = episodes.groupby("kind")["R"].mean()
    assert mean["rollout"] == pytest.approx(exact.J_student, abs=0.12)
    assert mean["demo"] == pytest.approx(exact.J_teacher, abs=0.1)
    U = hand_backs(WORLD)
    handed = episodes[(episodes["kind"] == "handback") & (episodes["K"] == 0)]
    assert len(handed) == SIZE.tasks * SIZE.rollouts * SIZE.replicates
    starts = pilot.read("turns").to_pandas().drop_duplicates("episode_id").set_index("episode_id")
    first = starts.loc[handed["episode_id"]]
    predicted = U[0][first["t"].to_numpy() - 1, first["state_id"].to_numpy(int)].mean()
    assert handed["R"].mean() == pytest.approx(predicted, abs=0.1)


def test_traces_train_on_the_teachers_turns_only(pilot):
    traces = pilot.read("traces").to_pandas()
    for messages, turns in zip(traces["messages"], traces["target_turns"], strict=True):
        trained = [m for m in json.loads(messages) if m["train"]]
        assert len(trained) == turns
        assert {m["author"] for m in trained} == {"teacher"}
    cost = pilot.read("turns").to_pandas().query("author == 'teacher'")["output_tokens"].sum()
    assert traces["C_tr"].sum() == cost


def test_labels_are_the_teachers_turns_and_those_of_demonstrations_are_apart(pilot):
    rows = {name: pilot.read(name).to_pylist() for name in ("episodes", "turns")}
    kept = {row["episode_id"] for row in rows["episodes"] if row["R"]}
    taught = [turn for turn in rows["turns"] if turn["author"] == "teacher"]
    for only_success in (False, True):
        owned = labels_of(WORLD, rows, only_success=only_success)
        for kind, labels in (("demo", owned.demos), ("continuation", owned.on_policy)):
            own = [t for t in taught if t["kind"] == kind and (t["episode_id"] in kept or not only_success)]
            assert labels.sum() == len(own) > 0


def test_the_seed_decides_and_a_used_folder_is_refused(pilot, tmp_path):
    again = play_pilot(WORLD, tmp_path / "run", size=SIZE, seed=5)
    assert again.read("turns").equals(pilot.read("turns"))
    with pytest.raises(DataError, match="holds a run already"):
        play_pilot(WORLD, tmp_path / "run")
    with pytest.raises(InputError, match="tasks=0"):
        PilotSize(tasks=0)


@pytest.mark.parametrize(
    ("world", "repetition"), [(family("desk").draw(0), 2), (family("middle").draw(1), 3)]
)
def test_a_rollout_that_repeats_itself_is_told_as_the_recipe_asks(world, repetition):
    """In both worlds one rollout repeats itself with its last turns alone."""
    recipe = preset("oec", T_max=world.horizon, repetition=repetition)
    _, _, rows = pilot_rows(world, size=PilotSize(tasks=150, demos=1, handback=()), seed=5, recipe=recipe)
    texts = {}
    for turn in rows["turns"]:
        texts.setdefault((turn["kind"], turn["task_id"]), []).append(turn["text"])
    told = {row["task_id"]: json.loads(row["psi"])["no_repetition"] for row in rows["proposals"]}
    longest = {task: max(len([*group]) for _, group in groupby(texts["rollout", task])) for task in told}
    assert told == {task: n < repetition for task, n in longest.items()}
    assert set(told.values()) == {True, False}
    assert repetition - 1 in longest.values()
