"""Price tables: what tokens cost, in whole 10^-12 units of the table's currency, so that sums are exact.

currency = "USD"
context = 0.01                 # optional, for `plan` alone: fixed cost of one context, beside teacher tokens

[models."openai:gpt-4o*"]      # a policy's name without its server's address; * matches anything
input = 2.50                   # per million prompt tokens
cached_input = 1.25            # per million prompt tokens read from a cache; default: as input
output = 10.00                 # per million output tokens, reasoning included

A file with `output`, and perhaps `prompt`, `cached` and `context`, alone is a table of one price for every
model. `collect`, `ledger` and `plan` read the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from occupancy.record.errors import InputError
from occupancy.record.reading import read_toml

PICO = 10**12
"""Parts of one unit of the currency."""
_FLAT = {"output": "output", "prompt": "input", "cached": "cached_input"}


class Counted(Protocol):
    """Tokens of an answer, as a provider counts them."""

    @property
    def output(self) -> int: ...  # noqa: D102
    @property
    def prompt(self) -> int | None: ...  # noqa: D102
    @property
    def cached(self) -> int | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Price:
    """Cost of one token, in 10^-12 of the currency; a million tokens at 1 unit are 10^6 each."""

    input: int
    cached_input: int
    output: int

    def of(self, usage: Counted) -> int | None:
        """Cost of an answer; None where the provider did not report the prompt's length.

        Cached tokens are a part of the prompt, and reasoning of the output: each token is priced once.
        """
        if usage.prompt is None:
            return None
        cached = min(usage.cached or 0, usage.prompt)
        return (usage.prompt - cached) * self.input + cached * self.cached_input + usage.output * self.output

    def most(self, *, prompt: int, output: int) -> int:
        """Largest possible cost of an answer with at most so many tokens."""
        return prompt * max(self.input, self.cached_input) + output * self.output


@dataclass(frozen=True)
class PriceTable:
    """Prices by policy."""

    currency: str
    models: Mapping[str, Price]
    context: int = 0
    """Fixed cost of one context, in 10^-12 of the currency."""

    def find(self, policy: str = "") -> Price:
        """The price of a policy: its own entry, else the first pattern that matches; without a name the only
        one."""
        if not policy and len(self.models) == 1:
            return next(iter(self.models.values()))
        found = self.models.get(policy) or next(
            (price for name, price in self.models.items() if fnmatchcase(policy, name)), None
        )
        if found is None:
            wanted = f"not {policy!r}" if policy else "and no policy was named"
            raise InputError(
                f"the price table has {', '.join(self.models) or 'no model'}, {wanted}: add "
                f'[models."{policy or "*"}"] with input and output'
            )
        return found

    def show(self, pico: int) -> str:
        """An amount for a person."""
        return f"{pico / PICO:,.4f} {self.currency}"


def read_prices(file: str | Path) -> PriceTable:
    """The price table in a TOML file; a missing or unknown entry is refused by name."""
    given = read_toml(file, what="the price table", error=InputError, parse_float=_decimal)
    if "models" not in given:
        given = _from_flat(file, given)
    unknown = sorted(set(given) - {"currency", "models", "context"})
    if unknown or not isinstance(given["models"], dict):
        raise InputError(
            f"the price table {file} has {unknown or 'models without names'}: expected currency, "
            f"[models.NAME], and perhaps context"
        )
    models = {name: _price(file, name, row) for name, row in given["models"].items()}
    context = _pico(file, "context", given.get("context", 0), each=1)
    return PriceTable(str(given.get("currency", "money")), models, context)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise InputError(f"a price table holds the number {text[:40]}: expected a price") from error


def _from_flat(file: str | Path, given: dict[str, Any]) -> dict[str, Any]:
    """A table of one price for every model, from a file without [models.NAME]."""
    wrong = sorted(set(given) - {*_FLAT, "context", "currency"}) or sorted({"output"} - set(given))
    if wrong:
        raise InputError(
            f"the price table {file} has an unknown or missing entry {wrong[0]!r}: expected currency and "
            f"[models.NAME] with input, output and perhaps cached_input, per million tokens"
        )
    row = {_FLAT[name]: value for name, value in given.items() if name in _FLAT}
    rest = {name: value for name, value in given.items() if name not in _FLAT}
    return {"models": {"*": {"input": 0, **row}}, **rest}


def _price(file: str | Path, name: str, row: Any) -> Price:
    known = {"input", "output", "cached_input"}
    if not isinstance(row, dict) or not {"input", "output"} <= set(row) <= known:
        found = sorted(row) if isinstance(row, dict) else row
        wanted = "expected input, output and perhaps cached_input"
        raise InputError(f"the price table {file} has {found} for {name!r}: {wanted}")
    each = {field: _pico(file, f"{name}.{field}", value, each=10**6) for field, value in row.items()}
    return Price(each["input"], each.get("cached_input", each["input"]), each["output"])


def _pico(file: str | Path, name: str, value: Any, *, each: int) -> int:
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if not number or not Decimal(value).is_finite() or not 0 <= value < PICO:
        raise InputError(f"the price table {file} has {name} = {value}: expected a number of at least 0")
    return int((Decimal(value) * PICO / each).to_integral_value())
