"""docs/formats.md, made from the tables of a run: python tests/formats_page.py > docs/formats.md"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from occupancy.record.rows import KEY
from occupancy.record.tables import ADDED_TABLES, SCHEMA_VERSION, TABLES, Column


def _later() -> str:
    """What each version after the first added."""
    added = [(c.since, f"`{table}.{c.name}`") for table, own in TABLES.items() for c in own if c.since > 1]
    added += [(since, f"the table `{table}`") for table, since in ADDED_TABLES.items()]
    said = [f"Version {since} added {name}; older runs are read with it empty." for since, name in added]
    said.append("Version 3 added `part.json`; parts of older runs are read without the check.")
    return "\n".join(said)


_HEAD = f"""# Formats of a run folder

After this page you can read every table of a run with a tool of your own. Schema version {SCHEMA_VERSION}.
{_later()}

    RUN/run.json              settings, versions and hashes; written at the start
    RUN/recipe.toml           the recipe
    RUN/parts/000000/…        rows that were committed together, one Parquet file a table
    RUN/parts/000000/part.json  number of the part, schema version, row count of each of its tables
    RUN/ledger.sqlite         one row an attempt at a teacher's turn
    RUN/serve.jsonl           of `fewsteps serve` alone: what the harness said, one JSON object a line
    RUN/lock                  held by the process that writes

A part appears by one rename: all of its rows are there, or none. A part that was copied, that lost a table
or rows, or that a later version wrote is refused by every reader. Read a table with any Parquet reader from
`RUN/parts/*/episodes.parquet`, or with `occupancy.runs.open_run(RUN).read("episodes")`.
Rows of `episodes` are unique by ({", ".join(KEY)}), the kind and K.
Cells are empty (null) only where "or empty" follows the type.

## Columns of several tables

"""

_LEDGER = """
## ledger.sqlite

Table `attempts`, one row an attempt, written before the call and settled after it: `id`, `episode_id`, `t`
(turn; 0 where a teacher was asked for a switch time), `attempt` (from 0), `context_id` (hash of what was
sent), `role`, `policy`, `state`, `billed` (no, perhaps, yes), `opened_at` and `settled_at` (seconds since
1970), `charged_tokens` and `charged_money` (the most that it can have cost, the second in 10^-12 of the
currency; empty where nothing bounds it), `output_tokens` (reasoning included), `reasoning_tokens`,
`prompt_tokens`, `cached_tokens` (part of the prompt), `counter`, `usage` (reported, or local: the provider
said nothing and we counted), `finish_reason`, `answer` (JSON), `failure` (timeout, rate_limit, server,
connection, malformed, refused, filtered), `error`.

| state | meaning |
|---|---|
| open | the call is under way |
| settled | answered; the answer is used |
| failed | no answer |
| lost | the process died during the call: perhaps billed, tokens unknown |
| orphaned | answered and billed, but its context no longer occurs in the run |
"""


def _rows(columns: Iterable[Column]) -> str:
    lines = (f"| {c.name} | {c.type}{', or empty' if c.nullable else ''} | {c.meaning} |\n" for c in columns)
    return "| column | type | meaning |\n|---|---|---|\n" + "".join(lines)


def document() -> str:
    """The whole page as Markdown; a column that several tables have is described once."""
    often = Counter(column for columns in TABLES.values() for column in columns)
    shared = [column for column, tables in often.items() if tables > 1]
    parts = [_HEAD, _rows(shared)]
    for table, columns in TABLES.items():
        own = [column for column in columns if column not in shared]
        named = ", ".join(f"`{column.name}`" for column in columns if column in shared)
        parts.append(f"\n## {table}\n\n{named and f'{named} (above), and'}\n\n".replace("\n\n\n", "\n"))
        parts.append(_rows(own))
    return "".join([*parts, _LEDGER])


if __name__ == "__main__":
    sys.stdout.write(document())
