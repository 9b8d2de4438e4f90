"""Rules out partitions and file slices for one filter, by the indexes of the metadata table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.filters.expression_terms import comparable_part, term_kind
from mainstem.filters.predicates import OneOf, Predicate, Ranges, Term, leaves, listed, may_match
from mainstem.formats.bloom_filter import may_hold_one
from mainstem.layout.buckets import file_id_bucket
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.slicing import FileSlice
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.derive.index_rows import secondary_texts
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.readers.planning.explain import FILE_SLICES, PARTITIONS, Report
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.rows.path_values import path_values
from mainstem.readers.rows.slice_query import ReadSpec
from mainstem.readers.skipping.commit_order import written_in_turn
from mainstem.readers.skipping.metadata_indexes import File, Indexes
from mainstem.readers.skipping.slice_ranges import may_hold, together
from mainstem.readers.skipping.stored_ranges import is_comparable
from mainstem.readers.skipping.wanted_keys import wanted_buckets
from mainstem.storage import paths

#: index names as ``explain()`` shows them
PARTITION_STATISTICS, COLUMN_STATISTICS = "partition statistics", "column statistics"
RECORDS, SECONDARY, EXPRESSION, BLOOM = "record index", "secondary index", "expression index", "bloom filters"


class IndexCuts:
    """The indexes of one view, applied to one filter; counts in ``report``.

    ``keys``: record keys that the filter allows, None: any. ``hashed``: the bucket hash has already found
    their file groups in each partition. ``base_only``: log files are not read.
    """

    def __init__(
        self,
        state: TableState,
        spec: ReadSpec,
        conjuncts: Sequence[Predicate],
        keys: pa.Array | None,
        indexes: Indexes,
        report: Report,
        *,
        hashed: bool,
        base_only: bool,
    ) -> None:
        self._state = state
        self._config = state.config
        self._spec = spec
        self._indexes = indexes
        self._keys = keys
        self._hashed = hashed
        self._conjuncts = together(conjuncts)
        self._report = report
        self._base_only = base_only
        self._there: set[tuple[str, str]] = set()

    @classmethod
    def of(
        cls,
        state: TableState,
        spec: ReadSpec,
        conjuncts: Sequence[Predicate],
        keys: pa.Array | None,
        report: Report,
        *,
        newest: bool,
        hashed: bool,
        base_only: bool,
    ) -> IndexCuts | None:
        """None where the table has no metadata table."""
        indexes = Indexes.of(state, newest=newest)
        if indexes is None:
            return None
        return cls(state, spec, conjuncts, keys, indexes, report, hashed=hashed, base_only=base_only)

    def confirm(self) -> None:
        """Call after the last use; see ``Indexes.confirm``. Adds the indexes' notes to the report."""
        self._indexes.confirm()
        self._report.notes.extend(dict.fromkeys(self._indexes.notes))

    # ---------------------------------------------------------------------------------------- partitions

    def partitions(self, listings: Sequence[PartitionListing]) -> list[PartitionListing]:
        """The partitions that may hold a row that passes, by partition statistics."""
        names = [listing.partition for listing in listings]
        known = {}
        for term, kind in self._plain_terms():
            if self._indexes.has_partition_ranges(term.column):
                ranges = self._indexes.partition_ranges(term.column, kind, names)
                known[term] = self._from_files(ranges, term, names)
        kept = self._holding(known, np.arange(len(names)), len(names)) if known else np.ones(len(names), bool)
        if not kept.all():  # do not trust statistics written by overlapping writers
            kept |= [not written_in_turn(self._state, listing.names) for listing in listings]
        found = [listing for listing, keep in zip(listings, kept, strict=True) if keep]
        self._report.cut(PARTITION_STATISTICS, PARTITIONS, len(listings), len(found))
        return found

    def _plain_terms(self) -> list[tuple[Term, pa.DataType]]:
        """Columns of the filter whose ranges can be trusted; none with ids, as names may differ in files."""
        if self._spec.ids is not None:
            return []
        schema = self._spec.schema
        terms = {leaf.term for conjunct in self._conjuncts for leaf in leaves(conjunct) if not leaf.term.call}
        known = [(t, schema.field(t.column).type) for t in terms if t.column in schema.names]
        return sorted(((t, k) for t, k in known if is_comparable(k)), key=lambda pair: pair[0].column)

    def _from_files(self, ranges: Ranges, term: Term, partitions: Sequence[str]) -> Ranges:
        """``ranges`` without the partitions whose value comes from the path: there, files say nothing."""
        cached: dict[str, bool] = {}
        for partition in partitions:
            if partition not in cached:
                values = path_values(partition, self._config, self._spec.schema)
                cached[partition] = term.column in dict(values)
        shown = np.array([cached[partition] for partition in partitions], bool)
        if not shown.any():
            return ranges
        nothing = pa.scalar(None, ranges.low.type)
        mask = pa.array(shown)
        low, high = (pc.if_else(mask, nothing, bound) for bound in (ranges.low, ranges.high))
        return Ranges(low, high, ranges.nulls | shown, ranges.values | shown)

    def _holding(
        self, known: dict[Term, Ranges], owner: np.ndarray, slices: int, conjuncts: Sequence[Predicate] = ()
    ) -> np.ndarray:
        kept = np.ones(slices, bool)
        for conjunct in conjuncts or self._conjuncts:
            kept &= may_hold(conjunct, lambda part: may_match(part, known, len(owner)), owner, slices)
        return kept

    # -------------------------------------------------------------------------------------------- slices

    def slices(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """The slices that may hold a row that passes. Raises ``CorruptTable`` for a damaged index."""
        self._there = {(s.partition, s.file_id) for s in found}
        cuts = (self._by_records, self._by_secondary, self._by_ranges, self._by_expressions, self._by_blooms)
        for cut in cuts:
            found = cut(found) if found else found
        return found

    def _by_records(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        if self._keys is None or (self._hashed and not self._in_some_partitions(found)):
            return found
        if not self._has_places(found, self._unique(found)):
            return found
        return self._at_places(found, self._keys, RECORDS)

    def _has_places(self, found: Sequence[FileSlice], unique_keys: bool) -> bool:
        return self._indexes.has_places(unique_keys) and self._kept_up(found, RECORD_INDEX)

    def _kept_up(self, found: Sequence[FileSlice], partition: str) -> bool:
        """Whether an index of keys can be trusted: for buckets, only if no other engine wrote since."""
        bucketed = self._has_rings or any(file_id_bucket(s.file_id) is not None for s in found)
        return not bucketed or self._indexes.kept_up(partition)

    def _in_some_partitions(self, found: Sequence[FileSlice]) -> bool:
        """Whether the bucket alone leaves open which of several partitions hold a key."""
        return len({s.partition for s in found}) > 1

    def _at_places(self, found: Sequence[FileSlice], keys: pa.Array, index: str) -> Sequence[FileSlice]:
        partitions = {s.partition for s in found}
        unknown = self._indexes.unindexed(partitions)
        places = self._indexes.places(keys, sorted(partitions - unknown))
        astray = {place for place in places - self._there if place[0] in partitions}
        if astray:  # the index cannot be trusted for these partitions
            unknown = unknown | {partition for partition, _ in astray}
            self._indexes.notes.append(
                f"{RECORD_INDEX} names the file group {min(astray)[1]}, which is not there or not of the key;"
                " build it anew (reindex)"
            )
        kept = [s for s in found if (s.partition, s.file_id) in places or s.partition in unknown]
        self._report.cut(index, FILE_SLICES, len(found), len(kept))
        return kept

    def _unique(self, found: Sequence[FileSlice]) -> bool:
        """Whether a key can be in one partition only: not if each partition has its own buckets."""
        if not self._config.partition_fields:
            return True
        return not self._has_rings and any(file_id_bucket(s.file_id) is None for s in found)

    @cached_property
    def _has_rings(self) -> bool:
        """Whether the table is under consistent hashing. Java's properties may name no engine, and its file
        ids are as those of other tables: then the rings tell."""
        if self._hashed or self._config.uses_rings:
            return not self._hashed
        return self._state.storage.stat(paths.CONSISTENT_HASHING) is not None

    def _by_secondary(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        for conjunct in self._conjuncts:
            values = listed(conjunct)
            texts = None if values is None else self._secondary_texts(*values)
            index = None if values is None or texts is None else self._indexes.secondary(values[0].column)
            if index is None or self._shown_by_path(found, index.fields[0]):
                continue
            if not self._kept_up(found, index.partition):
                continue
            keys = self._indexes.keys_of(index, texts)
            buckets = wanted_buckets(keys, self._config, self._state.storage)
            if buckets is not None:
                held = np.array([buckets.may_hold(s.partition, s.file_id) for s in found], bool)
                found = self._kept(found, held, SECONDARY)
                if self._in_some_partitions(found) and self._has_places(found, False):
                    found = self._at_places(found, keys, RECORDS)
            elif self._has_places(found, self._unique(found)):
                found = self._at_places(found, keys, SECONDARY)
        return found

    def _shown_by_path(self, found: Sequence[FileSlice], column: str) -> bool:
        """Whether a column's non-null values come from the path; an index holds those of the files. Nulls do
        not matter: no list of values names them."""
        config, schema = self._config, self._spec.schema
        shown = (path_values(p, config, schema) for p in {s.partition for s in found})
        return column in config.partition_fields and any(dict(v).get(column) is not None for v in shown)

    def _secondary_texts(self, term: Term, values: pa.Array) -> pa.Array | None:
        """Values as a secondary index stores them; None for types whose text form is not certain."""
        schema, types = self._spec.schema, pa.types
        if term.call is not None or self._spec.ids is not None or term.column not in schema.names:
            return None
        kind = schema.field(term.column).type
        if types.is_integer(kind) and types.is_integer(values.type):
            return values.cast(pa.string())
        sure = types.is_string(kind) or types.is_date32(kind) or types.is_timestamp(kind)
        return pc.unique(secondary_texts(values)) if sure and values.type == kind else None

    def _by_ranges(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        files, owner = self._files(found)
        terms = [(t, k) for t, k in self._plain_terms() if self._indexes.has_file_ranges(t.column)]
        if not terms:
            return found
        partitions = [partition for partition, _ in files]
        known = {
            term: self._from_files(self._indexes.file_ranges(term.column, kind, files), term, partitions)
            for term, kind in terms
        }
        return self._kept(found, self._holding(known, owner, len(found)), COLUMN_STATISTICS)

    def _by_expressions(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        if self._spec.ids is not None:
            return found
        for conjunct in self._conjuncts:
            for term in sorted({leaf.term for leaf in leaves(conjunct)}, key=str):
                found = self._by_expression(found, conjunct, term)
        return found

    def _by_expression(
        self, found: Sequence[FileSlice], conjunct: Predicate, term: Term
    ) -> Sequence[FileSlice]:
        schema = self._spec.schema
        if term.column not in schema.names:
            return found
        for index in self._indexes.expressions(term.column):
            kind = term_kind(index, term, schema.field(term.column).type)
            if kind is None or not found:
                continue
            files, owner = self._files(found)
            ranges = self._indexes.expression_ranges(index, kind, files)
            known = {term: self._from_files(ranges, term, [partition for partition, _ in files])}
            told = [comparable_part(conjunct, index)]
            found = self._kept(found, self._holding(known, owner, len(found), told), EXPRESSION)
        return found

    def _by_blooms(self, found: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """By bloom filters of base files; a log file must be ruled out by its key range."""
        if self._keys is None or self._hashed or not self._indexes.has_blooms() or self._spec.virtual_key:
            return found
        files, owner = self._files(found)
        term = Term(KEY_COLUMN)
        known = {}
        if self._indexes.has_file_ranges(KEY_COLUMN):
            known[term] = self._indexes.file_ranges(KEY_COLUMN, pa.string(), files)
        may = may_match(OneOf(term, self._keys, False), known, len(files))
        asked = [n for n in np.flatnonzero(may).tolist() if paths.parse_log_name(files[n][1]) is None]
        stored = self._indexes.blooms([files[n] for n in asked]) if asked else {}
        for number in asked:
            bloom = stored.get(files[number])
            may[number] = bloom is None or may_hold_one(bloom, self._keys, path=files[number][1])
        return self._kept(found, np.bincount(owner, weights=may, minlength=len(found)) > 0, BLOOM)

    def _kept(self, found: Sequence[FileSlice], kept: np.ndarray, index: str) -> Sequence[FileSlice]:
        left = [s for s, keep in zip(found, kept, strict=True) if keep]
        self._report.cut(index, FILE_SLICES, len(found), len(left))
        return left

    def _files(self, found: Sequence[FileSlice]) -> tuple[list[File], np.ndarray]:
        """The files that are read, and for each the number of its slice."""
        files: list[File] = []
        owner: list[int] = []
        for number, slice_ in enumerate(found):
            logs = () if self._base_only else slice_.log_files
            names = [*([slice_.base_file] if slice_.base_file else []), *logs]
            files.extend((slice_.partition, name) for name in names)
            owner.extend([number] * len(names))
        return files, np.array(owner, np.int64)
