"""What a snapshot holds that a version of the index does not, file slice by file slice.

A version holds rows of file slices as they were. If a slice's files are still the same, all its rows stand.
In every other slice, some of the version's rows are *masked*, and some of the snapshot's rows are *fresh*:

* Files were added and none removed: every key in an added log file counts as changed. What such a log row or
delete
  does to its row is found by reading: if there is a merged row, it is read and is fresh.
* Another base file, or missing log files (the slice was compacted since, or the snapshot is older than the
version):
  all rows are read and compared with the version's by record key and vector. Key and commit time would not
  do: a late partial update can change a vector and leave the row's commit time. Where vectors are made from
  texts, which takes long, the texts' digests are compared, and vectors are made only for texts that differ.
* Slices that the version does not cover are fresh as a whole; slices that are gone are masked as a whole.

A delta never becomes wrong: files do not change, so it is a function of the version and the names of the
files. One for a subset of the requested log files is extended by the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.log_file import BlockKind, LogBlock
from mainstem.merge.log_entries import entry_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.log_rows import entries_of, live_blocks
from mainstem.readers.rows.split import Split
from mainstem.storage.protocol import Storage
from mainstem.vectors.index.embedding import digests
from mainstem.vectors.index.version_manifest import ELEMENTS, CoveredSlice
from mainstem.vectors.search.found_rows import keyed_rows
from mainstem.vectors.search.opened_version import Opened, Piece, contained
from mainstem.vectors.search.request import vectors_of


class Kind(Enum):
    """How a slice of the snapshot relates to the version."""

    SAME = "unchanged"
    GROWN = "log files added"
    OTHER = "compared"
    NEW = "not covered"


@dataclass(frozen=True)
class Delta:
    """``masked``: one boolean per row of ``pieces``, the version's rows of the slice. Fresh rows: their
    ``keys``, without repeats, and ``vectors`` (n, d). ``logs``: the log files that this delta accounts
    for."""

    kind: Kind
    logs: frozenset[str]
    pieces: tuple[Piece, ...]
    masked: np.ndarray
    keys: pa.Array
    vectors: np.ndarray

    @property
    def size(self) -> int:
        """Bytes held in memory."""
        return self.masked.nbytes + self.keys.nbytes + self.vectors.nbytes


class NotByIndex(Unsupported):
    """Rows for which an index cannot answer: all rows must be compared."""


class DoubleKeys(NotByIndex):
    """A slice with several rows of one record key, which an index cannot tell apart."""


class OtherDimension(NotByIndex):
    """A fresh row whose vector's dimension differs from the version's; a filter may exclude it."""


def kind_of(split: Split, covered: CoveredSlice | None) -> Kind:
    """How a slice relates to what a version covers of its file group."""
    if covered is None:
        return Kind.NEW
    logs = names_of(split.log_files)
    if _base(split) != covered.base_file or not logs.issuperset(covered.log_files):
        return Kind.OTHER
    return Kind.SAME if len(logs) == len(set(covered.log_files)) else Kind.GROWN


def delta_of(storage: Storage, split: Split, column: str, opened: Opened, before: Delta | None) -> Delta:
    """The delta of a slice that is not ``SAME``. ``before``: a delta of the same slice and base file for a
    subset of its log files. ``FileNotFoundError`` if a clean removed a file."""
    covered = opened.covered(split.partition, split.file_id)
    kind = kind_of(split, covered)
    logs = names_of(split.log_files)
    if before is not None:
        known: frozenset[str] = before.logs
    elif kind is Kind.GROWN and covered is not None:
        known = frozenset(covered.log_files)
        pieces = opened.pieces(split.partition, split.file_id)
        dimension = opened.version.dimension
        before = Delta(
            kind, known, tuple(pieces), np.zeros(_rows(pieces), bool), pa.array([], pa.string()),
            np.zeros((0, dimension), ELEMENTS[opened.version.element]),
        )  # fmt: skip
    else:
        return _compared(storage, split, column, opened, kind)
    added = [path for path in split.log_files if path.rsplit("/", 1)[-1] not in known]
    keys = _written(storage, replace(split, log_files=tuple(added)))
    if keys is None:
        return _compared(storage, split, column, opened, kind)
    return replace(_grown(storage, split, column, opened, before, keys), logs=logs)


def _grown(
    storage: Storage, split: Split, column: str, opened: Opened, before: Delta, keys: pa.Array
) -> Delta:
    """``before``, extended by what became of the rows with these keys."""
    masked = before.masked | contained(opened.keys(before.pieces), keys)
    rows = keyed_rows(storage, split, keys, [column])
    now, vectors = _fresh(rows, column, opened, split)
    kept = np.flatnonzero(~contained(pa.chunked_array([before.keys]), keys))
    return replace(
        before,
        masked=masked,
        keys=pa.concat_arrays([before.keys.take(pa.array(kept)), now]),
        vectors=np.concatenate([before.vectors[kept], vectors]) if len(kept) else vectors,
    )


def _compared(storage: Storage, split: Split, column: str, opened: Opened, kind: Kind) -> Delta:
    """Compare all rows of the slice with all that the version holds of it."""
    spec = replace(split.spec, columns=tuple(dict.fromkeys((KEY_COLUMN, column))))
    tables = list(replace(split, spec=spec).read(storage))
    schema = pa.schema([spec.schema.field(name) for name in spec.columns])
    rows = pa.concat_tables([schema.empty_table(), *tables])
    pieces = [] if kind is Kind.NEW else opened.pieces(split.partition, split.file_id)
    masked = np.ones(_rows(pieces), bool)
    if pieces and opened.version.embedding:
        rows = _of_other_texts(rows, column, pieces, opened, split, masked)
    keys, vectors = _fresh(rows, column, opened, split)
    fresh = np.ones(len(keys), bool)
    if pieces and len(keys):
        at = pc.index_in(keys, value_set=opened.keys(pieces))
        mine = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False))
        theirs = at.drop_null().to_numpy()
        same = (vectors[mine] == opened.vectors(pieces)[theirs]).all(axis=1)
        fresh[mine[same]] = False
        masked[theirs[same]] = False
    chosen = np.flatnonzero(fresh)
    return Delta(
        kind, names_of(split.log_files), tuple(pieces), masked, keys.take(pa.array(chosen)), vectors[chosen]
    )


def _of_other_texts(
    rows: pa.Table, column: str, pieces: Sequence[Piece], opened: Opened, split: Split, masked: np.ndarray
) -> pa.Table:
    """The rows that the version does not hold with the same text; unmasks those that it does."""
    _check_single(rows.column(KEY_COLUMN), split)
    texts, now = opened.texts(pieces), digests(rows.column(column))
    at = pc.index_in(rows.column(KEY_COLUMN), value_set=opened.keys(pieces))
    mine = np.flatnonzero(at.is_valid().to_numpy())
    theirs = at.drop_null().to_numpy()
    same = pc.equal(now.take(pa.array(mine)), texts.take(pa.array(theirs)))
    same = pc.fill_null(same, False).to_numpy()
    masked[theirs[same]] = False
    rest = np.ones(rows.num_rows, bool)
    rest[mine[same]] = False
    return rows.filter(pa.array(rest))


def _fresh(rows: pa.Table, column: str, opened: Opened, split: Split) -> tuple[pa.Array, np.ndarray]:
    """Keys and vectors of the rows that have a vector."""
    version = opened.version
    try:
        vectors, valid = vectors_of(rows.column(column), version.dimension, version.embedding)
    except Invalid as error:
        if version.embedding:
            raise
        where = f"partition {split.partition!r}, file group {split.file_id}"
        raise OtherDimension(f"{where}: {error.message}") from None
    found = rows.column(KEY_COLUMN).take(pa.array(valid))
    keys = pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.string())
    _check_single(keys, split)
    return keys, vectors


def _check_single(keys: pa.Array | pa.ChunkedArray, split: Split) -> None:
    if len(pc.unique(keys)) < len(keys):
        raise DoubleKeys(f"partition {split.partition!r}, file group {split.file_id}: keys occur twice")


def _written(storage: Storage, split: Split) -> pa.Array | None:
    """All record keys in a split's log files; None if a block rolls back others."""
    kinds: set[BlockKind] = set()

    def noted(block: LogBlock) -> LogBlock:
        kinds.add(block.kind)
        return block

    blocks = live_blocks(storage, split, noted)
    if BlockKind.COMMAND in kinds:
        return None
    narrow = replace(split.spec, columns=(), extra=())
    entries = [entry for block in blocks for entry in entries_of([block], narrow)]
    chunks = [chunk for entry in entries for chunk in entry_keys(entry).chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _rows(pieces: Sequence[Piece]) -> int:
    return sum(high - low for _, low, high in pieces)


def _base(split: Split) -> str | None:
    return None if split.base_file is None else split.base_file.rsplit("/", 1)[-1]


def names_of(logs: Sequence[str]) -> frozenset[str]:
    """The names of the log files at these paths."""
    return frozenset(path.rsplit("/", 1)[-1] for path in logs)
