"""What vector indexes have of one row, beside what a query shows of it (``Table.explain_row``).

A search takes a version's vector of a row only where the row's file slice is still as the version covers it;
elsewhere it looks whether the row changed (``delta``). So an index differs only in slices that are unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import MainstemError
from mainstem.readers.queries.row_explanation import IndexEntry, RowExplanation, Trouble
from mainstem.readers.rows.split import Split
from mainstem.readers.skipping.chooser import Use
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.snapshots import Snapshot, listing, signs
from mainstem.vectors.index.version_manifest import VectorIndex, Version
from mainstem.vectors.index.versions import (
    COMMIT_TIME,
    RECORD_KEY,
    SLICE,
    newest_version,
    open_keys,
    read_indexes,
)
from mainstem.vectors.search.delta import Kind, kind_of

_Group = tuple[str, str]
_WHAT = {
    Kind.SAME: "has the row's vector",
    Kind.GROWN: "has a vector of the row; log files came since, so searches look for a newer one:",
    Kind.OTHER: "has a vector of the row; the file slice is another one now, so searches compare the two:",
    Kind.NEW: "has a vector of the row in a file group that no query reads now, and searches leave out:",
}


def with_vector_entries(
    storage: Storage, explain: Callable[[], RowExplanation], *, damaged: str, use: Use
) -> RowExplanation:
    """The explanation of a row as of now, with what the newest version of each vector index has of it.

    The keys of an index are read cluster by cluster, if it covers a file group that has a version of the
    row. What cannot be read is one of the ``troubles``.
    """
    try:
        indexes = sorted(read_indexes(storage).found, key=lambda index: index.name)
    except MainstemError as error:
        return _with_trouble(explain(), getattr(error, "path", ""), error)
    if not indexes:
        return explain()
    before = signs(listing(storage), None)
    explained = explain()
    try:
        snapshot = Snapshot.load(storage, None, damaged=damaged, use=use)
    except (MainstemError, FileNotFoundError) as error:
        return _with_trouble(explained, paths.VECTOR_PROPERTIES, error)
    splits = {(split.partition, split.file_id): split for split in snapshot.splits}
    steady = signs(listing(storage), None) == before
    for index in indexes:
        try:
            version = newest_version(storage, index)
            entries = [] if version is None else list(_entries(storage, index, version, explained, splits))
        except (MainstemError, FileNotFoundError) as error:  # a refresh may have taken the version away
            explained = _with_trouble(explained, paths.vector_column(index.id), error)
            continue
        if not steady:  # the rows told and the slices compared may be of two moments
            entries = [replace(entry, agrees=True) for entry in entries]
        explained = replace(explained, indexes=(*explained.indexes, *entries))
    return explained


def _with_trouble(explained: RowExplanation, path: str, error: Exception) -> RowExplanation:
    trouble = Trouble(path, str(error) or "gone")
    return replace(explained, troubles=(*explained.troubles, trouble))


def _entries(
    storage: Storage,
    index: VectorIndex,
    version: Version,
    explained: RowExplanation,
    splits: dict[_Group, Split],
) -> Iterator[IndexEntry]:
    groups = sorted({(v.partition, v.file_id) for v in explained.versions})
    covered = {(s.partition, s.file_id): at for at, s in enumerate(version.slices)}
    wanted = {covered[group]: group for group in groups if group in covered}
    shows = _shows(explained, index.column)
    found: set[_Group] = set()
    for cluster, label, slice_, commit_time in _places(storage, version, explained.key, sorted(wanted)):
        group = wanted[slice_]
        found.add(group)
        split = splits.get(group)
        kind = Kind.NEW if split is None else kind_of(split, version.slices[slice_])
        told = {
            "version": version.number, "cluster": cluster, "label": label, "partition": group[0],
            "file_id": group[1], "commit_time": commit_time,
        }  # fmt: skip
        if kind is Kind.SAME and shows.get(group) is False:
            yield IndexEntry(index.name, told, False, "has a vector, and a query shows none of the row:")
        else:
            yield IndexEntry(index.name, told, True, _WHAT[kind])
    for group, shown in sorted(shows.items()):
        split = splits.get(group)
        if not shown or group in found or split is None:
            continue
        told = {"version": version.number, "partition": group[0], "file_id": group[1]}
        same = group in covered and kind_of(split, version.slices[covered[group]]) is Kind.SAME
        what = "lacks" if same else "is older than"
        yield IndexEntry(index.name, told, not same, f"{what} the row, which searches {_MISSED[same]}:")


_MISSED = {True: "miss", False: "find beside it"}


def _shows(explained: RowExplanation, column: str) -> dict[_Group, bool]:
    """Whether a query shows a vector of the row, in each file group in which a version wins."""
    shows = {}
    for version in explained.winners:
        group = (version.partition, version.file_id)
        if version.kind == "delete" or column not in explained.rows.schema.names:
            shows[group] = False
        elif explained.rows.num_rows == 1:  # which of several rows is this group's, partial updates hide
            shows[group] = explained.rows.column(column)[0].is_valid
    return shows


def _places(
    storage: Storage, version: Version, key: str, slices: list[int]
) -> Iterator[tuple[int, int, int, str | None]]:
    """Cluster, label, slice and commit time of each row with this record key in these slices."""
    if not slices:
        return
    among = pa.array(slices, pa.int32())
    for cluster in range(len(version.clusters)):
        keys = open_keys(storage, version, cluster)
        here = pc.and_(pc.equal(keys.column(RECORD_KEY), key), pc.is_in(keys.column(SLICE), among))
        for label in np.flatnonzero(here.to_numpy()).tolist():
            row = keys.slice(label, 1)
            yield cluster, label, row.column(SLICE)[0].as_py(), row.column(COMMIT_TIME)[0].as_py()
