"""Worlds where an episode is work with a check at its end: code, and worlds that draw their own structure."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.planner_prior.making import Made, finished, grid, normals


def code(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Steps of a program: a wrong step is a bug that only a check reveals and only a fix removes.

    State: task i, step p, bug or none, what is known of it, wording v. The context hides the bug.
    """
    N, P, V, A = int(rng.integers(8, 16)), int(rng.integers(4, 8)), 3, 7  # 0-4 write, 5 check, 6 fix
    (i, p, bug, known, v), at = grid(N, P + 1, 2, 3, V)  # known: 0 unchecked, 1 clean, 2 bug seen
    S = len(i)
    write = np.where(
        rng.random((N, P + 1)) < rng.uniform(0.3, 0.8),
        rng.integers(0, 5, (N, P + 1)),
        rng.integers(0, 5, P + 1)[None],
    )
    right = np.where(known == 2, 6, np.where((p == P) & (known == 0), 5, np.where(p == P, 0, write[i, p])))
    heal, crash, reveals = rng.uniform(0.5, 0.9), rng.uniform(0.0, 0.03), rng.uniform(0.7, 1.0)
    trans = {}
    for s in range(S):
        w = rng.integers(0, V, 2)
        for a in range(A):
            if a == 5:
                found = reveals if bug[s] else 0.0
                moves = [
                    (at(i[s], p[s], bug[s], 2, w[0]), found),
                    (at(i[s], p[s], bug[s], 1, w[1]), 1 - found),
                ]
            elif a == 6:
                moves = (
                    [(at(i[s], p[s], 0, 0, w[0]), heal), (at(i[s], p[s], bug[s], 0, w[1]), 1 - heal)]
                    if known[s] == 2
                    else [(s, 1.0)]
                )
            elif p[s] == P:
                moves = [(S + 1 if bug[s] else S, 1.0)] if a == 0 else [(at(i[s], P, 1, 0, w[0]), 1.0)]
            else:
                bad = bug[s] or a != write[i[s], p[s]]
                moves = [(at(i[s], p[s] + 1, int(bad), 2 if known[s] == 2 else 0, w[0]), 1.0)]
            trans[s, a] = [*[(t, q * (1 - crash)) for t, q in moves], (S + 1, crash)]
    see = ((i * (P + 1) + p) * 3 + known) * V + v
    _, first, ctx = np.unique(see, return_index=True, return_inverse=True)
    draw = normals(rng)
    latent = (
        0.6 * draw(N)[i]
        + 0.8 * draw(P + 1)[p]
        + 1.2 * draw(3)[known]
        + 0.9 * draw(N, P + 1)[i, p]
        + 0.9 * draw(P + 1, 3)[p, known]
        + 0.3 * draw(N, P + 1, 3)[i, p, known]
    )
    acc = base.jitter(
        np.array([rng.uniform(0.85, 0.96), rng.uniform(0.9, 0.97), rng.uniform(0.6, 0.95)])[known[first]],
        0.4,
        rng,
    )
    teacher = base.taught(right[first], acc, A, rng, noise)[ctx]
    start = np.where((p == 0) & (bug == 0) & (known == 0), (1.0 + i) ** -0.5, 0.0)
    tokens = np.rint(rng.uniform(60, 160) * rng.uniform(0.8, 1.2, S) * np.where(known == 2, 1.6, 1.0))
    phi = base.project(latent[first], base.capacity(rng), rng)
    horizon = int(rng.integers(P + 6, 3 * P + 6))
    return finished(base, rng, name, "code", start, trans, teacher, ctx, phi, tokens, horizon, right[first])


