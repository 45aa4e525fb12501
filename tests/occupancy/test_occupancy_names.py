from loading import loaded_by

import occupancy


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
