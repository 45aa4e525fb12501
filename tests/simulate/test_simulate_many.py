import subprocess
import sys

import pytest

from occupancy.record.errors import InputError
from simulate import family, sweep_worlds

WORLDS = [family("any").draw(1), family("middle").draw(1)]
RECIPES = [("pure-bc", {}), ("op-short", {"K": 2})]
SETTINGS = {"budgets": [3000], "r": [0.5], "seeds": 3}


def test_worlds_follow_each_other_with_their_own_horizon():
    frame = sweep_worlds(WORLDS, recipes=RECIPES, **SETTINGS)
    assert list(frame["world"]) == ["any-1"] * 6 + ["middle-1"] * 6
    with pytest.raises(InputError, match="engine='dask'"):
        sweep_worlds(WORLDS, recipes=RECIPES, engine="dask", **SETTINGS)
    with pytest.raises(InputError, match="no world is given"):
        sweep_worlds([], recipes=RECIPES, **SETTINGS)


@pytest.mark.slow
def test_a_ray_cluster_gets_the_same_bits():
    # A process of its own: Ray forks, which JAX does not like once it runs.
    pytest.importorskip("ray")
    code = f"""
import pandas as pd
from simulate import family, sweep_worlds
worlds = [family("any").draw(1), family("middle").draw(1)]
settings = dict(recipes={RECIPES!r}, **{SETTINGS!r})
far = sweep_worlds(worlds, engine="ray", **settings)
pd.testing.assert_frame_equal(far, sweep_worlds(worlds, **settings), check_exact=True)
print(len(far))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["12"], done.stderr
