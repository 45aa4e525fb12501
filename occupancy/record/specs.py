"""NAME=VALUE texts to validated values, as the annotations of a dataclass or a function ask for them.

An annotation gives the type (int, float, bool, str, Literal, tuple, or None beside one of these), and in
`Annotated` a `Range` of numbers or a function that reads the text itself. `check` tests the fields of a
record against the same annotations, however the record was made.
"""

from __future__ import annotations

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from functools import lru_cache, wraps
from types import NoneType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from occupancy.record.errors import DataError, InputError

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
MOST = 10**15
"""No count, budget or price comes near it: more is a slip of the hand."""


@dataclass(frozen=True)
class Range:
    """Bounds of a number; NaN and infinities are never inside."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    """Exclusive lower bound."""
    below: float = math.inf
    """Exclusive upper bound."""

    def holds(self, value: float) -> bool:
        """Whether `value` lies inside."""
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        words = ("of at least", "above", "of at most", "below")
        bounds = zip(words, (self.least, self.above, self.most, self.below), strict=True)
        return ",".join(f" {word} {bound:g}" for word, bound in bounds if abs(bound) < MOST)


Count = Annotated[int, Range(1, MOST)]
Few = Annotated[int, Range(1, 10**6)]
"""Of things that are done one after another, or held in memory: rounds, attempts, machines."""
Size = Annotated[int, Range(0, MOST)]
Share = Annotated[float, Range(0, 1)]
Fraction = Annotated[float, Range(0, below=1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
Seed = Annotated[int, Range(0, 2**64 - 1)]


def read(target: Callable[..., T], items: Iterable[str], *, of: str, **given: Any) -> T:
    """What a dataclass or a function makes of `given` and of the settings in NAME=VALUE items.

    `of` names what they belong to, for messages: a flag, a model, a file. Raises InputError where a setting
    is unknown or repeated, or its annotation refuses the value.

    Example:
        >>> @dataclass(frozen=True)
        ... class Sampling:
        ...     top_p: Share = 1.0
        >>> read(Sampling, ["top_p=.9"], of="the model")
        Sampling(top_p=0.9)
    """
    return target(**given, **settings(target, items, of=of, but=given))


def settings(
    target: Callable[..., Any], items: Iterable[str], *, of: str, but: Iterable[str] = ()
) -> dict[str, Any]:
    """Typed values of NAME=VALUE items for `target`; `but` names parameters that are not settings."""
    found: dict[str, Any] = {}
    known = {name: kind for name, kind in parameters(target).items() if name not in but}
    for item in items:
        name, equals, text = (part.strip() for part in item.partition("="))
        if not name or not equals:
            raise InputError(f"{of}: {item!r} is not NAME=VALUE: expected {_names(known)}")
        if name not in known and "**" not in known:
            raise InputError(f"{of} has no setting {name!r}: expected {_names(known)}")
        value = value_of(text, known.get(name, Any), f"{of}: {name}=")
        many = isinstance(value, tuple)
        if name in found and not many:
            raise InputError(f"{of}: {name} is given twice: expected it once")
        found[name] = found.get(name, ()) + value if many else value
    return found


@lru_cache(maxsize=256)
def parameters(target: Any) -> Mapping[str, Any]:
    """Parameter -> annotation of a class or a function; '**' where any other name is taken too."""
    typed = target.__init__ if inspect.isclass(target) and not is_dataclass(target) else target
    try:
        hints = get_type_hints(typed, include_extras=True)
    except (NameError, TypeError, AttributeError):  # a name that only a type checker imports
        hints = {}
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = Any
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            found[name] = hints.get(name, Any)
    return found


def value_of(text: str, kind: Any, name: str = "") -> Any:
    """The value that `text` spells, of the type that the annotation `kind` gives.

    Raises:
        InputError: "{name}{text!r}: expected ..." where it spells none.
    """
    base, marks = _parts(kind)
    reader = next((mark for mark in marks if callable(mark)), None)
    try:
        value = reader(text) if reader else _converted(text, base)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{name}{text!r}: expected {described(kind)}") from error
    if not reader and not _fits(value, kind):
        raise InputError(f"{name}{text!r}: expected {described(kind)}")
    return value


def check(record: Any, *, of: str = "", error: type[InputError] = InputError, hashed: bool = False) -> None:
    """Refuse a dataclass with a field that its annotation does not allow; call it in `__post_init__`.

    hashed: equal records are to have equal JSON, so 1 becomes 1.0 or True where the annotation asks for it.
    """
    kinds: Mapping[str, Any] = parameters(record.__class__)
    for name, kind in kinds.items():
        value = getattr(record, name)
        _refuse(name, value, kind, of, error)
        base, marks = _parts(kind)
        if hashed and base in (float, bool) and value is not None and not any(map(callable, marks)):
            object.__setattr__(record, name, base(value))


def checked(function: Function) -> Function:
    """The function, which refuses keyword arguments that its annotations do not allow, as `check` does."""

    @wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        kinds = parameters(function)
        for name, value in given.items():
            _refuse(name, value, kinds.get(name, Any), "")
        return function(*args, **given)

    return call  # type: ignore[return-value]


def check_entries(found: object, kinds: Mapping[str, Any], *, of: str) -> None:
    """Refuse a value of a file of ours that is no object with entries of these annotations: DataError."""
    if not isinstance(found, Mapping):
        raise DataError(f"{of} is {found!r:.60}: expected a JSON object; restore it")
    for name, kind in kinds.items():
        value = found.get(name)
        if not _fits(value, kind):
            raise DataError(f"{of} has {name}={value!r:.60}: expected {described(kind)}; restore it")


def record_of(record: type[T], given: Any, *, of: str) -> T:
    """The dataclass of a user's table; an unknown, missing or impossible entry is named: InputError."""
    if not isinstance(given, Mapping):
        raise InputError(f"{of} is {given!r}: expected a table")
    kinds: Mapping[str, Any] = parameters(record)  # type: ignore[arg-type, unused-ignore]
    if unknown := sorted(set(given) - set(kinds)):
        raise InputError(f"{of} has an unknown entry {unknown[0]!r}: expected {', '.join(sorted(kinds))}")
    needed = [name for name, p in inspect.signature(record).parameters.items() if p.default is p.empty]
    if missing := [name for name in needed if name not in given]:
        raise InputError(f"{of} lacks the entry {missing[0]!r}: expected {', '.join(sorted(kinds))}")
    for name, value in given.items():
        _refuse(name, value, kinds[name], of)
    return record(**{name: tuple(v) if isinstance(v, list) else v for name, v in given.items()})


