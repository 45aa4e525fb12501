"""A sweep of 3,840 pipelines with the log-linear student, on CPU or GPU: python -m benchmarks simulate_sweep

6 K x 5 r x 4 budgets x 32 seeds, each two trainings of 200 gradient steps and an evaluation by dynamic
programming, in a world of 1,000 contexts, 8 actions, 64 features and T_max 30. Prints the time of the first
call, which compiles, and of a second one with other seeds. First students are shared by lanes with the same
demonstrations, so 3,840 + 640 trainings are run. `--lanes` pipelines are a chunk; 0: as `sweep` chooses.
"""

from __future__ import annotations

import platform
import time

import jax

from occupancy import preset
from simulate.pipelines.lanes import with_K
from simulate.pipelines.sweeping import sweep
from simulate.worlds.recovery import Recovery, recovery_world
from simulate.worlds.students import LogLinear

INF = float("inf")
WORLD = Recovery(tracks=50, path=(8, 8), actions=8, first_repairs=404, features=64, horizon=30)


def report(done: int, of: int) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {done}/{of} pipelines", flush=True)


def main(lanes: int = 0, seeds: int = 32) -> None:
    device = jax.devices()[0]
    world = recovery_world(WORLD)
    print(
        f"{device.device_kind}, {platform.processor() or platform.machine()}, jax {jax.__version__}",
        flush=True,
    )
    print(
        f"S={world.S} X={world.X} A={world.A} D={world.features.shape[1]} T_max={world.horizon}", flush=True
    )
    recipes = with_K([preset("op-short", T_max=world.horizon)], (1, 2, 3, 5, 8, INF))
    for name, seed in (("first call, with compile", 0), ("second call", 1)):
        wall, cpu = time.perf_counter(), time.process_time()
        out = sweep(
            world,
            recipes=recipes,
            budgets=(8_000, 16_000, 32_000, 64_000),
            r=(0.0, 0.25, 0.5, 0.75, 1.0),
            seeds=seeds,
            student=LogLinear(),
            seed=seed,
            lanes=lanes,
            progress=report,
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{name}: {len(out.J)} pipelines in {wall:.1f} s wall, {cpu:.1f} s of processor", flush=True)
    best = out.frame().groupby(["budget", "K", "r"])["J"].mean().groupby("budget").idxmax()
    print("best (K, r) by budget:", {b: key[1:] for b, key in best.items()})
