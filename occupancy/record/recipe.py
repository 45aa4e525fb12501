"""The recipe G = (rho, pi_e, n, Psi, T_switch, K, Phi) with its horizon: one immutable, hashable value.

A recipe says how teacher data are collected (paper, section 3 and Algorithm 1). Presets name the recipes of
the literature, and op-failed, which continues failed rollouts and keeps every continuation;
`preset("op-short", K=3)` starts from one and changes what is given.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any

from occupancy.record.errors import RecipeError, one_of
from occupancy.record.specs import Count, Range, check

INF = math.inf
PROPOSERS = ("teacher", "pi_0", "pi_1")
PREFIX_FILTERS = ("all", "without_success", "no_repetition")
CONTEXT_FILTERS = ("all", "mixed")
CONTINUATION_FILTERS = ("all", "success")
REPLAYS = 2
"""Most student episodes from a context that show whether its outcomes are mixed, beside its rollout."""
LAWS = ("start", "uniform", "fixed", "weights", "teacher")


@dataclass(frozen=True)
class SwitchLaw:
    """T_switch: the law of t', the first turn that the teacher plays."""

    law: str = "uniform"
    """start: t' = 1. uniform: Unif{1..T(tau)}. fixed: t' ~ nu, rejected where t' > T(tau).
    weights: categorical by per-turn weights w_t(tau). teacher: the teacher decides, from tau."""
    nu: tuple[float, ...] = ()
    """Fixed law only: nu_1 .. nu_m, m <= T_max; empty means Unif{1..T_max}."""

    def __post_init__(self) -> None:
        one_of(LAWS, switch=self.law, error=RecipeError)
        try:
            object.__setattr__(self, "nu", tuple(float(p) for p in self.nu))
        except (TypeError, ValueError) as error:
            raise RecipeError(f"nu={self.nu!r}: expected a list of probabilities") from error
        if self.nu and self.law != "fixed":
            raise RecipeError(
                f"nu is given with the switch law {self.law!r}: only 'fixed' has it; leave it out"
            )
        if self.nu and (min(self.nu) < 0 or not math.isclose(math.fsum(self.nu), 1.0, abs_tol=1e-9)):
            raise RecipeError(
                f"nu has smallest entry {min(self.nu)} and sum {math.fsum(self.nu)}: expected "
                f"probabilities >= 0 that sum to 1"
            )


@dataclass(frozen=True)
class Recipe:
    """How teacher turns are collected; validated at construction, hashable, written as TOML."""

    name: str = "op-short"
    """A label for people; not part of the hash."""
    rho: str = "pi_1"
    """Who makes the prefix: the teacher (pure BC), the base student pi_0, or pi_1 after BC."""
    teacher: str = "expert"
    """pi_e, as `fewsteps collect --teacher` names it."""
    n: Count = 1
    """Proposals a task, each with its own rollout of rho."""
    psi: str = "all"
    """Prefix filter Psi(tau): which rollouts may be switched from."""
    repetition: Annotated[int, Range(2)] = 3
    """no_repetition refuses a rollout with this many equal consecutive student turns."""
    switch: Annotated[SwitchLaw, parse_switch] = field(default_factory=SwitchLaw)
    K: Annotated[float, parse_K] = INF
    """Cap on the teacher's turns in one continuation; inf means T_max."""
    phi: str = "all"
    """Continuation filter Phi: which continuations become training traces."""
    T_max: Count = 50
    """Horizon on the whole episode, prefix included."""
    success_at: Annotated[float, Range(above=0, most=1)] = 1.0
    """Success is R >= this threshold."""
    context: str = "all"
    """Context filter, once t' is drawn. mixed: the teacher is asked only where the student's rollout and
    REPLAYS more of its episodes from there neither all succeed nor all fail. Or package.module:function."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "switch", parse_switch(self.switch))
        object.__setattr__(self, "K", parse_K(self.K))
        check(self, error=RecipeError, hashed=True)
        if not self.name or not self.teacher:
            raise RecipeError(f"name={self.name!r}, teacher={self.teacher!r}: neither may be empty")
        one_of(PROPOSERS, rho=self.rho, error=RecipeError)
        filters = (("psi", PREFIX_FILTERS), ("phi", CONTINUATION_FILTERS), ("context", CONTEXT_FILTERS))
        for name, allowed in filters:
            value = getattr(self, name)
            if value not in allowed and ":" not in value:
                raise RecipeError(
                    f"{name}={value!r}: expected one of {', '.join(allowed)}, or a filter of your own as "
                    f"package.module:function"
                )
        self._refuse_impossible()

    def _refuse_impossible(self) -> None:
        if self.K != INF and self.T_max < self.K:
            raise RecipeError(f"K={self.K} with T_max={self.T_max}: an episode has fewer turns; use K='inf'")
        if self.phi == "success" and self.T_max > self.K:
            raise RecipeError(f"phi='success' with K={self.K}: success is known only at the end; use K='inf'")
        if self.rho == "teacher" and self.switch.law != "start":
            raise RecipeError(
                f"rho='teacher' with switch law {self.switch.law!r}: the teacher's own episode starts with "
                f"the teacher; use law='start', or rho='pi_1'"
            )
        for name, value in (("psi", self.psi), ("context", self.context)):
            if self.rho == "teacher" and value != "all":
                raise RecipeError(
                    f"rho='teacher' with {name}={value!r}: there is no student prefix to filter"
                )
        if (entries := len(self.switch.nu)) > self.T_max:
            raise RecipeError(f"nu has {entries} entries with T_max={self.T_max}: expected at most T_max")

    def cap(self, t_prime: int) -> int:
        """Most turns that the teacher may play from turn t' on: min(K, T_max - t' + 1)."""
        return int(min(self.K, self.T_max - t_prime + 1))

    @property
    def hash(self) -> str:
        """16 hex digits over everything but the label."""
        return hash_of(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values for TOML and JSON; K is a whole number or 'inf', without `context` where all."""
        plain = asdict(self)
        if self.context == "all":  # as before there was such a filter, so that hashes stay what they were
            del plain["context"]
        plain["K"] = K_text(self.K)
        plain["switch"]["nu"] = list(self.switch.nu)
        return plain

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Recipe:
        """Inverse of `to_dict`; an unknown field is refused by name."""
        _refuse_unknown(given)
        return cls(**given)

    def to_toml(self) -> str:
        """The recipe as TOML text; `from_toml` reads it back to an equal value."""
        import tomli_w

        return tomli_w.dumps(self.to_dict())

    @classmethod
    def from_toml(cls, text: str) -> Recipe:
        """Read a recipe from TOML text."""
        import tomllib

        from occupancy.record.reading import reading

        with reading("the recipe", then="expected the TOML of a recipe", error=RecipeError):
            return cls.from_dict(tomllib.loads(text))