def option(kind: Any) -> Callable[[str], Any]:
    """An argparse `type` for the annotation `kind`, or for a function that reads text."""
    from argparse import ArgumentTypeError

    def read_option(text: str) -> Any:
        try:
            return value_of(text, Annotated[Any, kind] if inspect.isfunction(kind) else kind)
        except InputError as error:
            raise ArgumentTypeError(str(error)) from error

    return read_option


def amount(text: str) -> int | float:
    """A budget above 0, of tokens or money: 300000, 300k, 1.2M, 12.50."""
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)(e\+?\d{1,3})?([kM]?)", text.strip(), re.ASCII | re.IGNORECASE)
    value = Decimal(0) if found is None else Decimal(found[1] + (found[2] or ""))
    if found is not None and found[3]:
        value *= 1000 if found[3] in "kK" else 10**6
    if not 0 < value <= MOST:
        raise InputError(f"{text!r}: expected a number above 0 such as 300000, 300k or 1.2M")
    return int(value) if value == value.to_integral_value() else float(value)


def described(kind: Any) -> str:
    """What an annotation allows, for messages."""
    base, marks = _parts(kind)
    if base is bool:
        return "0 or 1"
    if get_origin(base) is Literal:
        return "one of " + ", ".join(map(str, get_args(base)))
    if get_origin(base) is tuple:
        inner = get_args(base)
        many = "" if inner[-1] is ... else f"{len(inner)} "
        return f"{many}values with commas between, each {described(inner[0])}"
    if get_origin(base) is Mapping or is_dataclass(base):
        return "a table"
    noun = {int: "a whole number", float: "a number"}.get(base, "a text")
    return noun + "".join(str(mark) for mark in marks if isinstance(mark, Range))


def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """The type of an annotation without None, and what `Annotated` adds."""
    options = [option for option in get_args(kind) if option is not NoneType]
    if get_origin(kind) is Annotated:
        base, inner = _parts(get_args(kind)[0])
        return base, (*inner, *kind.__metadata__)
    if NoneType in get_args(kind) and len(options) == 1:
        return _parts(options[0])
    return kind, ()


def _converted(text: str, base: Any) -> Any:
    if base is int:
        return int(text)
    if base is float:
        return float(text)
    if base is bool:
        return {"0": False, "1": True, "false": False, "true": True}.get(text.lower(), text)
    if get_origin(base) is tuple:
        inner = get_args(base)
        texts = [part.strip() for part in text.strip("[]()").split(",") if part.strip()]
        kinds = [inner[0]] * len(texts) if inner[-1] is ... else inner
        return tuple(value_of(part, kind) for part, kind in zip(texts, kinds, strict=True))
    if base is str or get_origin(base) is Literal:
        return json.loads(text) if len(text) > 1 and text[0] == text[-1] == '"' else text
    return _guessed(text)


def _guessed(text: str) -> Any:
    """A value of no known type: JSON, else a number, else the text; no number that is not finite."""
    for reader in (json.loads, int, float):
        try:
            value = reader(text)
        except ValueError:
            continue
        if not isinstance(value, float) or math.isfinite(value):
            return value
    return text


def _fits(value: Any, kind: Any) -> bool:
    base, marks = _parts(kind)
    if any(callable(mark) for mark in marks):
        return True
    if value is None and NoneType in get_args(kind):
        return True
    if base is bool:
        return value in (0, 1)
    if get_origin(base) is Literal:
        return value in get_args(base)
    if base in (int, float):
        number = isinstance(value, int if base is int else (int, float)) and not isinstance(value, bool)
        ranges = [mark for mark in marks if isinstance(mark, Range)]
        return number and abs(value) < 2**64 and all(r.holds(value) for r in ranges)
    return _is_one(value, base)


def _is_one(value: Any, base: Any) -> bool:
    """Whether a value is a text, list, table or record, where such a one is asked for."""
    if get_origin(base) is tuple:
        inner = get_args(base)
        one_kind = inner[-1] is ...
        return isinstance(value, tuple | list) and all(_fits(one, inner[0]) for one in value if one_kind)
    if get_origin(base) is Mapping:
        return isinstance(value, Mapping)
    return isinstance(value, base) if isinstance(base, type) and (base is str or is_dataclass(base)) else True


def _refuse(name: str, value: Any, kind: Any, of: str, error: type[InputError] = InputError) -> None:
    if not _fits(value, kind):
        raise error(f"{of + ': ' if of else ''}{name}={value!r}: expected {described(kind)}")


def _names(known: Mapping[str, Any]) -> str:
    names = ", ".join(name for name in known if name != "**")
    return f"one of {names}" if names else "none, for it takes no settings"
