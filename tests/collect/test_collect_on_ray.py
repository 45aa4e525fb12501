"""Collecting on many machines: two nodes on this one, of which one dies, and one writer of the ledger."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_runs import attempts, rows, run_of, same
from toy_world import Bounded
from waiting import HANG_S

from agentloop.run.collect import Settings, SpendingLimits
from agentloop.run.on_ray import ComponentNames, Machines, collect_on_ray
from agentloop.types import Answer, Ask, CallFailed, Usage
from occupancy.record.errors import BudgetStopped
from occupancy.record.recipe import preset
from occupancy.runs import Run, open_run

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
RECIPE = preset("op-short", K=3, n=2, T_max=12)
NAMES = ComponentNames(
    "toy_world:open_corridors", "drunk", "test_collect_on_ray:mortal_expert", {"workers": 4}
)


def mortal_expert() -> Any:
    """The expert; on the node that the file $DOOMED names it says that it was asked, and never answers."""
    from toy_world import expert

    doomed = Path(os.environ["DOOMED"])

    async def play(ask: Ask) -> Answer:
        if doomed.exists() and doomed.read_text() == ray.get_runtime_context().get_node_id():
            doomed.with_suffix(".asked").touch()
            await asyncio.Event().wait()
        return await expert(ask)

    return Bounded(play)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (here, here.parent, here.parents[1]))))
    monkeypatch.setenv("DOOMED", str(tmp_path / "doomed"))
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.doomed = nodes.add_node(num_cpus=1)
    ray.init(address=nodes.address, log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def collected(folder: Path, **spending: Any) -> Run:
    settings = Settings(recipe=RECIPE, student="drunk", teacher="expert", tasks="12", seed=3)
    return asyncio.run(
        collect_on_ray(
            folder,
            settings,
            NAMES,
            machines=Machines(2),
            spending=SpendingLimits(**spending) if spending else None,
        )
    )


def test_a_node_that_dies_loses_no_episode_and_no_attempt(tmp_path: Path, cluster: Any) -> None:
    ended = threading.Event()
    (tmp_path / "doomed").write_text(cluster.doomed.node_id)

    def kill() -> None:
        while not (tmp_path / "doomed.asked").exists():
            if ended.wait(0.02):
                return
        cluster.remove_node(cluster.doomed, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        run = collected(tmp_path / "run")
    finally:
        ended.set()
        killer.join()
    whole = run_of(tmp_path / "whole", RECIPE, tasks="12")
    same(run, whole, calls=False)
    written = attempts(run)
    lost = [a for a in written if a["state"] == "lost"]
    assert lost
    assert all(a["billed"] == "perhaps" and a["charged_tokens"] == Bounded.most for a in lost)
    paid = [(a["episode_id"], a["t"], a["output_tokens"]) for a in written if a["state"] == "settled"]
    assert paid == [(a["episode_id"], a["t"], a["output_tokens"]) for a in attempts(whole)]


def test_a_budget_holds_over_machines(tmp_path: Path, cluster: Any) -> None:
    with pytest.raises(BudgetStopped, match="larger --budget"):
        collected(tmp_path / "run", budget=300)
    spent = sum(a["output_tokens"] for a in attempts(open_run(tmp_path / "run")))
    assert 300 - Bounded.most < spent <= 300
    run = collected(tmp_path / "run", budget=10**6)
    whole = run_of(tmp_path / "whole", RECIPE, tasks="12")
    assert rows(run, "traces") == rows(whole, "traces")
    assert [a["output_tokens"] for a in attempts(run)] == [a["output_tokens"] for a in attempts(whole)]


def test_a_budget_for_whole_continuations_is_passed_by_less_than_one(tmp_path: Path, cluster: Any) -> None:
    limit = 400
    with pytest.raises(BudgetStopped, match="larger --budget"):
        collected(tmp_path / "run", budget=limit, axis="training")
    C_tr = [t["C_tr"] for t in rows(open_run(tmp_path / "run"), "traces")]
    assert limit <= sum(C_tr) < limit + max(C_tr)
    run = collected(tmp_path / "run", budget=10**6, axis="training")
    assert rows(run, "traces") == rows(run_of(tmp_path / "whole", RECIPE, tasks="12"), "traces")


@pytest.mark.parametrize("axis", ["inference", "training"])
def test_recipes_are_matched_over_machines_and_the_proof_is_printed(
    tmp_path: Path, cluster: Any, axis: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from analysis.cli import main

    command = f"collect --env {NAMES.environment} --student drunk --teacher {NAMES.teacher} --tasks 24"
    command += (
        f" --recipe op-short --recipe op-success --set n=2 --out {tmp_path / 'runs'} --workers 4 --ray 2"
    )
    assert main([*command.split(), "--budget", "300", "--axis", axis, "--json"]) == 0
    proof = json.loads(capsys.readouterr().out)
    assert proof["matched"]
    assert [run["name"] for run in proof["runs"]] == ["op-short", "op-success"]
    assert all(0 <= run["spent"] - 300 <= run["largest"] for run in proof["runs"])


def test_a_continuation_of_a_dead_machine_holds_no_place_in_the_budget() -> None:
    from agentloop.ledger.budget import ContinuationBudget
    from agentloop.run.on_ray import _LedgerActor

    async def main() -> None:
        keeper = object.__new__(_LedgerActor)
        keeper._continuations = budget = ContinuationBudget(100)
        keeper._open, keeper._inside, keeper._dead = {}, set(), set()
        await keeper.enter("dies", 0)
        waiting = asyncio.ensure_future(keeper.enter("dies", 1))
        other = asyncio.ensure_future(keeper.enter("lives", 2))
        await asyncio.sleep(0)
        assert not waiting.done(), "nothing is known of a continuation's cost yet: one at a time"
        await keeper.forget("dies")
        await asyncio.wait_for(asyncio.gather(waiting, other), timeout=HANG_S)
        assert keeper._inside == {("lives", 2)}
        await keeper.leave("dies", 0, 40)  # a voice from the dead
        await keeper.leave("lives", 2, 30)
        for _ in range(2):  # done twice, counted once
            await keeper.enter("lives", 0)
            await keeper.leave("lives", 0, 80)
        assert budget.spent == 110
        with pytest.raises(BudgetStopped):
            await keeper.enter("lives", 3)
        await keeper.enter("lives", 0)  # a unit that is done again is paid for

    asyncio.run(main())


def test_a_failed_call_survives_the_way_to_the_ledger() -> None:
    failure = CallFailed(
        "late", kind="timeout", retry=True, billed="perhaps", wait_s=2.0, usage=Usage(3, "m")
    )
    again = pickle.loads(pickle.dumps(failure))
    assert str(again) == "late"
    assert vars(again) == vars(failure)
