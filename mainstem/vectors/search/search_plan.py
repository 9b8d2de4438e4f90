"""Matches a snapshot with a version of the index: which of its rows stand, and which rows are fresh."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.limits import VECTOR_DELTA_BYTES_MAX
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.split import Split
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.vectors.index.snapshots import Snapshot
from mainstem.vectors.search.delta import Delta, DoubleKeys, Kind, NotByIndex, delta_of, kind_of, names_of
from mainstem.vectors.search.hits import Texts, one_chunk
from mainstem.vectors.search.opened_version import Opened, contained, mark


@dataclass(frozen=True)
class Refusal:
    """Why no index can answer for a slice with these log files; the reason stays, as files never change."""

    logs: frozenset[str]
    why: str
    size: int = 1024


class Deltas:
    """Deltas of earlier searches, by version and slice; above a bound of bytes, the least recently used are
    dropped.

    Not safe for several threads.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[tuple, Delta | Refusal] = OrderedDict()
        self._bytes = 0

    def find(self, key: tuple, logs: frozenset[str]) -> tuple[Delta | Refusal | None, bool]:
        """What is known of a slice with a subset of these log files, and whether it is for all of them."""
        found = self._known.get(key)
        if found is None or not found.logs <= logs:
            return None, False
        self._known.move_to_end(key)
        return found, found.logs == logs

    def keep(self, key: tuple, delta: Delta | Refusal) -> None:
        """Remember a delta; only the last one is kept for the same slice, base file and moment."""
        old = self._known.pop(key, None)
        self._bytes -= 0 if old is None else old.size
        self._known[key] = delta
        self._bytes += delta.size
        while self._bytes > VECTOR_DELTA_BYTES_MAX and len(self._known) > 1:
            _, dropped = self._known.popitem(last=False)
            self._bytes -= dropped.size


@dataclass(frozen=True)
class Plan:
    """``masked``: for each cluster one boolean per label, None if all its rows stand. Fresh rows: ``keys``,
    ``vectors`` (n, d), ``numbers`` (n,), which are the slices that hold them, ascending. ``places``: for each
    slice of the version its number in the snapshot, -1 if it is gone."""

    snapshot: Snapshot
    opened: Opened
    masked: tuple[np.ndarray | None, ...]
    keys: pa.ChunkedArray
    vectors: np.ndarray
    numbers: np.ndarray
    places: np.ndarray
    kinds: dict[str, int]
    cached: int

    @cached_property
    def used(self) -> list[int]:
        """Numbers of the clusters that have any rows."""
        return [at for at, cluster in enumerate(self.opened.clusters) if len(cluster.slices)]

    @cached_property
    def allowed(self) -> list[np.ndarray | None]:
        """For each cluster one boolean per label, True if the row stands; None if all do."""
        return [None if mask is None else ~mask for mask in self.masked]

    @cached_property
    def standing(self) -> list[int]:
        """For each cluster the number of rows that stand."""
        return [
            len(cluster.slices) if mask is None else int(np.count_nonzero(mask))
            for cluster, mask in zip(self.opened.clusters, self.allowed, strict=True)
        ]

    @cached_property
    def key_texts(self) -> list[Texts | None]:
        """For each cluster the memory of its keys; None if they are not in one piece."""
        keys = [cluster.keys for cluster in self.opened.clusters]
        return [Texts.of(column.chunk(0)) if column.num_chunks == 1 else None for column in keys]

    @cached_property
    def masked_rows(self) -> int:
        """Number of the version's rows that do not stand."""
        return sum(int(np.count_nonzero(mask)) for mask in self.masked if mask is not None)


