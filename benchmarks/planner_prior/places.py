"""Worlds where an episode is a path: a house to search, contexts with repairs, random layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.planner_prior.making import Made, finished, grid, normals


def house(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Search places one after another for an object whose place is hidden, take it, carry it, put it down.

    State: kind of object g, its place o (hidden), the student's place c, opened, in hand.
    """
    G, L, A = int(rng.integers(5, 10)), int(rng.integers(5, 9)), 6
    # Turns: 0 next, 1 back, 2 open, 3 take, 4 carry, 5 put.
    (g, o, c, opened, hold), at = grid(G, L, L, 2, 3)  # hold: 0 no, 1 in hand, 2 in hand at the target
    S = len(g)
    shut = rng.random(L) < 0.6
    slip, clumsy = rng.uniform(0.0, 0.08), rng.uniform(0.02, 0.15)
    order = np.where(rng.random(G) < 0.5, 0, 1)  # the direction in which a kind of object is looked for
    visible = (c == o) & ((opened == 1) | ~shut[c])
    right = np.where(
        hold == 2,
        5,
        np.where(hold == 1, 4, np.where(visible, 3, np.where(shut[c] & (opened == 0), 2, order[g]))),
    )
    trans = {}
    for s in range(S):
        stay = s
        for a in range(A):
            if a < 2:
                to = at(g[s], o[s], (c[s] + (1 if a == 0 else -1)) % L, 0, 1 if hold[s] else 0)
            elif a == 2:
                to = at(g[s], o[s], c[s], 1, hold[s])
            elif a == 3:
                to = at(g[s], o[s], c[s], opened[s], 1) if visible[s] and not hold[s] else stay
            elif a == 4:
                to = at(g[s], o[s], c[s], opened[s], 2) if hold[s] else stay
            else:
                to = S if hold[s] == 2 else (at(g[s], o[s], c[s], opened[s], 0) if hold[s] else stay)
            harm = clumsy if a != right[s] and a >= 3 else 0.002
            trans[s, a] = [(to, (1 - slip) * (1 - harm)), (stay, slip * (1 - harm)), (S + 1, harm)]
    code = ((g * L + c) * 2 + opened) * 6 + hold * 2 + visible
    _, first, ctx = np.unique(code, return_index=True, return_inverse=True)
    draw = normals(rng)
    latent = (
        0.7 * draw(G)[g]
        + 0.7 * draw(L)[c]
        + 0.8 * draw(2)[opened]
        + 1.2 * draw(6)[hold * 2 + visible]
        + 0.8 * draw(G, 6)[g, hold * 2 + visible]
    )
    latent += 0.7 * draw(L, 2)[c, opened] + 0.3 * draw(S)
    acc = base.jitter(
        np.array([rng.uniform(0.75, 0.93), rng.uniform(0.85, 0.97), rng.uniform(0.85, 0.97)])[hold[first]],
        0.4,
        rng,
    )
    teacher = base.taught(right[first], acc, A, rng, noise)[ctx]
    likely = np.stack([rng.permutation(np.arange(1, L + 1) ** -1.0) for _ in range(G)])
    start = np.where((hold == 0) & (opened == 0) & (c == 0), likely[g, o], 0.0)
    tokens = np.rint(rng.uniform(20, 60) * rng.uniform(0.8, 1.2, S))
    phi = base.project(latent[first], base.capacity(rng), rng)
    horizon = int(rng.integers(30, 51))
    return finished(base, rng, name, "house", start, trans, teacher, ctx, phi, tokens, horizon, right[first])


