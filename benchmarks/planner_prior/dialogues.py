"""Worlds where an episode is a conversation: questions, forms, long dialogues."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.planner_prior.making import Made, finished, grid, normals


def search(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Questions of several hops in five turns: each hop has its own query; junk in the context misleads.

    State: question q, facts found h, junk j, wording. Action 0 answers.
    """
    Q, H, J, V, A = int(rng.integers(12, 28)), int(rng.integers(2, 4)), 3, 4, 6
    (q, h, j, _), at = grid(Q, H + 1, J, V)
    S = len(q)
    general = rng.integers(1, A, (4, H + 1))[rng.integers(0, 4, Q)]
    own = rng.random((Q, H + 1)) < rng.uniform(0.3, 0.7)
    best = np.where(own, rng.integers(1, A, (Q, H + 1)), general)
    right = np.where(h == H, 0, best[q, h])
    guess, luck, ok = rng.uniform(0.02, 0.15), rng.uniform(0.05, 0.2), rng.uniform(0.9, 0.98)
    trans = {}
    for s in range(S):
        w = rng.integers(0, V, 2)
        for a in range(A):
            if a == 0:
                p = ok if h[s] == H else guess * (1 + h[s])
                trans[s, a] = [(S, p), (S + 1, 1 - p)]
            else:
                hit = 0.92 if a == right[s] else luck * 0.5
                worse = at(q[s], h[s], min(j[s] + 1, J - 1), w[1])
                further = at(q[s], min(h[s] + 1, H), j[s], w[0])
                trans[s, a] = [(further, hit), (worse, 1 - hit)]
    draw = normals(rng)
    latent = (
        0.7 * draw(Q)[q]
        + 1.2 * draw(H + 1)[h]
        + 0.6 * draw(J)[j]
        + draw(Q, H + 1)[q, h]
        + 0.7 * draw(H + 1, J)[h, j]
        + 0.3 * draw(S)
    )
    acc = np.array([rng.uniform(0.85, 0.97), rng.uniform(0.7, 0.92), rng.uniform(0.5, 0.9)])[j]
    teacher = base.taught(right, base.jitter(acc, 0.4, rng), A, rng, noise)
    start = np.where((h == 0) & (j == 0), (1.0 + q) ** -0.5, 0.0)
    tokens = np.rint(rng.uniform(40, 120) * rng.uniform(0.8, 1.2, S) * np.where(h == H, 0.6, 1.0))
    phi = base.project(latent, base.capacity(rng), rng)
    horizon = int(rng.integers(5, 7))
    return finished(
        base, rng, name, "search", start, trans, teacher, np.arange(S), phi, tokens, horizon, right
    )


