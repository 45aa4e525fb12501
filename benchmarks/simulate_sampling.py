"""Steps a second of the sampler, of numpy and of a Gymnasium-style loop: benchmarks/simulate_sampling.py

One world of 1,000 states, 10 actions and 10 successors each; every contender plays the same policy and keeps
the pooled and the trajectory-uniform histogram. Processor time of one core, the best of several runs; the
first call of the kernel, which compiles or loads it, is shown apart.
"""

from __future__ import annotations

import os
import platform
import time

import numpy as np

from simulate import Garnet, answers, garnet_world, sample
from simulate.exact.sampling import alias_table

WORLD = Garnet(states=1000, actions=10, branches=10, goals=0.01, traps=0.02, starts=200, horizon=50)


def by_numpy(world, policy, episodes, seed, *, alias):
    """Whole arrays: all running episodes take their turn at once; action, then successor, by running sums.

    With `alias` numpy gets the sampler's own tables, which merge both draws.
    """
    rng = np.random.default_rng(seed)
    S, T = world.S, world.horizon
    table, shift = alias_table(world.successors, np.einsum("sa,sau->su", policy, world.chances))
    odds, pair = table[:, :, 0], table[:, :, 1]
    low, half = np.uint64(0xFFFF_FFFF), np.uint64(32)
    policy_sums, chance_sums = np.cumsum(policy, axis=1), np.cumsum(world.chances, axis=2)
    state = np.searchsorted(np.cumsum(world.start), rng.random(episodes), side="right")
    path = np.full((T, episodes), -1, np.int32)
    running, length = np.arange(episodes), np.zeros(episodes, np.int64)
    for t in range(T):
        path[t, running] = state
        length[running] += 1
        if alias:
            bits = rng.integers(0, 2**64, len(running), np.uint64)
            column = (bits >> half) >> np.uint64(shift)
            both = pair[state, column]
            following = np.where((bits & low) < odds[state, column], both & low, both >> half).astype(
                np.int64
            )
        else:
            a = (policy_sums[state, :-1] <= rng.random((len(running), 1))).sum(axis=1)
            u = (chance_sums[state, a, :-1] <= rng.random((len(running), 1))).sum(axis=1)
            following = world.successors[state, u]
        alive = following < S
        running, state = running[alive], following[alive]
        if not len(running):
            break
    visited = path >= 0
    states = path[visited]
    pooled = np.bincount(states, minlength=S)
    uniform = np.bincount(states, np.broadcast_to(1 / length, path.shape)[visited], minlength=S)
    return pooled, uniform / episodes


class Lake:
    """reset and step as Gymnasium's toy environments have them, P[s][a] = [(chance, state, reward, over)]."""

    def __init__(self, world, seed):
        self.horizon, self.rng = world.horizon, np.random.default_rng(seed)
        self.start = world.start
        self.P = [
            [
                [
                    (p, int(s), float(s == world.S), s >= world.S)
                    for p, s in zip(world.chances[state, a], world.successors[state], strict=True)
                    if p > 0
                ]
                for a in range(world.A)
            ]
            for state in range(world.S)
        ]

    def draw(self, law):
        return int(np.argmax(np.cumsum(np.asarray(law)) > self.rng.random()))

    def reset(self):
        self.s, self.t = self.draw(self.start), 0
        return self.s, {}

    def step(self, action):
        self.t += 1
        transitions = self.P[self.s][action]
        p, self.s, reward, over = transitions[self.draw([t[0] for t in transitions])]
        return self.s, reward, over, self.t >= self.horizon, {"prob": p}


def by_loop(world, lake, policy, episodes):
    pooled, uniform = np.zeros(world.S, np.int64), np.zeros(world.S)
    for _ in range(episodes):
        s, _ = lake.reset()
        path, over = [], False
        while not over:
            path.append(s)
            s, _, terminated, truncated, _ = lake.step(lake.rng.choice(world.A, p=policy[s]))
            over = terminated or truncated
        for state in path:
            pooled[state] += 1
            uniform[state] += 1 / len(path)
    return pooled, uniform / episodes


def clock(play, repeats):
    """Best processor seconds, and the steps played."""
    times = []
    for repeat in range(repeats):
        began = time.process_time()
        steps = play(repeat)
        times.append(time.process_time() - began)
    return min(times) / steps, times[0]


def numpy_steps(world, policy, size, i, alias):
    tiles = max(1, 40_000 // size)
    return sum(int(by_numpy(world, policy, size, 99 * i + j, alias=alias)[0].sum()) for j in range(tiles))


def main() -> None:
    world = garnet_world(WORLD)
    policy = world.by_state(world.base)
    exact = answers(world)
    print(
        f"{platform.processor() or platform.machine()}, numpy {np.__version__}, load {os.getloadavg()[0]:.1f}"
    )
    print(f"S={world.S} A={world.A} successors={WORLD.branches} mean T={exact.mean_length:.1f}")
    began = time.perf_counter()
    sample(world, world.base, 1000, seed=0)
    print(f"first call {time.perf_counter() - began:.2f} s wall", flush=True)
    ours, _ = clock(lambda i: sample(world, world.base, 400_000, seed=i).turns, 5)
    contenders = {"numba, keyed alias tables": ours}
    for name, alias in (("numpy, running sums", False), ("numpy, the sampler's alias tables", True)):
        for size in (50_000, 4_000):
            cost, _ = clock(lambda i, n=size, a=alias: numpy_steps(world, policy, n, i, a), 4)
            contenders[f"{name}, {size:,} at once"] = cost
    lake = Lake(world, 0)
    contenders["Gymnasium-style loop"], _ = clock(
        lambda _: int(by_loop(world, lake, policy, 200)[0].sum()), 3
    )
    print("| contender | ns a step | M steps/s | times ours |\n|---|---|---|---|")
    for name, cost in contenders.items():
        print(f"| {name} | {1e9 * cost:,.1f} | {1e-6 / cost:,.2f} | {cost / ours:,.1f} |")
    found = sample(world, world.base, 400_000, seed=7)
    distances = [
        np.abs(a - b).sum() / 2
        for a, b in zip(
            (found.pooled, found.per_trajectory, by_numpy(world, policy, 50_000, 3, alias=False)[1]),
            (exact.pooled, exact.per_trajectory, exact.per_trajectory),
            strict=True,
        )
    ]
    print(
        "total variation from the exact answer: pooled {:.4f}, uniform {:.4f}; numpy's {:.4f}".format(
            *distances
        )
    )


if __name__ == "__main__":
    main()
