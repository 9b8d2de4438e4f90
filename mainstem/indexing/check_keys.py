"""Compares record index, secondary indexes and bloom filters with the data, file group by file group.

Keys of the data are sorted into file groups as in a build (``metadata.derive.bootstrap``), so that only one
file group of data and index is in memory at a time. Java sometimes leaves entries of deleted keys behind, and
beside concurrent writers nobody can remove them safely: surplus entries of the index are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.bloom_filter import StoredFilter
from mainstem.indexing.differences import PartitionReport
from mainstem.indexing.expected_contents import Contents, DataFile
from mainstem.layout.slicing import FileSlice
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.derive.bootstrap import Keep, Place, Sorter, placed_rows, sort_keys
from mainstem.metadata.derive.column_ranges import column_at
from mainstem.metadata.derive.expression_functions import Expression
from mainstem.metadata.derive.index_rows import secondary_rows
from mainstem.metadata.index_definitions import Definition
from mainstem.metadata.metadata_partitions import (
    NON_PARTITIONED,
    RECORD_INDEX,
    data_partition_of,
    in_keys,
    in_paths,
    is_partitioned_group,
)
from mainstem.metadata.metadata_table import MetadataTable
from mainstem.metadata.records.flat_rows import SCHEMAS
from mainstem.metadata.records.row_keys import NULL_PREFIX, bloom_keys, file_groups
from mainstem.metadata.records.row_merging import shown


def check_record_index(
    report: PartitionReport, contents: Contents, metadata: MetadataTable, keep: Keep | None
) -> None:
    """Check that the index names every record key of the data, in its partition and file group."""
    partitioned = any(is_partitioned_group(g.file_id) for g in metadata.groups(RECORD_INDEX))
    if not partitioned:
        slices = [s for here in contents.slices.values() for s in here]
        _check_records(report, contents, metadata, slices, metadata.slices(RECORD_INDEX), keep)
        return
    groups = metadata.groups(RECORD_INDEX)
    known = {data_partition_of(g.file_id) for g in groups}
    for partition in sorted(known | {in_keys(p) for p, here in contents.slices.items() if here}):
        stored = metadata.slices(RECORD_INDEX, partition) if partition in known else []
        here = contents.slices.get(in_paths(partition), ())
        _check_records(report, contents, metadata, here, stored, keep)


def _check_records(
    report: PartitionReport,
    contents: Contents,
    metadata: MetadataTable,
    slices: Iterable[FileSlice],
    stored: list[FileSlice],
    keep: Keep | None,
) -> None:
    read = contents.merged()
    keyed = ((Place(s.partition, s.file_id, s.base_instant), _keys(read(s))) for s in slices)
    places, sorter = sort_keys(keyed, max(1, len(stored)), keep=keep)
    for group, keys, numbers in sorter.sorted_groups():
        rows = _stored_rows(report, metadata, stored, group, None)
        single = _single(report, keys, numbers, places)
        keys, numbers = keys.filter(pa.array(single)), numbers[single]
        at = pc.index_in(keys, value_set=rows["key"].combine_chunks())
        _missing(report, keys.filter(at.is_null()))
        found = pa.array(at.is_valid())
        there = rows.take(at.filter(found))
        real = placed_rows(keys.filter(found), numbers[found.to_numpy(zero_copy_only=False)], places)
        same = pc.and_(_same_partition(there, real), _equal(there, real, "file_id"))
        for one, other in zip(*(t.filter(pc.invert(same)).to_pylist() for t in (there, real)), strict=True):
            detail = f"says {_place(one)}, but the row lies in {_place(other)}"
            report.add("different", one["key"], detail)
        report.counts["extra"] += rows.num_rows - len(pc.unique(there["key"]))


def _keys(batches: Iterator[pa.Table]) -> Iterator[pa.ChunkedArray]:
    return (batch.column(KEY_COLUMN) for batch in batches)


def _place(row: dict) -> str:
    return f"partition {row['partition']}, file group {row['file_id']}"


def _same_partition(there: pa.Table, real: pa.Table) -> pa.ChunkedArray:
    """Whether the partitions are equal; that of a non-partitioned table is "" or "."."""
    plain = pc.and_(pc.equal(there["partition"], NON_PARTITIONED), pc.equal(real["partition"], ""))
    return pc.or_(_equal(there, real, "partition"), pc.fill_null(plain, False))


def _equal(one: pa.Table, other: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(one[name], other[name]), False)


def _single(
    report: PartitionReport, keys: pa.Array, numbers: np.ndarray, places: list[Place]
) -> np.ndarray:
    """Mask of the keys that are in one file group only; reports the others."""
    single = np.ones(len(keys), bool)
    if len(keys) > 1:
        same = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        for at in np.flatnonzero(same).tolist():
            two = [places[numbers[n]] for n in (at, at + 1)]
            text = " and ".join(f"{p.partition or '.'}/{p.file_id}" for p in two)
            report.add("ambiguous", keys[at].as_py(), f"it lies in {text}")
        single[1:] &= ~same
        single[:-1] &= ~same
    return single


def _missing(report: PartitionReport, keys: pa.Array) -> None:
    report.counts["missing"] += len(keys)
    left = max(0, report.kept - len(report.differences))
    for key in keys.slice(0, left).to_pylist():
        report.counts["missing"] -= 1
        report.add("missing", key, "no row for a key of the data")


def _stored_rows(
    report: PartitionReport, metadata: MetadataTable, stored: list[FileSlice], group: int, version: str | None
) -> pa.Table:
    """Live rows of a file group whose keys belong there; reports the others."""
    content = metadata.content(report.partition)
    if group >= len(stored):
        return SCHEMAS[content].empty_table()
    rows = shown(content, metadata.slice_rows(stored[group])).combine_chunks()
    report.rows += rows.num_rows
    keys = rows["key"].combine_chunks()
    keys = keys if isinstance(keys, pa.Array) else pa.array([], pa.string())
    right = file_groups(keys, len(stored), version) == group
    if not right.all():
        wrong = keys.filter(pa.array(~right)).to_pylist()
        report.add_all("misplaced", ((key, f"it lies in file group {group}") for key in wrong))
        rows = rows.filter(pa.array(right))
    return rows


def check_secondary_index(
    report: PartitionReport,
    contents: Contents,
    metadata: MetadataTable,
    definition: Definition,
    keep: Keep | None,
) -> None:
    """Check that the index has every pair of value and record key.

    Null values do not count: an update without the column adds none, and nobody looks them up.
    """
    (column,) = definition.fields
    version = metadata.definitions.secondary_version(report.partition)
    stored = metadata.slices(report.partition)
    sorter = Sorter(max(1, len(stored)), secondary_version=version, keep=keep)
    read = contents.merged([column])
    for found in (s for here in contents.slices.values() for s in here):
        for batch in read(found):
            rows = secondary_rows(batch.column(column), batch.column(KEY_COLUMN))
            sorter.add(rows.column("key"), 0)
    for group, keys, _ in sorter.sorted_groups():
        rows = _stored_rows(report, metadata, stored, group, version)
        keys = pc.unique(keys)
        there = pc.is_in(keys, value_set=rows["key"].combine_chunks())
        _missing(report, keys.filter(pc.invert(pc.or_(there, pc.starts_with(keys, NULL_PREFIX)))))
        report.counts["extra"] += rows.num_rows - pc.sum(there, min_count=0).as_py()


# ------------------------------------------------------------------------------------ bloom filters


def check_blooms(
    report: PartitionReport, contents: Contents, stored: pa.Table, newest: frozenset[str]
) -> None:
    """Check every base file's filter: it must equal the footer's, or contain all keys of the file."""
    wanted = {}
    for file in (f for here in contents.files.values() for f in here.values() if f.is_base):
        found = contents.bloom(file)
        if found is not None:
            wanted[_bloom_key(file)] = (file, found)
    for key, kind, text in _filters(report, stored, {k: f for k, (f, _) in wanted.items()}):
        file, (footer_kind, footer_text) = wanted.pop(key)
        if (kind, text) != (footer_kind, footer_text):
            held = StoredFilter(text, path=report.partition)
            _holds(report, held, (b.column(KEY_COLUMN) for b in contents.batches(file, [KEY_COLUMN])), file)
    for file, _ in wanted.values():
        report.add("missing" if file.path in newest else "older", file.path, "no filter")


def check_expression_blooms(
    report: PartitionReport,
    contents: Contents,
    stored: pa.Table,
    newest: frozenset[str],
    definition: Definition,
) -> None:
    """Check that every base file has a filter that contains all values of the function."""
    expression = Expression(definition.function or "identity", definition.options)
    (column,) = definition.fields
    files = {_bloom_key(f): f for here in contents.files.values() for f in here.values() if f.is_base}
    for key, _, text in _filters(report, stored, files):
        file = files.pop(key)
        batches = contents.batches(file, [column.partition(".")[0]])
        values = (expression.values(v) for v in (column_at(b, column) for b in batches) if v is not None)
        held = StoredFilter(text, path=report.partition)
        _holds(report, held, (v.drop_null().cast(pa.string()) for v in values), file)
    for file in files.values():
        report.add("missing" if file.path in newest else "older", file.path, "no filter")


def _filters(
    report: PartitionReport, stored: pa.Table, known: dict[str, DataFile]
) -> Iterator[tuple[str, str, bytes]]:
    """Key, type and text of the rows of existing files; reports the others."""
    report.rows += stored.num_rows
    for key, kind, text in zip(*(stored[n].to_pylist() for n in ("key", "type", "bloom")), strict=True):
        if key in known:
            yield key, kind, text
        else:
            report.add("surplus", key, "no such base file, or one without a filter")


def _bloom_key(file: DataFile) -> str:
    return bloom_keys(pa.array([file.partition]), pa.array([file.name]))[0].as_py()


def _holds(
    report: PartitionReport, held: StoredFilter, values: Iterable[pa.ChunkedArray], file: DataFile
) -> None:
    for column in values:
        for chunk in column.chunks:
            lost = chunk.filter(pa.array(~held.may_contain(chunk)))
            if len(lost):
                detail = f"the filter does not hold {lost[0].as_py()!r:.60} and {len(lost) - 1} more"
                report.add("different", file.path, detail)
                return