def form(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Fields in order: a wrong entry raises one of E errors, whose repair is mostly the same everywhere.

    State: form i, field f, error e (0: none), wording.
    """
    N, F, E, V, A = int(rng.integers(8, 18)), int(rng.integers(4, 8)), int(rng.integers(2, 5)), 3, 6
    (i, f, e, _), at = grid(N, F, E + 1, V)
    S = len(i)
    field_ = np.where(
        rng.random((N, F)) < rng.uniform(0.2, 0.6), rng.integers(0, A, (N, F)), rng.integers(0, A, F)[None]
    )
    fix = np.where(
        rng.random((F, E + 1)) < rng.uniform(0.0, 0.5),
        rng.integers(0, A, (F, E + 1)),
        rng.integers(0, A, E + 1)[None],
    )
    right = np.where(e == 0, field_[i, f], fix[f, e])
    kind = 1 + rng.integers(0, E, (F, A))
    fatal, repair, luck = rng.uniform(0.02, 0.2), rng.uniform(0.7, 0.95), rng.uniform(0.0, 0.02)
    trans = {}
    for s in range(S):
        w = rng.integers(0, V, 3)
        for a in range(A):
            if e[s] == 0 and a == right[s]:
                to = S if f[s] == F - 1 else at(i[s], f[s] + 1, 0, w[0])
                moves = [(to, 1 - luck), (S + 1, luck)]
            elif e[s] == 0:
                moves = [(at(i[s], f[s], kind[f[s], a], w[1]), 1 - fatal), (S + 1, fatal)]
            elif a == right[s]:
                moves = [(at(i[s], f[s], 0, w[0]), repair), (at(i[s], f[s], e[s], w[1]), 1 - repair)]
            else:
                other = at(i[s], f[s], 1 + int(rng.integers(E)), w[2])
                moves = [
                    (at(i[s], f[s], e[s], w[1]), 0.5 * (1 - fatal)),
                    (other, 0.5 * (1 - fatal)),
                    (S + 1, fatal),
                ]
            trans[s, a] = moves
    draw = normals(rng)
    latent = (
        0.6 * draw(N)[i]
        + draw(F)[f]
        + 1.3 * draw(E + 1)[e]
        + 0.9 * draw(N, F)[i, f] * (e == 0)[:, None]
        + 0.7 * draw(F, E + 1)[f, e]
        + 0.3 * draw(S)
    )
    acc = np.where(e == 0, rng.uniform(0.88, 0.98), rng.uniform(0.5, 0.95))
    teacher = base.taught(right, base.jitter(acc, 0.4, rng), A, rng, noise)
    start = np.where((f == 0) & (e == 0), (1.0 + i) ** -0.7, 0.0)
    tokens = np.rint(
        rng.uniform(50, 120) * rng.uniform(0.8, 1.2, S) * np.where(e > 0, rng.uniform(0.7, 2.0), 1.0)
    )
    phi = base.project(latent, base.capacity(rng), rng)
    horizon = int(rng.integers(F + 3, 3 * F + 3))
    return finished(base, rng, name, "form", start, trans, teacher, np.arange(S), phi, tokens, horizon, right)


def mess(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """A long dialogue: mistakes leave a mess in the context, from which teacher and student both suffer.

    State: task i, progress p, mess m, wording.
    """
    N, P, M, V, A = int(rng.integers(5, 10)), int(rng.integers(6, 12)), 5, 3, 6
    (i, p, m, _), at = grid(N, P, M, V)
    S = len(i)
    usual = rng.integers(0, A, (N, P))
    right = np.where(
        rng.random((N, P, M))[i, p, m] < rng.uniform(0.1, 0.4), rng.integers(0, A, (P, M))[p, m], usual[i, p]
    )
    spoils, tidy = rng.uniform(0.5, 0.9), rng.uniform(0.0, 0.15)
    ends = np.array([1.0, 0.93, 0.75, 0.45, 0.15])
    trans = {}
    for s in range(S):
        w = rng.integers(0, V, 2)
        for a in range(A):
            if a == right[s]:
                less = max(m[s] - 1, 0)
                steps = [(m[s], 1 - tidy), (less, tidy)]
            else:
                steps = [(min(m[s] + 1, M - 1), spoils), (m[s], 1 - spoils)]
            moves = []
            for mm, pr in steps:
                go = 0.95 if a == right[s] else 0.5
                if p[s] == P - 1:
                    moves += [(S, pr * go * ends[mm]), (S + 1, pr * go * (1 - ends[mm]))]
                else:
                    moves.append((at(i[s], p[s] + 1, mm, w[0]), pr * go))
                moves.append((at(i[s], p[s], mm, w[1]), pr * (1 - go)))
            trans[s, a] = moves
    draw = normals(rng)
    latent = (
        0.5 * draw(N)[i]
        + 0.8 * draw(P)[p]
        + 0.8 * draw(M)[m]
        + 1.0 * draw(N, P)[i, p]
        + 0.6 * draw(P, M)[p, m]
        + 0.3 * draw(S)
    )
    top = rng.uniform(0.93, 0.98)
    acc = np.interp(m, [0, 4], [top, rng.uniform(0.25, 0.75)])
    teacher = base.taught(right, base.jitter(acc, 0.4, rng), A, rng, noise)
    start = np.where((p == 0) & (m == 0), 1.0 + i, 0.0)
    tokens = np.rint(rng.uniform(60, 120) * rng.uniform(0.8, 1.2, S) * (1 + 0.15 * m))
    phi = base.project(latent, base.capacity(rng), rng)
    horizon = int(rng.integers(P + 4, 2 * P + 4))
    return finished(base, rng, name, "mess", start, trans, teacher, np.arange(S), phi, tokens, horizon, right)
