from loading import loaded_by

import simulate


def test_every_public_name_resolves_and_the_list_is_sorted():
    assert simulate.__all__ == sorted(simulate.__all__)
    assert all(getattr(simulate, name) is not None for name in simulate.__all__)


def test_the_package_loads_nothing_heavy():
    assert loaded_by("import simulate") == []
    assert loaded_by("import simulate.commands") == []


def test_truth_needs_no_jax():
    code = "from simulate import truth, family, play_pilot; family('any').draw(0)"
    assert "jax" not in loaded_by(code)
