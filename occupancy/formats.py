"""docs/formats.md, made from the tables: python -m occupancy.formats > docs/formats.md"""

from __future__ import annotations

import sys

from occupancy.tables import KEY, SCHEMA_VERSION, TABLES

_HEAD = f"""# Formats of a run folder

Schema version {SCHEMA_VERSION}. This page is made from `occupancy/tables.py`.

    RUN/run.json              settings, versions and hashes; written at the start
    RUN/recipe.toml           the recipe
    RUN/parts/000000/…        rows that were committed together, one Parquet file a table
    RUN/ledger.sqlite         one row an attempt at a teacher's turn
    RUN/lock                  held by the process that writes

A part appears by one rename: all of its rows are there, or none. Read a table with
`occupancy.runs.open_run(RUN).read("episodes")`, or with any Parquet reader from
`RUN/parts/*/episodes.parquet`.
Rows have the key ({", ".join(KEY)}); a part of the key that does not apply is -1.
Cells are empty (null) only where the meaning says so.
"""

_LEDGER = """
## ledger.sqlite

Table `attempts`, one row an attempt, written before the call and settled after it: `id`,
`episode_id`, `t` (turn), `attempt` (from 0), `context_id` (hash of what was sent), `role`, `policy`,
`state`, `opened_at` and `settled_at` (seconds since 1970), `output_tokens` (reasoning included),
`reasoning_tokens`, `prompt_tokens`, `cached_tokens`, `counter`, `answer` (JSON), `error`.

| state | meaning |
|---|---|
| open | the call is under way |
| settled | answered; the answer is used |
| failed | no answer |
| lost | the process died during the call: perhaps billed, tokens unknown |
| orphaned | answered and billed, but its context no longer occurs in the run |
"""


def document() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD]
    for table, columns in TABLES.items():
        parts.append(f"\n## {table}\n\n| column | type | may be empty | meaning |\n|---|---|---|---|\n")
        parts += [f"| {c.name} | {c.type} | {'yes' if c.nullable else ''} | {c.meaning} |\n" for c in columns]
    return "".join([*parts, _LEDGER])


if __name__ == "__main__":
    sys.stdout.write(document())