def plan(storage: Storage, snapshot: Snapshot, column: str, opened: Opened, deltas: Deltas) -> Plan:
    """Combine the deltas of all slices. ``FileNotFoundError`` if a clean has removed a file meanwhile,
    ``NotByIndex`` if a slice has no delta; that is remembered, so the next search finds it without
    reading."""
    kinds: Counter[Kind] = Counter(dict.fromkeys(Kind, 0))
    found: dict[int, Delta | Refusal] = {}
    missing: list[tuple[int, tuple, Delta | None]] = []
    for number, split in enumerate(snapshot.splits):
        kind = kind_of(split, opened.covered(split.partition, split.file_id))
        kinds[kind] += 1
        if kind is Kind.SAME:
            continue
        key = (opened.version.token, split.partition, split.file_id, split.base_file, snapshot.view.until)
        logs = names_of(split.log_files)
        before, whole = deltas.find(key, logs)
        if before is not None and whole:
            found[number] = before
        else:
            missing.append((number, key, before if isinstance(before, Delta) else None))
    cached = len(found)
    _check_all(found)

    def made(item: tuple[int, tuple, Delta | None]) -> Delta | Refusal:
        split = snapshot.splits[item[0]]
        try:
            return delta_of(storage, split, column, opened, item[2])
        except NotByIndex as error:
            return Refusal(names_of(split.log_files), error.message)

    for (number, key, _), delta in zip(missing, side_by_side(storage, made, missing), strict=True):
        deltas.keep(key, delta)
        found[number] = delta
    known = _check_all(found)
    return _together(snapshot, opened, known, {k.value: n for k, n in kinds.items()}, cached)


def _check_all(found: dict[int, Delta | Refusal]) -> dict[int, Delta]:
    """The deltas; raises the reason if a slice was refused."""
    for delta in found.values():
        if isinstance(delta, Refusal):
            raise NotByIndex(delta.why)
    return {number: delta for number, delta in found.items() if isinstance(delta, Delta)}


def _together(
    snapshot: Snapshot, opened: Opened, found: dict[int, Delta], kinds: dict[str, int], cached: int
) -> Plan:
    masks = opened.masks()
    here = {(split.partition, split.file_id): at for at, split in enumerate(snapshot.splits)}
    for partition, file_id in opened.places:
        if (partition, file_id) not in here:
            pieces = opened.pieces(partition, file_id)
            mark(masks, pieces, np.ones(sum(high - low for _, low, high in pieces), bool))
    for delta in found.values():
        mark(masks, delta.pieces, delta.masked)
    fresh = [(number, found[number]) for number in sorted(found) if len(found[number].keys)]
    return Plan(
        snapshot,
        opened,
        tuple(mask if mask.any() else None for mask in masks),
        one_chunk(pa.chunked_array([delta.keys for _, delta in fresh], pa.string())),
        _stacked([delta.vectors for _, delta in fresh], opened.version.dimension),
        np.repeat([number for number, _ in fresh], [len(delta.keys) for _, delta in fresh]).astype(np.int64),
        np.array([here.get(place, -1) for place in opened.places], np.int64),
        kinds,
        cached,
    )


def _stacked(parts: Sequence[np.ndarray], dimension: int) -> np.ndarray:
    return np.concatenate(parts) if parts else np.zeros((0, dimension), np.float32)


@dataclass(frozen=True)
class Passing:
    """What passes a filter: per cluster one boolean per label, and one boolean per fresh row."""

    allowed: tuple[np.ndarray, ...]
    fresh: np.ndarray


def passing(storage: Storage, made: Plan, filter: pc.Expression) -> Passing:
    """Which standing rows of the version and which fresh rows pass a filter, found by an ordinary filtered
    read of their keys. Raises what ``Table.scan`` raises, and ``DoubleKeys`` if a key does not identify one
    row."""
    opened = made.opened
    if opened.doubled:
        raise DoubleKeys(f"{opened.doubled}: keys occur twice")
    allowed = opened.masks()
    fresh = np.zeros(len(made.keys), bool)

    def one(item: tuple[int, Split]) -> pa.ChunkedArray:
        split = item[1]
        narrow = replace(split, spec=replace(split.spec, columns=(KEY_COLUMN,)))
        chunks = [chunk for table in narrow.read(storage) for chunk in table.column(KEY_COLUMN).chunks]
        return pa.chunked_array(chunks, pa.string())

    splits = made.snapshot.filtered(filter)
    for (number, split), keys in zip(splits, side_by_side(storage, one, splits), strict=True):
        if opened.covered(split.partition, split.file_id) is not None:
            pieces = opened.pieces(split.partition, split.file_id)
            mark(allowed, pieces, contained(opened.keys(pieces), keys))
        low, high = np.searchsorted(made.numbers, (number, number + 1))
        fresh[low:high] = contained(made.keys.slice(low, high - low), keys)
    for mask, masked in zip(allowed, made.masked, strict=True):
        if masked is not None:
            mask &= ~masked
    return Passing(tuple(allowed), fresh)

