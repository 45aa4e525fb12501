import subprocess
import sys

import pytest


@pytest.mark.slow
def test_worlds_swept_on_a_ray_cluster_give_the_same_bits():
    # A process of its own: Ray forks, which JAX does not like once it runs.
    pytest.importorskip("ray")
    code = """
import pandas as pd
from occupancy import preset
from occupancy.streaming.on_ray import on_ray
from simulate import family, sweep

def one(world):
    recipes = [preset(name, T_max=world.horizon) for name in ("pure-bc", "op-short")]
    return sweep(world, recipes=recipes, budgets=[3000], r=[0.5], seeds=3).frame()

worlds = [family("any").draw(1), family("middle").draw(1)]
far = pd.concat(on_ray(one, worlds))
pd.testing.assert_frame_equal(far, pd.concat(map(one, worlds)), check_exact=True)
print(len(far))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-1:] == ["12"], done.stderr
