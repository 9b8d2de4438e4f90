"""Finds every version of one row that is still there, and tells which of them a query shows.

The file groups that can hold the key are read, all their slices, also files and blocks that a query leaves
out. Which version wins is asked of the merge that queries use (``merge``), never decided here. A file that
cannot be read is told as such; the others are told all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.bloom_filter import may_hold_one
from mainstem.formats.log_file import BlockKind, Header, LogBlock
from mainstem.formats.schema_resolution import project_to
from mainstem.layout.slicing import FileGroup, FileSlice, query_slice
from mainstem.limits import EXPLAINED_COLUMNS_OF_MAX, EXPLAINED_VERSIONS_MAX
from mainstem.merge.file_slice import merge_slice, probe
from mainstem.merge.fold import fold, positions
from mainstem.merge.log_entries import DataRows, DeletedKeys, Entry, entry_keys
from mainstem.merge.modes import merge_mode
from mainstem.merge.rules import KEY_COLUMN
from mainstem.metadata.derive.index_rows import bloom_of_footer
from mainstem.options import WRITER_NAME
from mainstem.readers.planning.file_presence import check_files, check_listed, committed_sizes
from mainstem.readers.planning.query_times import instant_time
from mainstem.readers.queries.row_explanation import (
    ChangeRecord,
    IndexEntry,
    LookedAt,
    RowExplanation,
    RowVersion,
    Trouble,
)
from mainstem.readers.queries.row_traces import change_records, index_entries
from mainstem.readers.queries.snapshot import View, make_split, read_spec
from mainstem.readers.rows.base_rows import open_base
from mainstem.readers.rows.log_rows import entries_of, live_blocks
from mainstem.readers.rows.native_logs import blocks_of
from mainstem.readers.rows.query_columns import with_path_values
from mainstem.readers.rows.slice_query import TIME_COLUMN, ReadSpec
from mainstem.readers.rows.split import Split, base_tables
from mainstem.readers.skipping.chooser import Use
from mainstem.readers.skipping.wanted_keys import WantedBuckets, key_texts, wanted_buckets
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_DATA = (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.DELETE)
#: errors that a damaged or vanished file raises, or one that a later Hudi wrote
_UNREADABLE = (CorruptTable, FileNotFoundError, Unsupported)


def explain_row(
    storage: Storage,
    key: str | int | Mapping[str, object],
    *,
    partition: str | None = None,
    as_of: str | None = None,
    damaged: str = "error",
    use: Use = Use(),  # noqa: B008 - frozen
) -> RowExplanation:
    """Every version of the row with this record key: as ``_hoodie_record_key`` has it, or by its columns.

    ``partition``: its path below the table, None for all. ``as_of``: a requested time. Raises ``Invalid`` for
    a partition that is not there, or columns that are not the key's, ``CorruptTable`` if the table's timeline
    cannot be read.
    """
    until = None if as_of is None else instant_time(as_of, "as_of")
    view = View.load(storage, until, damaged=damaged, use=use)
    spec = read_spec(view.state, None, None, until, damaged)
    keys = _of_columns(key, view, spec) if isinstance(key, Mapping) else pa.array([str(key)])
    return _Search(view, spec, keys, as_of).explanation(partition)


def _of_columns(key: Mapping[str, object], view: View, spec: ReadSpec) -> pa.Array:
    """Record keys that a row with these values in its key columns has: one, or two where releases differ."""
    config, schema = view.state.config, spec.schema
    names = config.record_key
    if set(key) != set(names):
        raise Invalid(
            f"explain_row(key={{...}}) has the columns {', '.join(map(repr, key)) or 'none'}; the record key"
            f" of this table is made of {', '.join(map(repr, names)) or 'no column: give its text'}",
            table=view.state.storage.base,
        )
    fields = [schema.field(name) for name in names]
    try:
        row = pa.Table.from_pylist([dict(key)], pa.schema(fields))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        kinds = ", ".join(f"{field.name} {field.type}" for field in fields)
        raise Invalid(f"explain_row(key={dict(key)!r}): the key columns are {kinds}: {error}") from error
    return key_texts(row, config)


@dataclass(frozen=True)
class _Place:
    """Where versions were found: a base file, or a block of a log file."""

    slice_: FileSlice
    name: str
    block: LogBlock | None
    number: int
    visible: bool

    @property
    def at(self) -> tuple[str, int]:
        return self.name, -1 if self.block is None else self.block.offset

    @property
    def instant(self) -> str:
        if self.block is not None:
            return self.block.instant
        parsed = paths.parse_base_name(self.name)
        return "" if parsed is None else parsed.instant


@dataclass(frozen=True)
class _Found:
    """Versions of the key in one place: all rows of ``entry`` are of this key; ``rows``: their numbers."""

    place: _Place
    entry: Entry
    rows: list[int]


@dataclass
class _Verdict:
    """What the merge says of the versions that a query reads of one file group."""

    rows: pa.Table
    #: (place, row within the entry) of what wins; empty where a merger makes the row
    wins: set[tuple[tuple[str, int], int]] = field(default_factory=set)
    #: column -> place and row
    columns: dict[str, tuple[tuple[str, int], int]] = field(default_factory=dict)


class _Search:
    def __init__(self, view: View, spec: ReadSpec, keys: pa.Array, as_of: str | None) -> None:
        self.view, self.spec, self.keys, self.as_of = view, spec, keys, as_of
        self.state, self.storage = view.state, view.state.storage
        self.replaced = self.state.replaced(view.until)
        self.troubles: dict[tuple[str, str], Trouble] = {}
        self.looked_at: list[LookedAt] = []
        self.versions: list[RowVersion] = []
        self.columns: dict[str, int] = {}
        self.omitted = 0
        self.changes: list[ChangeRecord] = []
        #: base files that their bloom filters rule out
        self.ruled_out = 0
        #: files of the file group at hand that could not be read to their end
        self.unusable: set[str] = set()

    def explanation(self, partition: str | None) -> RowExplanation:
        config = self.state.config
        buckets = wanted_buckets(self.keys, config, self.storage)
        if partition is not None:
            inside = {"..", ".", paths.HOODIE}.isdisjoint(partition.split("/"))
            metafile = paths.partition_metafile(partition)
            if not inside or (partition and self.storage.stat(metafile) is None):
                raise Invalid(
                    f"explain_row(partition={partition!r}): the table has no such partition; name its path"
                    " below the table's folder, as in _hoodie_partition_path",
                    table=self.storage.base,
                )
            listed = [(partition, tuple(self.storage.names(partition)))]
        else:
            listed = [(found.partition, found.names) for found in self.state.partitions()]
        shown: list[pa.Table] = []
        for name, names in listed:
            data = [n for n in names if paths.parse_log_name(n) or self.state.parse_base(n)]
            if buckets is not None:
                data = [n for n in data if buckets.may_hold(name, paths.file_id_of(n) or "")]
            shown += self._partition(name, sorted(data))
        rows = pa.concat_tables([self.spec.read_schema.empty_table(), *shown])
        indexes: list[IndexEntry] = []
        if self.view.until is None and self.view.use.metadata:
            with self._told("the indexes of the metadata table"):
                indexes += index_entries(self.state, self.keys, self.versions, rows)
        return RowExplanation(
            self.keys[0].as_py(), self.storage.base, self.as_of, self._merge(), tuple(self.versions), rows,
            self.columns, tuple(self.looked_at), self._looked_for(partition, len(listed), buckets),
            tuple(self.troubles.values()), self.omitted, tuple(self.changes), tuple(indexes),
        )  # fmt: skip

    def _merge(self) -> str:
        rules = self.spec.rules
        told = str(merge_mode(self.state.config.raw))
        told += f" by {', '.join(rules.ordering)}" if rules.ordering else ""
        told += f", partial updates {rules.partial}" if rules.partial else ""
        return told + (", one record after another onto the base file (lsm_tree)" if rules.one_by_one else "")

    def _looked_for(self, partition: str | None, partitions: int, buckets: WantedBuckets | None) -> str:
        where = f"partition {partition!r}" if partition is not None else f"{partitions} partitions"
        files = sum(group.files for group in self.looked_at)
        told = f"looked for in {where}: {files} files of {len(self.looked_at)} file groups"
        if buckets is not None and (partition is not None or buckets.rules is None):
            wanted, count = buckets.of(partition or "")
            told += f" (bucket {', '.join(map(str, sorted(wanted)))} of {count})"
        if self.ruled_out:
            told += f"; bloom filters rule out {self.ruled_out} base files"
        kept = self.state.earliest_retained
        return told + (f"; cleans have removed what only commits before {kept} need" if kept else "")

    # -- one file group ------------------------------------------------------------------------------

    def _partition(self, partition: str, names: Sequence[str]) -> Iterator[pa.Table]:
        visible = {group.file_id: group for group in self.state.group(partition, names)}
        sizes = committed_sizes(self.state, partition) if self.view.damaged == "error" else {}
        for every in self.state.group(partition, names, visible_only=False):
            file_id = every.file_id
            if self.view.damaged == "error" and (partition, file_id) not in self.replaced:
                with self._told(paths.in_partition(partition, file_id)):
                    check_listed(
                        self.state, partition, set(names), until=self.view.until, file_id=file_id,
                        replaced=self.replaced,
                    )  # fmt: skip
            yield from self._group(every, visible.get(file_id), sizes)

    def _group(
        self, every: FileGroup, seen: FileGroup | None, sizes: Mapping[str, int]
    ) -> Iterator[pa.Table]:
        there = (every.partition, every.file_id)
        picked = None if seen is None or there in self.replaced else query_slice(seen, self.view.until)
        home = {n: s for s in every.slices for n in _files(s)}
        visible = {n: s for s in (() if seen is None else seen.slices) for n in _files(s)}
        home |= visible
        read = set() if picked is None else set(_files(picked))
        found: list[_Found] = []
        usable: set[str] = set()
        self.unusable = set()
        for slice_ in reversed(every.slices):
            for name in _files(slice_):
                path = paths.in_partition(every.partition, name)
                if _is_cdc(name):
                    with self._told(path):
                        self.changes += change_records(
                            self.state, slice_, name, self.keys, self.view.damaged
                        )
                    continue
                self.unusable.add(name)
                with self._told(path):
                    check_files(self.state, every.partition, [name], sizes)
                    found += self._versions_in(home[name], name, name in visible)
                    usable.add(name)
                    self.unusable.discard(name)
        files = len({n for n in home if not _is_cdc(n)})
        self.looked_at.append(LookedAt(*there, len(every.slices), files))
        if not found:
            return
        verdict = _Verdict(self.spec.read_schema.empty_table())
        live: set[tuple[str, int]] = set()
        if picked is not None:
            kept = replace(
                picked,
                base_file=picked.base_file if picked.base_file in usable else None,
                log_files=tuple(n for n in picked.log_files if n in usable),
            )
            verdict, live = self._verdict(kept, [f for f in found if f.place.name in read])
        self._tell(found, picked, read, live, verdict)
        yield verdict.rows

    @contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            what = "it is gone" if isinstance(error, FileNotFoundError) else str(error)
            path = getattr(error, "path", "") or path
            self.troubles.setdefault((path, what), Trouble(path, what))

    # -- reading -------------------------------------------------------------------------------------

    def _versions_in(self, slice_: FileSlice, name: str, visible: bool) -> Iterator[_Found]:
        path = paths.in_partition(slice_.partition, name)
        log = paths.parse_log_name(name)
        if log is None:
            yield from self._in_base(_Place(slice_, name, None, 0, visible), path)
            return
        try:
            blocks = blocks_of(self.storage, path, damaged=self.view.damaged)
        except CorruptTable:
            if log.is_native and self.state.completion(log.instant) is None:
                return  # its writer has not ended it: nobody reads it until then
            raise
        for number, block in enumerate(blocks):
            if block.kind is BlockKind.CORRUPT:
                self.troubles.setdefault(
                    (path, str(block.offset)), Trouble(path, f"a damaged block at offset {block.offset}")
                )
            if block.kind in _DATA:
                with self._told(path):
                    yield from self._in_block(_Place(slice_, name, block, number, visible), path, block)

    def _in_block(self, place: _Place, path: str, block: LogBlock) -> Iterator[_Found]:
        """First keys alone: most blocks do not have this one."""
        for entry in entries_of([(path, block)], replace(self.spec, columns=())):
            at = self._at(entry_keys(entry))
            if not len(at):
                continue
            if isinstance(entry, DataRows):
                (entry,) = entries_of([(path, block)], self.spec)
            yield _Found(place, _taken(entry, at), at.tolist())

    def _in_base(self, place: _Place, path: str) -> Iterator[_Found]:
        narrow = self._split(place.slice_, replace(self.spec, columns=()), place.name)
        first, numbers = 0, []
        if self._ruled_out(path):
            self.ruled_out += 1
            return
        for table in base_tables(self.storage, narrow, merged=True):
            numbers += (first + self._at(table.column(KEY_COLUMN))).tolist()
            first += table.num_rows
        if not numbers:
            return
        first, parts = 0, []
        for table in base_tables(self.storage, self._split(place.slice_, self.spec, place.name), merged=True):
            here = [n - first for n in numbers if first <= n < first + table.num_rows]
            first += table.num_rows
            parts.append(table.take(pa.array(here, pa.int64())))
            if first > numbers[-1]:
                break
        whole = pa.concat_tables([part for part in parts if part.num_rows])
        yield _Found(place, DataRows(whole, False, path), numbers)

    def _at(self, keys: pa.ChunkedArray) -> np.ndarray:
        """Numbers of the rows with the key."""
        wanted = self.keys.cast(pa.large_string())
        return np.flatnonzero(pc.is_in(keys.cast(pa.large_string()), value_set=wanted).to_numpy())

    def _ruled_out(self, path: str) -> bool:
        """Whether the bloom filter in a base file's footer says that the key is not there. One that cannot be
        read rules out nothing."""
        if self.spec.virtual_key:
            return False
        with open_base(self.storage, path, final=self.view.damaged == "error") as base:
            bloom = bloom_of_footer(base.source.metadata.metadata)
        try:
            return bloom is not None and not may_hold_one(bloom[1], self.keys, path=path)
        except CorruptTable:
            return False

    def _split(self, slice_: FileSlice, spec: ReadSpec, base: str | None) -> Split:
        alone = replace(slice_, base_file=base, log_files=() if base else slice_.log_files)
        return make_split(alone, spec, self.state.config)

    # -- merging -------------------------------------------------------------------------------------

    def _verdict(
        self, picked: FileSlice, found: Sequence[_Found]
    ) -> tuple[_Verdict, set[tuple[str, int]]]:
        """What the merge shows of the slice, and which blocks of it count."""
        split = self._split(picked, self.spec, None)
        places: dict[tuple[str, int], int] = {}
        for path, offset in live_blocks(self.storage, split, lambda block: block.offset):
            places[path.rpartition("/")[2], offset] = len(places)
        logs = [f for f in found if f.place.block is not None and f.place.at in places]
        logs.sort(key=lambda f: places[f.place.at])
        bases = [f for f in found if f.place.block is None]
        live = {*places, *(f.place.at for f in bases)}
        tables = [f.entry.table for f in bases if isinstance(f.entry, DataRows)]
        verdict = _Verdict(self._merged(tables, [f.entry for f in logs], split))
        rules, kinds = self.spec.rules, self.spec.ordering_types
        if rules.merger is not None and logs:
            return verdict, live
        if logs:
            log = positions(self._entries(logs), rules, kinds)
            folded = fold(log)
            winner = int(folded.winner[0])
            entry = int(np.searchsorted(log.starts, winner, side="right")) - 1
            of_log = (logs[entry].place.at, winner - int(log.starts[entry]))
            _, hit, wins = probe(tables[0], log, folded, rules) if tables else (None, [], np.zeros(0, bool))
            if not len(hit) or wins.all():
                verdict.wins.add(of_log)
            else:
                verdict.wins.update((bases[0].place.at, int(row)) for row in np.asarray(hit)[~wins])
        else:
            verdict.wins.update((f.place.at, row) for f in bases for row in range(len(f.rows)))
        partial = rules.partial or any(isinstance(f.entry, DataRows) and f.entry.partial for f in logs)
        if partial and logs and sum(len(f.rows) for f in logs) <= EXPLAINED_COLUMNS_OF_MAX:
            verdict.columns = self._columns_of(bases, tables, logs, split)
        return verdict, live

    def _entries(self, logs: Sequence[_Found]) -> list[Entry]:
        return [f.entry for f in logs]

    def _merged(self, tables: Sequence[pa.Table], entries: Sequence[Entry], split: Split) -> pa.Table:
        spec = self.spec
        parts = merge_slice(list(tables), list(entries), spec.read_schema, spec.rules, spec.ordering_types)
        rows = pa.concat_tables([spec.read_schema.empty_table(), *parts])
        return with_path_values(rows, split)

    def _columns_of(
        self, bases: Sequence[_Found], tables: Sequence[pa.Table], logs: Sequence[_Found], split: Split
    ) -> dict[str, tuple[tuple[str, int], int]]:
        """Column -> the version whose merge changed it last: the rows are merged one more at a time."""
        before: dict[str, object] = {}
        source: dict[str, tuple[tuple[str, int], int]] = {}
        steps: list[tuple[tuple[tuple[str, int], int] | None, list[Entry]]] = []
        if bases:
            steps.append(((bases[0].place.at, 0), []))
        entries: list[Entry] = []
        for found in logs:
            for row in range(len(found.rows)):
                entries.append(_taken(found.entry, np.array([row])))
                steps.append(((found.place.at, row), list(entries)))
        for version, some in steps:
            rows = self._merged(tables, some, split).to_pylist()
            now = rows[0] if rows else {}
            for name, value in now.items():
                if version is not None and name not in META_FIELDS and before.get(name) != value:
                    source[name] = version
            before = now
        return {name: version for name, version in source.items() if before.get(name) is not None}

    # -- telling -------------------------------------------------------------------------------------

    def _tell(
        self,
        found: Sequence[_Found],
        picked: FileSlice | None,
        read: set[str],
        live: set[tuple[str, int]],
        verdict: _Verdict,
    ) -> None:
        told = [(f, row) for f in found for row in range(len(f.rows))]
        room = max(0, EXPLAINED_VERSIONS_MAX - len(self.versions))
        if len(told) > room:
            recent = set(range(len(told) - room, len(told)))
            kept = [i for i, (f, row) in enumerate(told) if i in recent or (f.place.at, row) in verdict.wins]
            self.omitted += len(told) - len(kept)
            told = [told[i] for i in kept]
        made: list[RowVersion] = []
        numbers: dict[tuple[tuple[str, int], int], int] = {}
        for f, row in told:
            number = len(self.versions) + len(made) + 1
            numbers[f.place.at, row] = number
            made.append(self._version(number, f, row, picked, read, live, verdict))
        winner = next((v for v in made if v.wins), None)
        removed = any(v.read and v.unconditional for v in made)
        self.versions += [v if v.why else replace(v, why=self._why(v, winner, removed)) for v in made]
        for name, version in verdict.columns.items():
            if version in numbers:
                self.columns[name] = numbers[version]

    def _version(
        self,
        number: int,
        found: _Found,
        row: int,
        picked: FileSlice | None,
        read: set[str],
        live: set[tuple[str, int]],
        verdict: _Verdict,
    ) -> RowVersion:
        place, entry = found.place, found.entry
        completion = self.state.completion(place.instant)
        values: dict[str, object] = {}
        ordering: dict[str, object] = {}
        unconditional, commit_time, kind = False, None, "delete"
        if isinstance(entry, DataRows):
            values = self._shown(entry.table.slice(row, 1), place.slice_, entry.partial)
            kind = "base" if place.block is None else "partial row" if entry.partial else "row"
            time = values.get(TIME_COLUMN)
            commit_time = time if isinstance(time, str) else place.instant
            ordering = {name: values.get(name) for name in self.spec.rules.ordering}
            values = {name: value for name, value in values.items() if name not in META_FIELDS}
        else:
            unconditional = bool(entry.unconditional[row]) or not self.spec.rules.ordering
            names = () if unconditional else self.spec.rules.ordering
            ordering = {n: f[row].as_py() for n, f in zip(names, entry.ordering, strict=False)}
        metadata = None
        with self._told(f"the commit {commit_time or place.instant}"):
            metadata = self.state.metadata(commit_time or place.instant)
        extra = {} if metadata is None else {n: v for n, v in metadata.extra.items() if n != "schema"}
        slice_ = place.slice_
        in_read = place.name in read and place.at in live
        wins = in_read and (place.at, row) in verdict.wins
        return RowVersion(
            number, kind, slice_.partition, slice_.file_id, place.name,
            None if place.block is None else place.number,
            None if place.block is None else place.block.offset, found.rows[row],
            place.instant, completion, commit_time,
            "" if metadata is None else metadata.operation, extra.pop(WRITER_NAME, ""), extra,
            ordering, unconditional, values, slice_.base_instant, self._why_slice(place, completion),
            in_read, wins, "" if in_read else self._why_not_read(place, picked, read, completion),
        )  # fmt: skip

    def _shown(self, row: pa.Table, slice_: FileSlice, partial: bool) -> dict[str, object]:
        """A stored row in the columns of the table: all, or of a partial row those that it has."""
        schema = self.spec.read_schema
        if partial:
            schema = pa.schema([field for field in schema if field.name in row.schema.names])
        shown = with_path_values(project_to(row, schema), self._split(slice_, self.spec, None))
        values: dict[str, object] = shown.to_pylist()[0]
        return values

    def _why_slice(self, place: _Place, completion: str | None) -> str:
        if place.block is None:
            return "it begins with this base file"
        base = place.slice_.base_instant
        if completion is None:
            return "the newest one, since the log file's instant is not completed"
        if place.slice_.base_file is None and base == place.instant:
            return "the log file begins it, as the first one of the file group"
        whose = "base file" if place.slice_.base_file else "planned compaction or first log file"
        return (
            f"its instant completed at {completion}, after {base}, which is the newest {whose} of the file"
            " group at that moment"
        )

    def _why_not_read(
        self, place: _Place, picked: FileSlice | None, read: set[str], completion: str | None
    ) -> str:
        slice_, until = place.slice_, self.view.until
        if (slice_.partition, slice_.file_id) in self.replaced:
            return "its file group was replaced"
        if completion is None:
            return f"instant {place.instant} is not completed: no query reads it"
        if not place.visible:
            return f"a lost attempt left the file: the metadata of {place.instant} does not name it"
        if until is not None and place.instant > until:
            return f"instant {place.instant} is later than {until}"
        if picked is None:
            return "no query reads a slice of this file group"
        if place.name not in read:
            return f"a query reads the slice {picked.base_instant}, which has taken the place of this one"
        if place.name in self.unusable:
            return "a part of its file cannot be read, so nothing of it was merged"
        return self._why_not_live(place)

    def _why_not_live(self, place: _Place) -> str:
        block = place.block
        if block is not None and block.headers.get(Header.COMPACTED_BLOCK_TIMES):
            return "a log compaction whose blocks are in the base file, or in another log compaction"
        return "a rollback took the block back, or a log compaction has it in its own block"

    def _why(self, version: RowVersion, winner: RowVersion | None, removed: bool) -> str:
        if winner is None:
            return "the registered merger makes one row of all versions"
        if version.wins:
            if version.kind == "delete":
                return "the delete wins: the key has no row"
            if not version.ordering:
                return "the last one in merge order wins"
            after = " of those after the last delete without one" if removed else ""
            return f"the greatest ordering value{after} wins"
        ours, theirs = tuple(version.ordering.values()), tuple(winner.ordering.values())
        if winner.unconditional and winner.kind == "delete":
            return f"a delete without ordering value (version {winner.number}) removes what came before"
        if not self.spec.rules.ordering:
            return f"version {winner.number} is later in merge order"
        if ours == theirs:
            return f"the same ordering value as version {winner.number}, which is later in merge order"
        if removed and version.number < winner.number:
            return "a delete without ordering value removed it, or its own loses"
        return f"its ordering value loses to that of version {winner.number}"


def _files(slice_: FileSlice) -> tuple[str, ...]:
    return (*filter(None, [slice_.base_file]), *slice_.log_files)


def _is_cdc(name: str) -> bool:
    log = paths.parse_log_name(name)
    return log is not None and log.is_cdc


def _taken(entry: Entry, rows: np.ndarray) -> Entry:
    """Some rows of an entry."""
    at = pa.array(rows, pa.int64())
    if isinstance(entry, DataRows):
        return replace(entry, table=entry.table.take(at))
    ordering = tuple(values.take(at) for values in entry.ordering)
    return DeletedKeys(entry.keys.take(at), ordering, entry.unconditional[rows], entry.source)
