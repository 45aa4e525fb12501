"""Rows to packs: several rows in one sequence, none of which sees another.

Letters: n rows, N ids of all rows, D documents in a pack, P ids of a pack, M targets.

An optimizer step takes `batch` rows. Its loss is the sum over its targets divided by their number, so
that neither the packing, nor accumulation, nor the number of GPUs changes it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from occupancy.record.errors import DataError

if TYPE_CHECKING:
    from agentloop.render import TrainingRow

I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
PAD = 128
EVEN = 16_384
"""Ids of a row whose attention costs about as much as its products with weights, at some billion weights."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows, end to end."""

    ids: I32
    """[N]"""
    targets: NDArray[np.bool_]
    """[N]"""
    depth: NDArray[np.int16]
    """[N] j of the teacher turn of a target; 0 elsewhere."""
    classes: I32
    """[N] class of the context of a target's turn, an index into `class_names`; 0 elsewhere."""
    offsets: I64
    """[n + 1] row i is offsets[i]:offsets[i + 1]."""
    class_names: tuple[str, ...]
    clusters: tuple[str, ...]
    """[n] what is held out together: the task."""
    episodes: tuple[str, ...] = ()
    """[n] trace of each row; may be empty."""

    def __post_init__(self) -> None:
        n = len(self.offsets) - 1
        sizes = [len(x) for x in (self.ids, self.targets, self.depth, self.classes)]
        named = len(self.clusters) == n and len(self.episodes) in (0, n)
        if set(sizes) != {int(self.offsets[-1])} or not named:
            raise DataError(
                f"{n} rows have {sizes} ids, targets, depths and classes, offsets up to "
                f"{int(self.offsets[-1])}, {len(self.clusters)} clusters and {len(self.episodes)} episodes: "
                f"expected equal numbers"
            )
        counts = self.target_counts
        if n and (counts == 0).any():
            raise DataError(f"row {int(np.argmin(counts))} has no target: drop it before training")
        if n and self.targets[self.offsets[:-1]].any():
            raise DataError("a row's first id is a target: it has no context to be predicted from")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> I64:
        """[n] ids of each row."""
        return np.diff(self.offsets)

    @property
    def target_counts(self) -> I64:
        """[n] targets of each row."""
        sums = np.concatenate([[0], np.cumsum(self.targets, dtype=np.int64)])
        return sums[self.offsets[1:]] - sums[self.offsets[:-1]]

    def take(self, index: Sequence[int] | I64) -> TrainingRows:
        """Some of the rows, in the order given."""
        parts = [slice(int(self.offsets[i]), int(self.offsets[i + 1])) for i in index]
        lengths = [p.stop - p.start for p in parts]

        def gather(values: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([values[p] for p in parts]) if parts else values[:0]

        return TrainingRows(
            ids=gather(self.ids),
            targets=gather(self.targets),
            depth=gather(self.depth),
            classes=gather(self.classes),
            offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
            class_names=self.class_names,
            clusters=tuple(self.clusters[i] for i in index),
            episodes=tuple(self.episodes[i] for i in index) if self.episodes else (),
        )


@dataclass(frozen=True, eq=False)
class Pack:
    """One packed sequence."""

    ids: I64
    """[P]"""
    positions: I64
    """[P] from 0 in every document."""
    bounds: I32
    """[D + 1] document d is bounds[d]:bounds[d + 1]; a padded pack's filler is its last document."""
    source: I64
    """[M] place of the id before each target: the hidden state that predicts it."""
    labels: I64
    """[M]"""
    depth: NDArray[np.int16]
    """[M]"""
    rows: I32
    """[M] row that each target is of, as it was given to be packed."""


@dataclass(frozen=True, eq=False)
class Batch:
    """One optimizer step."""

    packs: tuple[Pack, ...]
    """Those of every GPU; a multiple of their number."""
    targets: int
    """Targets of the whole step: what the loss is divided by."""
    ids: int
    """Ids of the whole step, without filler."""

    def of_rank(self, rank: int, world: int) -> tuple[Pack, ...]:
        """The packs of one GPU; every GPU has equally many."""
        return self.packs[rank::world]


def rows_of(
    rows: Sequence[TrainingRow],
    *,
    classes: Sequence[Sequence[str]],
    clusters: Sequence[str],
    episodes: Sequence[str] = (),
) -> TrainingRows:
    """Rendered rows end to end.

    Args:
        rows: n rendered rows.
        classes: [n][turns] class of the context of row i's teacher turn j at classes[i][j - 1].
        clusters: [n] what is held out together.
        episodes: [n] the trace of each row, or empty.
    """
    names = tuple(sorted({name for row in classes for name in row}))
    number = {name: c for c, name in enumerate(names)}
    parts = [
        np.asarray([0, *(number[name] for name in own)], np.int32)[row.depth]
        for row, own in zip(rows, classes, strict=True)
    ]
    lengths = [len(row.ids) for row in rows]
    return TrainingRows(
        ids=np.concatenate([np.empty(0, np.int32), *(row.ids for row in rows)]),
        targets=np.concatenate([np.empty(0, np.bool_), *(row.targets for row in rows)]),
        depth=np.concatenate([np.empty(0, np.int16), *(row.depth for row in rows)]),
        classes=np.concatenate([np.empty(0, np.int32), *parts]),
        offsets=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        class_names=names,
        clusters=tuple(clusters),
        episodes=tuple(episodes),
    )


def first_fit_decreasing(lengths: Sequence[int] | I64, capacity: int) -> list[list[int]]:
    """Bins of indices, each with lengths of at most `capacity` in sum: the longest first, each into the
    first bin with room. At most 11/9 of the fewest bins, plus one (Johnson 1973). O(n log n).
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    if len(lengths) and int(lengths.max()) > capacity:
        raise DataError(
            f"a row has {int(lengths.max())} ids, but a pack takes {capacity}: set a length rule, or raise "
            f"pack_tokens"
        )
    order = np.argsort(-lengths, kind="stable").tolist()
    leaves = 1 << max(len(order) - 1, 0).bit_length()
    # A tournament of the room left in each bin; every bin starts empty, opened when first used.
    room = [capacity] * (2 * leaves)
    bins: list[list[int]] = []
    for i in order:
        size = int(lengths[i])
        node = 1
        while node < leaves:
            node = 2 * node if room[2 * node] >= size else 2 * node + 1
        if node - leaves == len(bins):
            bins.append([])
        bins[node - leaves].append(i)
        room[node] -= size
        while node > 1:
            node //= 2
            room[node] = max(room[2 * node], room[2 * node + 1])
    return bins


def make_pack(rows: TrainingRows, index: Sequence[int], *, pad_to: int = 0) -> Pack:
    """Rows one after the other; padded with a document of zeros, which holds no targets, up to `pad_to`."""
    parts = rows.take(index)
    filler = max(pad_to - len(parts.ids), 0)
    lengths = [*parts.lengths.tolist(), *([filler] if filler else [])]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    place = np.flatnonzero(parts.targets)
    return Pack(
        ids=np.concatenate([parts.ids, np.zeros(filler, np.int32)]).astype(np.int64),
        positions=np.concatenate([np.arange(n, dtype=np.int64) for n in lengths]),
        bounds=bounds,
        source=place - 1,
        labels=parts.ids[place].astype(np.int64),
        depth=parts.depth[place],
        rows=np.repeat(np.asarray(index, np.int32), parts.target_counts),
    )


def even_bins(lengths: Sequence[int] | I64, capacity: int, *, world: int = 1) -> list[list[int]]:
    """As many bins as first-fit-decreasing needs, up to a multiple of `world` if rows allow, evenly full.

    The row with most work goes to the bin with least (Graham 1969), so that no GPU waits for another and
    little is padded. Where bins are so full that a row fits into none, they are filled first-fit.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    bins = first_fit_decreasing(lengths, capacity)
    wanted = min(-(-len(bins) // world) * world, len(lengths))
    even: list[list[int]] = [[] for _ in range(wanted)]
    heap = [(0, 0, b) for b in range(wanted)]
    for i in np.argsort(-lengths, kind="stable").tolist():
        work, full, b = heap[0]
        size = int(lengths[i])
        if full + size > capacity:
            return bins
        even[b].append(i)
        heapq.heapreplace(heap, (work + _work(size), full + size, b))
    return even


def dealt(bins: Sequence[list[int]], lengths: Sequence[int] | I64, *, world: int) -> list[list[int]]:
    """The bins, empty ones added up to a multiple of `world`, in an order in which every GPU that takes each
    `world`-th of them has about the same work.
    """
    padded = [*bins, *([[]] * (-len(bins) % world))]
    work = [sum(_work(int(lengths[i])) for i in b) for b in padded]
    order = sorted(range(len(padded)), key=lambda b: -work[b])
    load, out = [0] * world, list[list[int]]()
    for start in range(0, len(order), world):
        least_first = sorted(range(world), key=load.__getitem__)
        own = dict(zip(least_first, order[start : start + world], strict=True))
        for rank in range(world):
            load[rank] += work[own[rank]]
            out.append(padded[own[rank]])
    return out


def _work(ids: int) -> int:
    return ids * (ids + EVEN)


def make_batch(
    rows: TrainingRows, index: Sequence[int], *, capacity: int, world: int = 1, pad: bool = False
) -> Batch:
    """The packs of one optimizer step, with the number of its targets and ids.

    Args:
        rows: all rows.
        index: rows of this step.
        capacity: most ids of a pack.
        world: GPUs; every one gets equally many packs.
        pad: round packs up to a multiple of `PAD` ids.

    Raises:
        DataError: no target, or a row longer than a pack.
    """
    lengths = rows.lengths[np.asarray(index, dtype=np.int64)]
    packs = []
    for b in dealt(even_bins(lengths, capacity, world=world), lengths, world=world):
        # A GPU that has nothing to do while the others work gets one id, or a whole PAD of them.
        full = max(int(lengths[b].sum()), 1)
        packs.append(make_pack(rows, [index[k] for k in b], pad_to=-(-full // PAD) * PAD if pad else full))
    targets = sum(len(p.labels) for p in packs)
    if not targets:
        raise DataError("a batch has no target: the loss would be divided by zero")
    return Batch(tuple(packs), targets, int(lengths.sum()))


def batches(
    rows: TrainingRows, *, batch: int, capacity: int, seed: int, epoch: int, world: int = 1, pad: bool = False
) -> Iterator[Batch]:
    """The batches of one epoch, in an order that (seed, epoch) determines; the last may have fewer rows.

    Args:
        rows: what is trained on.
        batch: rows of one optimizer step, over all GPUs.
        capacity: most ids of a pack.
        seed: of the training.
        epoch: from 0.
        world: GPUs.
        pad: round packs up to a multiple of `PAD` ids.
    """
    order = np.random.default_rng([seed, epoch]).permutation(len(rows)).tolist()
    for start in range(0, len(order), batch):
        yield make_batch(rows, order[start : start + batch], capacity=capacity, world=world, pad=pad)
