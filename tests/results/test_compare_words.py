"""What `compare` says in words."""

from __future__ import annotations

from analysis.compare import compare
from analysis.compare.telling import sentences, shown


def test_of_many_pairs_the_best_arm_is_told_first_and_with_a_baseline_each_difference() -> None:
    low, high = ({f"q{i}": [int(i % 9 < most)] * 2 for i in range(45)} for most in (1, 8))
    arms = {"low": low, "same": low, "high": high, "as-high": high}
    best, *others = sentences(compare(arms, k=(1, 2)), {"high": "H", "low": "L"})
    assert best.startswith("H has the highest success rate: 0.889 (95 % interval ")
    assert others[0] == "It succeeds more often than L, same."
    assert others[1].startswith("No difference found between it and as-high. A difference below ")
    assert others[2:] == ["Of all 6 pairs, 4 were found to differ."]
    against = list(sentences(compare(arms, baseline="same")))
    assert [line.partition(" ")[2][:8] for line in against] == ["succeeds", "succeeds", "differen"]
    assert len(list(sentences(compare({"low": low, "high": high, "same": low})))) == 3
    one = {name: {"q": own["q0"]} for name, own in arms.items()}
    assert list(sentences(compare(one)))[1:] == [
        "No difference found between it and same, high, as-high.",
        "Of all 6 pairs, 0 were found to differ.",
    ]


def test_a_long_name_is_told_once() -> None:
    names = [f"{name} {'x' * 40}" for name in ("first", "second")]
    low, high = ({f"q{i}": [int(i < most)] for i in range(9)} for most in (1, 8))
    found = compare({names[0]: low, names[1]: high})
    lines = [line for line in shown(found) if isinstance(line, str)]
    assert lines[:4] == [
        next(sentences(found, dict(zip(names, "AB", strict=True)))),
        "",
        *(f"{letter}: {name}" for letter, name in zip("AB", names, strict=True)),
    ]
    assert not any(name in line for line in lines[4:] for name in names)
