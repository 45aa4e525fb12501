import subprocess
import sys

import occupancy

HEAVY = ("numba", "pandas", "pyarrow", "scipy", "numpy", "jax", "rich", "matplotlib")


def loaded_by(code: str) -> list[str]:
    report = f"{code}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_every_public_name_resolves_and_the_list_is_sorted():
    assert occupancy.__all__ == sorted(occupancy.__all__)
    assert all(getattr(occupancy, name) is not None for name in occupancy.__all__)
    assert set(occupancy.__all__) <= set(dir(occupancy))


def test_the_package_loads_nothing_heavy():
    assert loaded_by("import occupancy") == []
    assert loaded_by("from occupancy import preset; preset('op-short')") == []


def test_a_single_draw_needs_no_compiler():
    draw = "from occupancy import SwitchLaw, draw_switch; draw_switch(9, SwitchLaw(), seed=1, trajectory=2)"
    assert loaded_by(draw) == ["numpy"]
