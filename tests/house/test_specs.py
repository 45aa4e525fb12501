"""NAME=VALUE texts become values of the types that annotations give; whatever cannot is one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from occupancy.record.errors import InputError
from occupancy.record.specs import (
    Count,
    Few,
    NotNegative,
    Positive,
    Range,
    Seed,
    Share,
    amount,
    check,
    checked,
    read,
    settings,
    value_of,
)


@dataclass(frozen=True)
class Sampling:
    model: str
    tokens: Count = 10
    share: Share = 0.5
    heat: NotNegative | None = None
    speed: Positive = 1.0
    seed: Seed = 0
    cut: Annotated[float, Range(0, below=1)] = 0.0
    greedy: bool = False
    kind: Literal["drop", "keep"] = "drop"
    betas: tuple[float, float] = (0.9, 0.95)
    feature: tuple[str, ...] = ()
    budget: Annotated[float, amount] = 1.0

    def __post_init__(self) -> None:
        check(self, of=self.model)


def sampling(*items: str) -> Sampling:
    return read(Sampling, items, of="m", model="m")


def test_values_have_the_types_of_their_annotations() -> None:
    found = sampling("tokens=300", "share=.25", "heat=2", "greedy=1", "kind=keep", "betas=.9,.99")
    assert found == Sampling("m", 300, 0.25, 2.0, greedy=True, kind="keep", betas=(0.9, 0.99))
    assert sampling("betas=[0.9, 0.98]", 'kind="keep"', "greedy=true", "budget=300k") == Sampling(
        "m", betas=(0.9, 0.98), kind="keep", greedy=True, budget=300_000
    )
    assert sampling("feature=a", "feature=b,c").feature == ("a", "b", "c")


@pytest.mark.parametrize(
    ("item", "told"),
    [
        *((f"{name}={text}", "expected a") for name in ("tokens", "share", "heat", "speed", "seed", "cut")
          for text in ("nan", "inf", "-1", "", "text", "1e26")),
        ("tokens=0", "expected a whole number of at least 1"),
        ("tokens=1.5", "expected a whole number of at least 1"),
        ("share=1.1", "expected a number of at least 0, of at most 1"),
        ("speed=0", "expected a number above 0"),
        ("cut=1", "below 1"),
        ("greedy=2", "expected 0 or 1"),
        ("kind=other", "expected one of drop, keep"),
        ("betas=1", "expected 2 values with commas between, each a number"),
        ("betas=1,x", "expected"),
        ("budget=0", "300k"),
        ("colour=red", "m has no setting 'colour': expected one of tokens, share"),
        ("model=other", "no setting 'model'"),
        ("tokens", "not NAME=VALUE"),
        ("=3", "not NAME=VALUE"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_value_and_the_choices(item: str, told: str) -> None:
    with pytest.raises(InputError) as refused:
        sampling(item)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_setting_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="m: tokens is given twice"):
        sampling("tokens=1", "tokens=2")


@pytest.mark.parametrize(
    "wrong", [{"tokens": 0}, {"share": float("nan")}, {"tokens": True}, {"kind": "x"}, {"heat": "1"}]
)
def test_a_record_is_checked_however_it_is_made(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InputError, match=f"^m: {name}="):
        Sampling("m", **wrong)


def test_a_checked_function_refuses_what_its_annotations_do() -> None:
    @checked
    def worlds(name: str, /, *, size: Few = 3, kind: Literal["a", "b"] = "a", **more: Any) -> int:
        return size

    assert worlds("x", size=4, kind="b", other=object()) == 4
    assert settings(worlds, ["size=4"], of="w", but=["name"]) == {"size": 4}
    for wrong in ({"size": 0}, {"size": 1.5}, {"kind": "c"}):
        with pytest.raises(InputError, match=f"^{next(iter(wrong))}="):
            worlds("x", **wrong)


def test_functions_are_read_like_records() -> None:
    def worlds(*, size: int = 3, free=None, **more): ...

    assert settings(worlds, ["size=4", "free=.5", "other=[1, 2]", "text=a"], of="w") == {
        "size": 4,
        "free": 0.5,
        "other": [1, 2],
        "text": "a",
    }
    with pytest.raises(
        InputError, match="w has no setting 'workers': expected none, for it takes no settings"
    ):
        settings(lambda: None, ["workers=2"], of="w")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("300000", 300_000),
        ("300k", 300_000),
        ("1.2M", 1_200_000),
        ("1e6", 1_000_000),
        ("12.50", 12.5),
        (".5", 0.5),
    ],
)
def test_budgets(text: str, value: float) -> None:
    assert amount(text) == value
    assert type(amount(text)) is type(value)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "0", "1e26", "1e999", "k", "3 k", "300kk", "many"])
def test_budgets_that_make_no_sense(text: str) -> None:
    with pytest.raises(InputError, match="300k or"):
        value_of(text, Annotated[float, amount])
