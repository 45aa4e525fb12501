"""`fewsteps train RUN… --base MODEL --preset NAME --out OUT`, on one GPU or under torchrun.

torchrun --nproc-per-node 4 -m sft.commands train RUN --base MODEL --preset hotpotqa --out OUT
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

from occupancy.record.errors import InputError, MissingExtra, RunError
from occupancy.record.show import Parser, add_json, command_line, progress, say, show, table
from occupancy.record.specs import Count, Size, option
from occupancy.record.track import add_track

WAIT_S = 600.0
"""Seconds to wait for a run folder that another process writes; the same command may be given again."""


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Mount `train` on the command line."""
    train = subparsers.add_parser("train", help="fine-tune a student on the teacher's turns")
    add = train.add_argument
    add("runs", nargs="*", help="run folders: D_BC for pi_1, D_BC and D_OP for the final student")
    add("--plan", metavar="PLAN.toml", help="train on the pilot's traces too, as this plan says")
    add("--base", required=True, help="checkpoint to start from: pi_0")
    add("--preset", required=True, help="hotpotqa, alfworld or terminal: the paper's settings")
    add("--out", required=True, help="folder of the training; one that was stopped is resumed")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, e.g. lr=1e-5")
    add("--turn-tokens", type=option(Count), help="most ids of a teacher turn that is trained on")
    add("--overflow", default="drop", choices=["drop", "head", "tail"], help="for rows that are too long")
    add("--classes", help="JSON file of context classes, for held-out NLL by class")
    add("--save-every", type=option(Size), default=0, help="steps between states, 0 = after epochs only")
    add("--hub", action="store_true", help="--base may be a name on the Hugging Face hub")
    add_track(train)
    add_json(train)
    train.set_defaults(handler=run_training)


def run_training(arguments: argparse.Namespace) -> int:
    """Train, write a row of `trainings` into the first run, and print what came out."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtra("torch", "train") from error
    from agentloop.render import LengthRule, Overflow, load_codec
    from agentloop.render.traces import failed_traces, said_of_failures
    from occupancy.record.specs import settings as changes
    from occupancy.record.track import tracked
    from occupancy.runs import open_run
    from sft.on_runs import train_on_runs
    from sft.rows import read_classes
    from sft.screen import Step, notes
    from sft.settings import Settings, preset
    from sft.world import join

    if arguments.plan:
        from agentloop.run.plan_file import fill_train

        fill_train(arguments)
    if not arguments.runs:
        raise InputError("no run folder was given: name those to train on, or a plan with --plan")
    settings = preset(arguments.preset).replace(**changes(Settings, arguments.set, of="--set"))
    codec = load_codec(arguments.base, hub=arguments.hub, of="--base")
    rule = LengthRule(settings.row_tokens, arguments.turn_tokens, Overflow(arguments.overflow))
    classes = read_classes(arguments.classes) if arguments.classes else None
    first = os.environ.get("RANK", "0") == "0"
    tracker = arguments.track if first else None
    if first and (failures := said_of_failures([failed_traces(open_run(run)) for run in arguments.runs])):
        say(f"train: {failures}")
    with (
        progress("train") if first else nullcontext(lambda *_, **__: None) as advance,
        tracked(tracker, name=arguments.out, config=dataclasses.asdict(settings)) as track,
    ):
        note = notes()

        def each(step: Step) -> None:
            advance(step.step, step.steps, note=note(step))
            track(dataclasses.asdict(step))

        found = train_on_runs(
            arguments.runs,
            base=arguments.base,
            codec=codec,
            settings=settings,
            out=arguments.out,
            rule=rule,
            classes=classes,
            save_every=arguments.save_every,
            show=each,
            hub=arguments.hub,
            tell=(lambda line: say(f"train: {line}")) if first else lambda line: None,
        )
    if join().rank:
        return 0
    _record(arguments.runs[0], found.row, found.turns)
    report = found.row | {"data": found.described, "held_out_nll": found.held_out}
    report |= {"chosen": str(found.trained.chosen), "final_loss": found.trained.losses[-1]}
    show(arguments, report, lambda: [_table(report)])
    return 0


def _record(folder: str, row: dict[str, Any], turns: list[dict[str, Any]]) -> None:
    """One row a training, however often a finished one is started again; waits for the run's writer."""
    from occupancy.runs import only_writer, open_run

    run = open_run(folder)
    until, waited = time.monotonic() + WAIT_S, False
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(only_writer(run.folder))
                break
            except RunError:
                if time.monotonic() > until:
                    raise
                if not waited:
                    say(f"train: {run.folder} is being written; waiting to record the training")
                waited = True
                time.sleep(1.0)
        if row["training_id"] not in run.read("trainings").column("training_id").to_pylist():
            run.commit({"trainings": [row], "trained_turns": turns})


def _table(report: dict[str, Any]) -> Any:
    held = report["held_out_nll"]
    lines: list[tuple[str, Any]] = [
        ("chosen checkpoint", report["chosen"]),
        ("teacher tokens, C_tr, held-out included", report["data"]["C_tr"]),
        ("target tokens an epoch", report["target_tokens"]),
        ("sequence tokens an epoch", report["sequence_tokens"]),
        ("GPU seconds", f"{report['gpu_s']:.1f}"),
        ("r by tokens / by tasks", f"{report['data']['r_tokens']:.3f} / {report['data']['r_tasks']:.3f}"),
        ("final loss, nats a target", f"{report['final_loss']:.4f}"),
    ]
    nll = "held-out NLL, nats a target"
    if held is None:
        lines.append((nll, "nothing held out"))
    else:
        lines.append((nll, f"{held['nll']:.4f} (before: {held['before']['nll']:.4f})"))
        parts = {f"teacher turn {depth}": cell for depth, cell in held["by_depth"].items()} | held["by_class"]
        lines += [(f"  {name} ({n} targets)", f"{mean:.4f}") for name, (mean, n) in parts.items()]
    return table(f"training {report['training_id']}", ("what", "value"), lines, left=("what",))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command as torchrun starts it."""
    parser: argparse.ArgumentParser = Parser(prog="fewsteps")
    add_commands(parser.add_subparsers(dest="command", required=True))
    try:
        return command_line(parser, arguments)
    finally:
        if "torch" in sys.modules:
            from sft.world import leave

            leave()


if __name__ == "__main__":
    sys.exit(main())