def hash_of(plain: Mapping[str, Any]) -> str:
    """16 hex digits over everything but the label of a recipe's plain values."""
    content = {key: value for key, value in plain.items() if key != "name"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def _refuse_unknown(given: Mapping[str, Any]) -> None:
    known = [f.name for f in fields(Recipe)]
    if unknown := sorted(set(given) - set(known)):
        raise RecipeError(f"unknown recipe field {unknown[0]!r}: expected one of {', '.join(known)}")


def parse_switch(value: SwitchLaw | Mapping[str, Any] | str) -> SwitchLaw:
    """A switch law from its name, or from a table with the fields law and nu."""
    if isinstance(value, str):
        return SwitchLaw(value)
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - {"law", "nu"})
        if unknown:
            raise RecipeError(f"unknown field {unknown[0]!r} of switch: expected law and nu")
        return SwitchLaw(**value)
    if not isinstance(value, SwitchLaw):
        raise RecipeError(f"switch={value!r}: expected one of {', '.join(LAWS)}")
    return value


def parse_K(value: float | int | str) -> float:
    """K as a whole number >= 1, or math.inf for 'inf'."""
    given: Any = value
    if isinstance(given, str):
        text = given.strip().lower()
        given = INF if text == "inf" else int(text) if text.isascii() and text.isdigit() else given
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not (given == INF or (given >= 1 and given == int(given))):
        raise RecipeError(f"K={given!r}: expected a whole number of at least 1, or 'inf'")
    return INF if given == INF else int(given)


def K_text(K: float) -> int | str:
    """K as JSON and TOML write it: a whole number, or 'inf'."""
    return "inf" if K == INF else int(K)


_UNIFORM, _START = SwitchLaw("uniform"), SwitchLaw("start")
_PRESETS: dict[str, Callable[[], Recipe]] = {
    "pure-bc": lambda: Recipe("pure-bc", rho="teacher", switch=_START),
    "op-short": lambda: Recipe("op-short", switch=_UNIFORM, K=3),
    "op-success": lambda: Recipe("op-success", switch=_UNIFORM, phi="success"),
    "op-critical": lambda: Recipe("op-critical", psi="without_success", switch=_UNIFORM, phi="success"),
    "op-failed": lambda: Recipe("op-failed", psi="without_success", switch=_UNIFORM),
    "oec": lambda: Recipe("oec", psi="no_repetition", switch=SwitchLaw("fixed"), phi="success"),
    "leap": lambda: Recipe("leap", psi="without_success", switch=SwitchLaw("teacher"), K=1),
}
PRESETS = tuple(_PRESETS)
MEANINGS = {
    "pure-bc": "demonstrations: the teacher plays whole episodes",
    "op-short": "the teacher plays K turns (3 unless said) from a random turn of the student's rollout",
    "op-success": "the teacher plays to the end from a random turn of a rollout; only successes are kept",
    "op-critical": "from rollouts that failed, the teacher plays to the end; only successes are kept",
    "op-failed": "from rollouts that failed, the teacher plays K turns (all unless said); all are kept",
    "oec": "as op-success, from rollouts without repetition and a turn drawn from 1..T_max",
    "leap": "the teacher names one turn of a failed rollout and plays it",
}
"""What each preset collects, for help texts."""


def preset(name: str, /, **changes: Any) -> Recipe:
    """A named recipe with `changes` applied, e.g. preset("op-short", K=1, T_max=5)."""
    one_of(PRESETS, recipe=name, error=RecipeError)
    _refuse_unknown(changes)
    base = _PRESETS[name]()
    T_max = changes.get("T_max")
    if isinstance(T_max, int) and T_max >= 1 and "K" not in changes and base.K != INF:
        changes["K"] = min(base.K, T_max)
    return replace(base, **changes)
