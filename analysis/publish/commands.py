"""`fewsteps publish RUN`: a run as a folder to publish, checked first; nothing is sent anywhere."""

from __future__ import annotations

import argparse

from occupancy.record.show import add_json, show


def add_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Define `publish`."""
    command = subparsers.add_parser(
        "publish",
        help="a run as a data set to publish: card, Croissant, traces; secrets checked first",
        description="Write a folder with a run's conversations, a data card, Croissant metadata and, of an "
        "evaluation, its Every-Eval-Ever record. Licence, keys, paths and addresses are checked first. "
        "Nothing is sent anywhere.",
    )
    add = command.add_argument
    add("run", metavar="RUN", help="run folder: collected, imported, an evaluation")
    add("--out", required=True, metavar="FOLDER", help="a new folder")
    add("--license", required=True, metavar="NAME", help="e.g. cc-by-4.0, apache-2.0, cc-by-sa-4.0")
    add("--name", default="", help="name of the data set (default: the run folder's)")
    add("--url", default="", help="where it will be published")
    add("--organization", default="unknown", help="who publishes it")
    add("--redact", action="store_true", help="replace keys, paths and addresses that are found")
    add(
        "--keep",
        action="append",
        default=[],
        choices=("path", "address"),
        help="publish what is found of this kind as it is (may repeat)",
    )
    add_json(command)
    command.set_defaults(handler=_publish)


def _publish(given: argparse.Namespace) -> int:
    from analysis.publish.write import Publication, publish
    from occupancy.record.drafts import new_folder
    from occupancy.runs import open_run

    out = new_folder(given.out)
    run = open_run(given.run)
    how = Publication(
        licence=given.license.lower(),
        name=given.name or run.folder.resolve().name,
        url=given.url,
        organization=given.organization,
        redact=given.redact,
        keep=frozenset(given.keep),
    )
    report = publish(run, out, how)
    found = ", ".join(f"{n:,} of kind {kind}" for kind, n in report["found"].items()) or "nothing"
    lines = [
        f"{report['episodes']:,} episodes under {how.licence} in {out}; found in texts: {found}",
        *(f"check: {note}" for note in report["notes"]),
        "read README.md before you publish the folder; nothing was sent",
    ]
    show(given, report, "\n".join(lines))
    return 0