def varied(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """A family of families: progress p, trouble e, and nearly everything about them drawn for each world.

    Drawn: what a wrong turn does (more trouble, no effect, a step back, lost time, failure), whether
    trouble is repaired or stays, what it costs at the end, what the right turn depends on, where the teacher
    is good, and what students see. State: task i, progress p, trouble e, wording v.
    """
    N, P, E, V, A = (
        int(rng.integers(5, 20)),
        int(rng.integers(2, 11)),
        int(rng.integers(1, 5)),
        int(rng.integers(2, 4)),
        int(rng.integers(4, 8)),
    )
    (i, p, e, v), at = grid(N, P, E + 1, V)
    S = len(i)
    harm = rng.dirichlet([1.2, 0.8, 0.3, 0.5, 0.25])  # trouble, none, back, time, failure
    repaired = rng.random(E + 1) < rng.beta(
        0.6, 0.6
    )  # at this trouble the right turn repairs, else it goes on
    whole, luck, sure = rng.random() < 0.3, rng.uniform(0.0, 0.04), rng.uniform(0.75, 1.0)
    ends = np.clip(1 - np.linspace(0, 1, E + 1) * rng.choice([0.0, rng.uniform(0.3, 1.0)]), 0.02, 1.0)
    parts = rng.dirichlet([0.8, 0.6, 0.6, 0.4])
    tables = (
        rng.integers(0, A, (N, P))[i, p],
        rng.integers(0, A, (P, E + 1))[p, e],
        rng.integers(0, A, (N, P, E + 1))[i, p, e],
        rng.integers(0, A, E + 1)[e],
    )
    which = rng.choice(4, p=parts, size=(N, P, E + 1))[i, p, e]
    right = np.choose(which, tables)
    trans = {}

    def further(s: int, wording: int) -> list[tuple[int, float]]:
        """Where progress from s leads: one step on, or the end and what the trouble costs there."""
        if p[s] == P - 1:
            return [(S, ends[e[s]]), (S + 1, 1 - ends[e[s]])]
        return [(at(i[s], p[s] + 1, e[s], wording), 1.0)]

    for s in range(S):
        w = rng.integers(0, V, 3)
        for a in range(A):
            if a == right[s]:
                good = (
                    [(at(i[s], p[s], 0 if whole else e[s] - 1, w[0]), 1.0)]
                    if e[s] and repaired[e[s]]
                    else further(s, w[0])
                )
                moves = [(to, q * sure) for to, q in good] + [(at(i[s], p[s], e[s], w[1]), 1 - sure)]
            else:
                moves = [
                    (at(i[s], p[s], min(e[s] + 1, E), w[0]), harm[0]),
                    *((to, q * harm[1]) for to, q in further(s, w[1])),
                    (at(i[s], max(p[s] - 1, 0), e[s], w[2]), harm[2]),
                    (at(i[s], p[s], e[s], w[2]), harm[3]),
                    (S + 1, harm[4]),
                ]
            trans[s, a] = [*[(to, q * (1 - luck)) for to, q in moves], (S + 1, luck)]
    hidden = rng.random()
    seen = e if hidden > 0.25 else np.minimum(e, 1) if hidden > 0.12 else np.where(p % 2, e, 0)
    code_ = ((i * P + p) * (E + 1) + seen) * V + v
    _, first, ctx = np.unique(code_, return_index=True, return_inverse=True)
    draw = normals(rng)
    weights = rng.uniform(0.2, 1.3, 7)
    latent = sum(
        c * part
        for c, part in zip(
            weights,
            (
                draw(N)[i],
                draw(P)[p],
                draw(E + 1)[seen],
                draw(N, P)[i, p],
                draw(P, E + 1)[p, seen],
                draw(N, P, E + 1)[i, p, seen],
                0.4 * draw(S),
            ),
            strict=True,
        )
    )

    top, deep, late = rng.uniform(0.88, 0.98), rng.uniform(0.2, 0.97), rng.uniform(-0.1, 0.1)
    acc = np.clip(
        np.interp(seen / max(E, 1), [0, 1], [top, min(deep, top + 0.01)]) + late * p / P, 0.1, 0.99
    )[first]
    teacher = base.taught(right[first], base.jitter(acc, 0.4, rng), A, rng, noise)[ctx]
    start = np.where((p == 0) & (e == 0), (1.0 + i) ** -rng.uniform(0.0, 1.0), 0.0)
    tokens = np.rint(
        rng.uniform(50, 130) * rng.uniform(0.8, 1.2, S) * (1 + e / max(E, 1) * rng.uniform(-0.4, 1.0))
    )
    phi = base.project(latent[first], base.capacity(rng), rng)
    horizon = int(np.clip(P * rng.uniform(1.3, 4.5) + 2, 4, 45))
    tabular = rng.random() < 0.35  # a student that only knows (i, p, e) as names, or half so
    if tabular:
        groups = np.unique((code_ // V)[first], return_inverse=True)[1]
        share = rng.choice([1.0, 0.7])
        if groups.max() < 450:
            phi = np.column_stack(
                [
                    share * np.eye(groups.max() + 1)[groups],
                    np.sqrt(1 - share**2) * phi if share < 1 else np.full(len(first), 0.3),
                ]
            )
    made = finished(base, rng, name, "varied", start, trans, teacher, ctx, phi, tokens, horizon, right[first])
    if tabular:
        made[0].rate = float(rng.uniform(4, 15))
    return made
