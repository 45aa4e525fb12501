"""The command `fewsteps occupancy`: visitation frequency of each state in a run or in a table of turns."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from occupancy.record.show import add_json, show, table
from occupancy.record.specs import Count, Few, Size, option

if TYPE_CHECKING:
    from occupancy.streaming.estimate import StreamEstimate

ALONE = 0.9
"""States a turn above which the states are too fine to recur."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `occupancy` on the command line."""
    parser = commands.add_parser(
        "occupancy",
        help="visitation frequency of each state in a run or in a table of turns",
        description="Fraction of contexts in each state, under every convention, with standard errors "
        "clustered by task. A table larger than memory is streamed.",
    )
    add = parser.add_argument
    add("source", metavar="RUN|FILE", help="run folder, Parquet or Arrow file, or folder of them")
    add(
        "--columns",
        default="",
        metavar="NAME=COLUMN,..",
        help="columns of the table: trajectory, state, task, weight, length, feature (may repeat)",
    )
    add("--kind", default="rollout", help="kind of episode of a run (default: rollout)")
    add("--memory", type=option(Count), default=256, metavar="MB", help="for rows (default: 256)")
    add(
        "--error-memory",
        type=option(Size),
        default=1024,
        metavar="MB",
        help="memory for standard errors by state if the table exceeds --memory (default: 1024); 0: none",
    )
    add("--top", type=option(Few), default=20, help="most visited states to print (default: 20)")
    add("--engine", choices=("local", "ray"), default="local", help="where the sums are computed")
    add("--workers", type=option(Few), default=None, help="threads, or Ray tasks at a time")
    add(
        "--fast",
        action="store_true",
        help="no standard errors or means, several row groups at a time; with length=COLUMN "
        "the trajectories are not read either, and the lengths are not verified",
    )
    add("--figure", metavar="FILE", help="draw the most visited states as PDF, PNG or SVG")
    add_json(parser)
    parser.set_defaults(handler=_occupancy)


def _occupancy(given: argparse.Namespace) -> int:
    from occupancy.record.columns import Columns
    from occupancy.record.errors import InputError
    from occupancy.streaming.estimate import estimate_stream
    from occupancy.streaming.run_turns import RUN_COLUMNS, is_run, open_run_turns
    from occupancy.streaming.stream import open_turns

    memory, cell_memory, n_empty, left_out = given.memory << 20, given.error_memory << 20, 0, 0
    run = is_run(given.source)
    columns = Columns.parse(given.columns, base=RUN_COLUMNS if run else None)
    if given.fast:
        if run or given.engine == "ray":
            raise InputError("--fast reads a table on this machine: leave it out for a run and --engine ray")
        from occupancy.streaming.scan import scan_table

        found, names = scan_table(given.source, columns, memory=memory, workers=given.workers)
    else:
        if run:
            turns = open_run_turns(given.source, columns, kind=given.kind, memory=memory)
            stream, n_empty, left_out = turns.stream, turns.n_empty, turns.n_left_out
        else:
            stream = open_turns(given.source, columns, memory=memory)
        settings = {"n_empty": n_empty, "cell_memory": cell_memory}
        if given.engine == "ray":
            from occupancy.streaming.on_ray import estimate_on_ray

            found, names = estimate_on_ray(stream, tasks_at_once=given.workers, **settings)
        else:
            found = estimate_stream(stream, workers=given.workers, **settings)
            names = stream.states.in_order
    if given.figure is not None:
        from occupancy.figures import conventions_figure, occupancy_frame
        from occupancy.record.drawing import save

        frame = occupancy_frame(found.occupancies, names, top=min(given.top, 40))
        save(conventions_figure(frame), given.figure)
    show(given, _as_json(given, found, names, left_out), lambda: _shown(given, found, names, left_out))
    return 0


def _as_json(
    given: argparse.Namespace, found: StreamEstimate, names: list[Any], left_out: int
) -> dict[str, Any]:
    return {
        "source": str(given.source),
        "turns": int(found.tally.counts.sum()),
        "trajectories": found.tally.n_trajectories,
        "empty": found.tally.n_empty,
        "left_out": left_out,
        "tasks": found.occupancies["pooled"].n_tasks or None,
        "states": int((found.tally.counts > 0).sum()),
        "conventions": {
            name: {
                "ess": o.ess,
                "states": [
                    {
                        "state": names[s] if names else s,
                        "probability": float(o.probability[s]),
                        "standard_error": None if o.standard_error is None else float(o.standard_error[s]),
                    }
                    for s in o.most_visited(given.top, names)
                ],
            }
            for name, o in found.occupancies.items()
        },
        "means": {
            name: {
                "value": m.value.tolist(),
                "standard_error": None if m.standard_error is None else m.standard_error.tolist(),
                "tasks": m.n_tasks,
                "ess": m.ess,
            }
            for name, m in found.means.items()
        },
    }


def _shown(
    given: argparse.Namespace, found: StreamEstimate, names: list[Any], left_out: int
) -> Iterator[Any]:
    tally, pooled = found.tally, found.occupancies["pooled"]
    turns, states = int(tally.counts.sum()), int((tally.counts > 0).sum())
    if states > ALONE * turns:
        yield (
            f"Nearly every turn is a state of its own ({states:,} states in {turns:,} turns), so frequencies "
            f"say nothing: choose a coarser state with --columns state=COLUMN, in a run for example "
            f"state=observation (the reply to the turn) or state=t (its number)."
        )
    yield (
        f"{turns:,} turns of {tally.n_trajectories:,} trajectories ({tally.n_empty:,} empty, "
        f"{left_out:,} excluded by status), {pooled.n_tasks or 'unread'} tasks, {states:,} states"
    )
    sizes = ", ".join(f"{name} {o.ess:,.0f}" for name, o in found.occupancies.items())
    yield f"effective sample size: {sizes}"
    rows = []
    for s in pooled.most_visited(given.top, names):
        cells = [_with_error(o.probability[s], o.standard_error, s) for o in found.occupancies.values()]
        rows.append((names[s] if names else s, *cells))
    yield table("", ("state", *found.occupancies), rows, left=("state",))
    for name, m in found.means.items():
        for d, value in enumerate(m.value):
            yield f"mean, {name}: {_with_error(value, m.standard_error, d)}"
    if any(o.standard_error is None for o in found.occupancies.values()):
        one = pooled.n_tasks == 1
        why = "--fast reads no tasks" if given.fast else "there is one task" if one else "--error-memory 0"
        yield f"no standard errors: {why}"


def _with_error(value: float, errors: Any, at: int) -> str:
    return f"{value:.4f}" if errors is None else f"{value:.4f} ± {errors[at]:.4f}"
