"""Price tables: what tokens cost, in whole 10^-12 units of the table's currency, so that sums are exact.

currency = "USD"

[models."openai:gpt-4o@*"]     # a policy as the command line names it; * stands for anything
input = 2.50                   # for a million prompt tokens
cached_input = 1.25            # for a million of those that were read from a cache; default: as input
output = 10.00                 # for a million output tokens, reasoning among them
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from agentloop.types import Usage
from occupancy.record.errors import InputError

PICO = 10**12
"""Parts of one unit of the currency."""
_FIELDS = {"input", "cached_input", "output"}


@dataclass(frozen=True, slots=True)
class Price:
    """Of one token, in 10^-12 of the currency."""

    input: int
    cached_input: int
    output: int

    def of(self, usage: Usage) -> int | None:
        """Cost of an answer; None where the provider did not say how long the prompt was.

        Cached tokens are a part of the prompt, and reasoning of the output: each token is priced once.
        """
        if usage.prompt is None:
            return None
        cached = min(usage.cached or 0, usage.prompt)
        return (usage.prompt - cached) * self.input + cached * self.cached_input + usage.output * self.output

    def most(self, *, prompt: int, output: int) -> int:
        """Cost of the dearest answer with at most so many tokens."""
        return prompt * max(self.input, self.cached_input) + output * self.output


FREE = Price(0, 0, 0)


@dataclass(frozen=True)
class Prices:
    """A price table."""

    currency: str
    models: Mapping[str, Price]

    def find(self, policy: str) -> Price:
        """The price of a policy: its own entry, else the first pattern that fits its name."""
        found = self.models.get(policy) or next(
            (price for name, price in self.models.items() if fnmatchcase(policy, name)), None
        )
        if found is None:
            raise InputError(
                f"the price table names {', '.join(self.models) or 'no model'}, not {policy!r}: add "
                f'[models."{policy}"] with input and output'
            )
        return found

    def show(self, pico: int) -> str:
        """An amount for a person."""
        return f"{pico / PICO:,.4f} {self.currency}"


def read_prices(file: str | Path) -> Prices:
    """A price table from TOML; a missing or unknown entry is refused by name."""
    try:
        given = tomllib.loads(Path(file).read_text("utf-8"), parse_float=Decimal)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{file} cannot be read as a price table: {error}") from error
    if set(given) != {"currency", "models"} or not isinstance(given["models"], dict):
        raise InputError(f"{file} has {sorted(given)}: expected currency and [models.NAME]")
    return Prices(
        str(given["currency"]), {name: _price(file, name, row) for name, row in given["models"].items()}
    )


def _price(file: str | Path, name: str, row: Any) -> Price:
    if not isinstance(row, dict) or not {"input", "output"} <= set(row) <= _FIELDS:
        found = sorted(row) if isinstance(row, dict) else row
        raise InputError(f"{file}: {name!r} has {found}: expected input, output and perhaps cached_input")
    for field, value in row.items():
        if isinstance(value, bool) or not isinstance(value, int | Decimal) or not 0 <= value < PICO:
            raise InputError(f"{file}: {field} of {name!r} is {value!r}: expected a price for 10^6 tokens")
    per_token = {field: int((Decimal(value) * 10**6).to_integral_value()) for field, value in row.items()}
    return Price(per_token["input"], per_token.get("cached_input", per_token["input"]), per_token["output"])