def recovery(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Paths through a table of contexts: a wrong turn leads to an error, `deep` repairs lead back.

    State: path i, step p, wrong turn b (0: none), repairs to do k.
    """
    N, P, A, deep = int(rng.integers(25, 50)), int(rng.integers(4, 8)), 5, int(rng.integers(2, 4))
    X1, X2 = int(rng.integers(50, 130)), int(rng.integers(40, 140))

    def zipf(n: int, size: tuple[int, int], a: float) -> np.ndarray:
        w = np.arange(1, n + 1) ** -a
        return rng.choice(n, size=size, p=w / w.sum())

    path = zipf(X1, (N, P), 0.6)
    err = zipf(X2, (X1, A), 0.8)
    (i, p, b, k), at = grid(
        N, P, A + 1, deep
    )  # b: 0 on the path, else the wrong turn + 1; k: repairs still to do - 1
    S = len(i)
    late = rng.random() < 0.5  # the last repairs are shared by all errors
    where = err[path[i, p], np.maximum(b - 1, 0)]
    repair = np.where((k == 0) & late, where % 7, where)
    ctx_code = np.where(b == 0, path[i, p], X1 + repair * deep + k)
    _, ctx = np.unique(ctx_code, return_inverse=True)
    X = ctx.max() + 1
    rightx = rng.integers(0, A, X)
    right = rightx[ctx]
    fatal = rng.uniform(0.03, 0.2)
    trans = {}
    for s in range(S):
        for a in range(A):
            if b[s] == 0:
                good = S if p[s] == P - 1 else at(i[s], p[s] + 1, 0, 0)
                trans[s, a] = (
                    [(good, 0.99), (S + 1, 0.01)]
                    if a == right[s]
                    else [(at(i[s], p[s], a + 1, deep - 1), 1 - fatal), (S + 1, fatal)]
                )
            elif a == right[s]:
                trans[s, a] = [(at(i[s], p[s], 0, 0) if k[s] == 0 else at(i[s], p[s], b[s], k[s] - 1), 1.0)]
            else:
                trans[s, a] = [(at(i[s], p[s], b[s], deep - 1), 1 - fatal), (S + 1, fatal)]
    onpath = np.zeros(X, bool)
    onpath[ctx[b == 0]] = True
    acc = base.jitter(np.where(onpath, rng.uniform(0.9, 0.98), rng.uniform(0.6, 0.95)), 0.4, rng)
    teacher = base.taught(rightx, acc, A, rng, noise)[ctx]
    start = np.where((p == 0) & (b == 0) & (k == 0), (1.0 + i) ** -0.5, 0.0)
    tokens = np.rint(rng.uniform(60, 120) * rng.uniform(0.8, 1.2, S))
    phi = np.column_stack([np.eye(X), np.where(onpath, 0.3, 0.0), np.full(X, 0.3)])
    horizon = int(rng.integers(P + 8, 4 * P + 8))
    made = finished(base, rng, name, "recovery", start, trans, teacher, ctx, phi, tokens, horizon, rightx)
    made[0].rate = float(rng.uniform(6, 20))
    return made


def garnet(base: Any, rng: np.random.Generator, name: str, noise: float) -> Made:
    """Random layers with ups and downs: pairs of states share a context; features are partly a table."""
    n, levels, A, B = int(rng.integers(20, 50)), int(rng.integers(5, 10)), 5, 3
    (lv, _), _ = grid(levels, n)
    S = len(lv)
    trans = {}
    drift = rng.uniform(0.35, 0.5)
    for s in range(S):
        up = rng.dirichlet(np.full(A, 0.6)) * A * drift
        die = rng.uniform(0.0, 0.06, A)
        for a in range(A):
            rise = float(np.clip(up[a], 0.03, 0.95))
            moves = []
            for pr, step in ((rise, 1), (0.6 * (1 - rise), 0), (0.4 * (1 - rise), -1)):
                to = max(lv[s] + step, 0)
                for z in rng.integers(0, n, B - 1):
                    moves.append((S if to == levels else int(to * n + z), pr / (B - 1) * (1 - die[a])))
            trans[s, a] = [*moves, (S + 1, die[a])]
    succ, prob = base.pack(trans, S, A)
    val = np.zeros(S + 2)
    val[S] = 1.0
    for _ in range(60):
        q = 0.98 * (prob * val[succ]).sum(2)
        val[:S] = q.max(1)
    order = rng.permutation(S)
    ctx = np.arange(S)
    for x, y in zip(order[: S // 3 : 2], order[1 : S // 3 : 2], strict=False):
        ctx[y] = ctx[x]
    _, ctx = np.unique(ctx, return_inverse=True)
    X = ctx.max() + 1
    qx = np.zeros((X, A))
    np.add.at(qx, ctx, q)
    qx /= np.bincount(ctx)[:, None]
    right = qx.argmax(1)
    gap = (qx - qx.max(1, keepdims=True)) / np.maximum(qx.max(1, keepdims=True), 0.02)
    teacher = base.softmax(rng.uniform(15, 60) * (gap + (1 - noise) * 0.06 * rng.standard_normal((X, A))))[
        ctx
    ]
    teacher = 0.97 * teacher + 0.03 / A
    start = np.where(lv == 0, 1.0, 0.0)
    tokens = np.rint(rng.uniform(40, 120) * rng.uniform(0.7, 1.4, S))
    table = np.zeros((X, 40))
    table[np.arange(X), rng.integers(0, 40, X)] = 0.6
    latent = rng.standard_normal((X, 60)) + rng.standard_normal((A, 60))[right] * rng.uniform(0.3, 1.0)
    phi = np.column_stack([table, 0.8 * base.project(latent, base.capacity(rng), rng)])
    horizon = int(rng.integers(2 * levels, 5 * levels))
    return finished(base, rng, name, "garnet", start, trans, teacher, ctx, phi, tokens, horizon, right)
