"""Whether this tree is slower than the parent commit: our own kernels, timed in turns in both.

    python -m benchmarks gate [--parent HEAD~1] [--turns 3e6] [--rounds 7] [--limit 1.25]

The parent is checked out into a temporary worktree. Each round times both, in processes of their own, one
after the other; a ratio of medians above the limit fails. Ratios under 1.15 are ties on a shared machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
WORK = """
import json, sys, time
from benchmarks.ragged import batch
from occupancy import SwitchLaw, bootstrap, cluster_sums, draw_switches, occupancy, tally
b = batch(int(sys.argv[1]), weights=True, features=True)
sums = cluster_sums(b, convention="trajectory", workers=1)
work = {
    "tally": lambda: tally(b, workers=1),
    "occupancy, pooled": lambda: occupancy(b, convention="pooled", workers=1),
    "occupancy, trajectory": lambda: occupancy(b, convention="trajectory", workers=1),
    "occupancy, weights": lambda: occupancy(b, convention="weights", workers=1),
    "cluster sums": lambda: cluster_sums(b, convention="trajectory", workers=1),
    "bootstrap": lambda: bootstrap(sums, seed=1, replicates=128, workers=1),
    "draw, uniform": lambda: draw_switches(b, SwitchLaw("uniform"), seed=1),
    "draw, weights": lambda: draw_switches(b, SwitchLaw("weights"), seed=1),
}
best = {}
for name, call in work.items():
    times = []
    for _ in range(4):
        begin = time.process_time_ns()
        call()
        times.append(time.process_time_ns() - begin)
    best[name] = min(times[1:]) / b.n_turns
print(json.dumps(best))
"""


def once(tree: Path, turns: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-c", WORK, str(turns)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tree, env=environment, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main(parent: str = "HEAD~1", turns: float = 3e6, rounds: int = 7, limit: float = 1.25) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "parent"
        add = ["git", "worktree", "add", "--quiet", "--detach", str(tree), parent]
        subprocess.run(add, cwd=ROOT, check=True)
        try:
            found = [(once(ROOT, int(turns)), once(tree, int(turns))) for _ in range(rounds)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    slower = []
    print(f"{'':<24}{'here ns':>10}{'parent ns':>11}{'ratio':>8}")
    for name in found[0][0]:
        if name not in found[0][1]:
            continue
        here, there = (median(r[side][name] for r in found) for side in (0, 1))
        print(f"{name:<24}{here:>10.3f}{there:>11.3f}{here / there:>8.2f}")
        if here / there > limit:
            slower.append(name)
    if slower:
        raise SystemExit(f"slower than {parent} by more than {limit}: {', '.join(slower)}")
