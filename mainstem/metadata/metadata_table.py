"""Reads Hudi's metadata table, a merge-on-read table of HFiles with a timeline of its own.

1. Given a view of the data table, list the metadata table's timeline; for older instants ask its archive.
2. Form slices from a partition's base and log files by completion time (``layout/slicing.py``), and read the
   newest one of each group.
3. ``valid_instants`` decides which log blocks count.
4. ``records.row_merging`` merges base file and blocks.

A look-up by keys goes to the file groups that the keys' hashes determine, and reads the blocks of their files
that may hold the keys. A look-up by prefixes without a known hash goes to all groups.

Damage raises ``CorruptTable`` with the file's path. So does a file that a compaction or clean has removed
since the timeline was listed (open the table again, or read without the metadata table).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem import limits
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.hfile import HFile, Ranges, open_hfile, rows_of_all
from mainstem.formats.log_file import BlockKind, LogBlock, read_blocks, replaced_by
from mainstem.layout.committed_files import CommittedFiles
from mainstem.layout.properties import READABLE_VERSIONS, TableConfig, load_config
from mainstem.layout.slicing import FileGroup, FileSlice, group_files, query_slice
from mainstem.lsm_archive.reader import Archive
from mainstem.merge.log_order import BlockNote, surviving
from mainstem.metadata.index_definitions import Definitions, read_definitions
from mainstem.metadata.metadata_partitions import (
    ALL_PARTITIONS,
    FILES,
    RECORD_INDEX,
    Content,
    Kind,
    content_of,
    data_partition_of,
    group_index,
    in_keys,
    in_paths,
    is_partitioned_group,
    kind_of,
    ready_partitions,
)
from mainstem.metadata.metafile import Metafile, read_metafile
from mainstem.metadata.records.flat_rows import SCHEMAS, decode, encode
from mainstem.metadata.records.group_logs import open_native_hfile
from mainstem.metadata.records.newest_values import OF_KEYS, Piece, Recoder, newest_values
from mainstem.metadata.records.recent_rows import FileRows, RecentRows
from mainstem.metadata.records.row_keys import V2, file_groups, hashed_texts
from mainstem.metadata.records.row_merging import Block, merge, shown
from mainstem.metadata.valid_instants import AheadOfView, Validity
from mainstem.options.metadata import LAYOUT_CLASS, METADATA
from mainstem.options.tables import TABLE_VERSION
from mainstem.storage import maps, paths
from mainstem.storage.final_files import final_ranges, read_final, view_final
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.commit_metadata import CommitMetadata, decode_commit
from mainstem.timeline.instant import CLEAN, COMMIT, COMPACTION, DELTACOMMIT, Instant
from mainstem.timeline.plans import load_compaction_plan

Keep = Callable[[pa.Array], pa.Array]
_VERSIONS = tuple(map(str, READABLE_VERSIONS))
# Most bytes of log blocks that are decoded together.
_JOINED_BYTES = 32 * limits.MIB
#: so many small blocks are read together
_READ_TOGETHER = 64
#: so many rows found in several file groups are decoded and merged together
_MERGED_TOGETHER = 16 * limits.KIB

Select = Callable[[HFile], "tuple[pa.BinaryArray, pa.BinaryArray]"]


def open_metadata(
    storage: Storage,
    config: TableConfig,
    timeline: ActiveTimeline,
    *,
    undone: Container[str] = (),
) -> MetadataTable | None:
    """The metadata table as of a view of the data table; None if it has none (``files`` not complete).

    ``storage``, ``config`` and ``timeline`` are the data table's. ``undone``: completed instants that the
    view leaves out. Raises ``CorruptTable`` if the folder or its properties are missing or damaged,
    ``Unsupported`` for layouts of other Hudi releases.
    """
    if FILES not in ready_partitions(config.raw):
        return None
    folder = FolderStorage(storage, paths.METADATA)
    archive = Archive.load(folder, own_config(folder).history)
    own = load_timeline(folder)
    validity = Validity(timeline, own, archive.completion_time, undone)
    return MetadataTable(folder, config, read_definitions(storage, config), own, archive, validity)


def own_config(folder: FolderStorage) -> TableConfig:
    """The metadata table's own properties; raises like ``open_metadata``."""
    try:
        found = load_config(folder)
    except Invalid:
        raise CorruptTable(
            "hoodie.properties names a metadata table, but there is none; drop its indexes"
            " (Table.drop_index, mainstem index drop) and create them again, or read with"
            f" {METADATA}=false",
            path=folder.outer(paths.PROPERTIES),
        ) from None
    version = found.raw.get(TABLE_VERSION, "").strip()
    if version not in _VERSIONS or found.raw.get(LAYOUT_CLASS, "").strip():
        raise Unsupported(
            f"a metadata table of version {version!r:.20} with {LAYOUT_CLASS}="
            f"{found.raw.get(LAYOUT_CLASS, '')!r:.100}; versions 8, 9 and 10 without it can be"
            " read"
        )
    return found


@dataclass
class MetadataTable:
    """The metadata table at one moment. ``folder``: its storage; ``config``: the data table's; ``timeline``,
    ``archive``: its own; ``whole``: a missing file is an error instead of fewer rows;
    ``recent``: what this process wrote lately, as a writer knows it."""

    folder: FolderStorage
    config: TableConfig
    definitions: Definitions
    timeline: ActiveTimeline
    archive: Archive
    validity: Validity
    whole: bool = True
    recent: RecentRows | None = None
    _groups: dict[str, list[FileGroup]] = field(default_factory=dict)
    #: path -> what tells a file from others that had its name: a metadata table that is made anew starts with
    #: the same names
    _signs: dict[str, tuple[str | None, int, int]] = field(default_factory=dict)
    #: content and schema -> values that compactions of this table have encoded
    _recoders: dict[tuple[Content, str], Recoder] = field(default_factory=dict)

    def reopened(self) -> MetadataTable:
        """The same for the same view of the data, with its own timeline listed again."""
        return self._as_of(load_timeline(self.folder))

    def _as_of(self, own: ActiveTimeline) -> MetadataTable:
        validity = self.validity.with_own(own)
        return replace(self, timeline=own, validity=validity, _groups={}, _signs={})

    def refreshed(self) -> MetadataTable:
        """The same as of now: this one, unless its own timeline has changed."""
        own = load_timeline(self.folder)
        same = own.names == self.timeline.names and not any(i.action == CLEAN for i in own.pending)
        return self if same else self._as_of(own)

    # ------------------------------------------------------------------------------------- questions

    @property
    def partitions(self) -> tuple[str, ...]:
        """Complete partitions (an ``indexing`` action may still be catching up, see RFC-45)."""
        return ready_partitions(self.config.raw)

    def content(self, partition: str) -> Content:
        """The kind of a partition's rows. Raises ``Unsupported`` for an unknown partition."""
        definition = self.definitions.get(partition)
        found = content_of(partition, definition.index_type if definition is not None else "column_stats")
        if found is None:
            raise Unsupported(f"the partition {partition!r:.100} of the metadata table is not Hudi 1.2's")
        return found

    def read(self, partition: str) -> pa.Table:
        """All rows of a partition (``records.flat_rows.SCHEMAS``), each key once, without deleted ones."""
        return self._rows(partition, self.slices(partition), None, None)

    def lookup(self, partition: str, keys: pa.Array, *, data_partition: str | None = None) -> pa.Table:
        """The rows with these keys; reads only the file groups that the keys' hashes determine.

        A partitioned record index needs ``data_partition`` (else ``Invalid``). In a data partition unknown to
        it, no keys are found.
        """
        keys = pc.unique(keys.cast(pa.string()))
        slices = self.slices(partition, data_partition)
        split = partition == RECORD_INDEX and any(is_partitioned_group(s.file_id) for s in slices)
        if split and data_partition is None:
            raise Invalid("a look-up in a partitioned record index needs data_partition")
        texts = hashed_texts(keys, self._secondary_version(partition))
        return self._hashed(partition, slices, keys, texts, lambda some: lambda file: file.lookup(some))

    def prefixes(self, partition: str, prefixes: pa.Array) -> pa.Table:
        """The rows whose keys begin with any of these.

        For a secondary index of version V2, pass ``row_keys.secondary_prefixes``: one file group is read for
        each. Otherwise all groups are read.
        """
        prefixes = pc.unique(prefixes.cast(pa.string()))
        slices = self.slices(partition)
        if self._secondary_version(partition) == V2:
            return self._hashed(
                partition, slices, prefixes, prefixes, lambda some: lambda file: file.prefixes(some), True
            )
        ordered = _sorted(prefixes)
        return self._rows(partition, slices, lambda file: file.prefixes(ordered), _starting(prefixes))

    def files(self, wanted: Callable[[str], bool] | None = None) -> dict[str, dict[str, int]]:
        """Partition path -> name -> size of all data files that the metadata table lists.

        ``wanted``: of these partitions only, which are then looked up by key.
        """
        if wanted is None:
            return _by_partition(self.read(FILES))
        every = _by_partition(self.lookup(FILES, pa.array([ALL_PARTITIONS])))
        kept = [partition for partition in every if wanted(partition)]
        if not kept:
            return {}
        found = _by_partition(self.lookup(FILES, pa.array([in_keys(partition) for partition in kept])))
        return {partition: found.get(partition, {}) for partition in kept}

    def listing(self, partition: str) -> dict[str, int]:
        """Name -> size of the files in one partition ("" in a non-partitioned table)."""
        found = self.lookup(FILES, pa.array([in_keys(partition)]))
        return _by_partition(found).get(partition, {})

    def data_partitions(self) -> list[str]:
        """Paths of all partitions of the data table."""
        found = self.lookup(FILES, pa.array([ALL_PARTITIONS]))
        return sorted(in_paths(name) for name in found["name"].to_pylist())

    # --------------------------------------------------------------------------------------- its files

    def groups(self, partition: str, *, visible_only: bool = True) -> list[FileGroup]:
        """File groups of a partition, by file id.

        ``AheadOfView`` if a compaction is ahead of the view: plan the query again.
        """
        if visible_only and partition in self._groups:
            return self._groups[partition]
        index = read_metafile(self.folder.inner, partition)
        entries = [entry for entry in self.folder.entries(partition) if not entry.is_folder]
        sizes = {entry.name: entry.size for entry in entries}
        names = list(sizes)
        bases = (base.instant for base in map(paths.parse_hfile_name, names) if base is not None)
        if visible_only and any(map(self.validity.ahead, bases)):
            raise AheadOfView("the metadata table was compacted since the timeline was listed")
        found = group_files(
            partition,
            names,
            self.validity.completion,
            self._compactions(partition),
            visible_only=visible_only,
            parse_base=paths.parse_hfile_name,
        )
        found = [group for group in found if index.has(group.file_id)]
        if visible_only:
            if self.whole:
                self._check_whole(index, sizes)
            for entry in entries:
                path = paths.in_partition(partition, entry.name)
                self._signs[path] = (index.instant, entry.size, entry.mtime_ms)
            self._groups[partition] = found
        return found

    def _check_whole(self, index: Metafile, sizes: Mapping[str, int]) -> None:
        """Raise ``CorruptTable`` if a file that the newest slices of an index need is missing, or shorter
        than the commit that wrote it says: its rows would be missing from answers."""
        done = self.validity.completion
        since = self._began(index, sizes)
        written = CommittedFiles.of(
            self.folder,
            [
                i
                for i in self.timeline.completed
                if i.action in (COMMIT, DELTACOMMIT)
                and (i.completion or "") >= since
                and done(i.requested) is not None
                and (i.action == COMMIT or self.validity.counts(i.requested))
            ],
            self._commit,
            paths.parse_hfile_name,
        )
        lost = written.missing(index.partition, sizes.keys(), done, parse_base=paths.parse_hfile_name)
        told = written.by_partition.get(index.partition, {}).values()
        damaged = [file for file in lost if index.has(file.file_id)]
        damaged += [file for file in told if file.name in sizes and sizes[file.name] < file.size]
        # An instant completed, rolled back or planned since may have removed files: then this proves nothing.
        if damaged and load_timeline(self.folder).names == self.timeline.names:
            file = damaged[0]
            now = f"has {sizes[file.name]}" if file.name in sizes else "is gone"
            raise CorruptTable(
                f"the metadata table is damaged: the instant {file.instant} wrote {file.size} bytes into this"
                f" file, which {now}",
                path=self.folder.outer(paths.in_partition(index.partition, file.name)),
                instant=file.instant,
            )

    def _began(self, index: Metafile, names: Iterable[str]) -> str:
        """A time before which no completed instant's files are needed: since then the index was made, or all
        its groups got newer base files."""
        made = self.validity.completion(index.instant) if index.instant else None
        newest: dict[str, str] = {}
        for base in filter(None, map(paths.parse_hfile_name, names)):
            if index.has(base.file_id) and self.validity.completion(base.instant) is not None:
                newest[base.file_id] = max(newest.get(base.file_id, ""), base.instant)
        return max(made or "", min(newest.values(), default=""))

    def _commit(self, instant: Instant) -> CommitMetadata | None:
        path = paths.timeline_file(instant.file_name)
        try:
            data = read_final(self.folder, path, max_bytes=limits.TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:  # archived or rolled back since the listing
            return None
        return decode_commit(data, path=self.folder.outer(path))

    def slices(self, partition: str, data_partition: str | None = None) -> list[FileSlice]:
        """The newest slice of each file group, in the order of group numbers, as hashes of keys count them.

        ``data_partition``: only its groups of a partitioned record index.
        """
        groups, content = self.groups(partition), self.content(partition)
        # With these, what is not listed does not exist; with statistics, a file without any is still read.
        told = content in (Content.FILES, Content.RECORDS, Content.SECONDARY)
        if told and not groups and not self.definitions.partitioned_record_index:
            raise self._damaged("a partition without a file group", partition)
        if partition == RECORD_INDEX and any(is_partitioned_group(g.file_id) for g in groups):
            if data_partition is None:
                return [s for s in (query_slice(g, None) for g in groups) if s is not None]
            groups = [g for g in groups if data_partition_of(g.file_id) == data_partition]
        numbers = [group_index(group.file_id) for group in groups]
        if numbers != list(range(len(numbers))):
            raise self._damaged(f"the file groups {numbers}, expected 0 to {len(numbers) - 1}", partition)
        found = [query_slice(group, None) for group in groups]
        if None in found:
            raise self._damaged("a file group without a file that is committed", partition)
        return [s for s in found if s is not None]

    def _compactions(self, partition: str) -> dict[str, str]:
        planned = {}
        for instant in self.timeline.pending:
            if instant.action == COMPACTION:
                for operation in load_compaction_plan(self.folder, instant.requested):
                    if operation.partition == partition:
                        planned[operation.file_id] = instant.requested
        return planned

    def _damaged(self, what: str, partition: str) -> CorruptTable:
        return CorruptTable(f"the metadata table is damaged: {what}", path=self.folder.outer(partition))

    # ---------------------------------------------------------------------------------------- its rows

    def slice_rows(self, found: FileSlice) -> pa.Table:
        """All rows of a slice, each key once, tombstones included: the content of its compaction."""
        return self.slice_content(found).rows

    def slice_content(self, found: FileSlice) -> SliceContent:
        """What ``slice_rows`` is made of, with what the slice's files say of themselves; each file is read
        once."""
        try:
            base, pieces = self._opened(found, None, None)
            held = [piece.file for piece in pieces if isinstance(piece, Whole)]
            read = [piece for piece in pieces if isinstance(piece, Encoded)]
            deleted = sum(len(piece) for piece in pieces if isinstance(piece, pa.Array))
            texts = [file.schema_text for file in held] + [piece.schema_text for piece in read]
            path = self.folder.outer(paths.in_partition(found.partition, found.base_file or ""))
            lower = [] if base is None else [_encoded(base, None, path)]
            both = _Found(lower, list(_read_together(pieces, None)))
        except FileNotFoundError as error:
            raise self._damaged(f"a file is gone ({error})", found.partition) from None
        count = deleted + sum(file.entry_count for file in held) + sum(len(piece.keys) for piece in read)
        schemas = frozenset([one.schema_text for one in lower] + texts)
        return SliceContent(self.content(found.partition), both, schemas, count, self._recoders)

    def _rows(
        self, partition: str, slices: Sequence[FileSlice], select: Select | None, keep: Keep | None
    ) -> pa.Table:
        content = self.content(partition)
        parts = side_by_side(self.folder, lambda s: self._merged(content, s, select, keep), slices)
        return shown(content, pa.concat_tables(parts)) if parts else SCHEMAS[content].empty_table()

    def _hashed(
        self,
        partition: str,
        slices: Sequence[FileSlice],
        keys: pa.Array,
        texts: pa.Array,
        select: Callable[[pa.Array], Select],
        starting: bool = False,
    ) -> pa.Table:
        content = self.content(partition)
        numbers = file_groups(texts, len(slices))
        wanted = [(n, _sorted(keys.filter(pa.array(numbers == n)))) for n in np.unique(numbers).tolist()]
        wanted = wanted if slices else []

        def one(item: tuple[int, pa.Array]) -> _Found:
            number, some = item
            keep = _starting(some) if starting else _among(some)
            return self._found(slices[number], select(some), keep)

        found = side_by_side(self.folder, one, wanted)
        if sum(some.rows for some in found) <= _MERGED_TOGETHER:
            found = _in_one(found)  # each key lives in one file group
        parts = side_by_side(self.folder, lambda some: some.merged(content), found)
        return shown(content, pa.concat_tables(parts)) if parts else SCHEMAS[content].empty_table()

    def _merged(
        self, content: Content, found: FileSlice, select: Select | None, keep: Keep | None
    ) -> pa.Table:
        return self._found(found, select, keep).merged(content)

    def _found(self, found: FileSlice, select: Select | None, keep: Keep | None) -> _Found:
        """The selected rows of a slice, not decoded yet."""
        base = None
        try:
            opened, pieces = self._opened(found, select, keep)
            if opened is not None and found.base_file is not None:
                path = self.folder.outer(paths.in_partition(found.partition, found.base_file))
                base = _encoded(opened, select, path)
            return _Found([] if base is None else [base], list(_read_together(pieces, keep)))
        except FileNotFoundError as error:
            raise self._damaged(f"a file is gone ({error})", found.partition) from None

    def _opened(
        self, found: FileSlice, select: Select | None, keep: Keep | None
    ) -> tuple[HFile | None, list[Encoded | Whole | pa.Array]]:
        """The base file, and the selected rows of the log files; those of small blocks are to be selected."""
        base = None
        if found.base_file is not None:
            base = self._open(paths.in_partition(found.partition, found.base_file), whole=select is None)
        logs = (paths.in_partition(found.partition, name) for name in found.log_files)
        notes = [note for path in logs for note in self._pieces(path, select, keep)]
        if any(note.replaces for note in notes):  # of log compactions, which Java makes
            notes = surviving(note for note in notes if all(map(self.validity.counts, note.replaces)))
        return base, [note.block for note in notes if not isinstance(note.block, pa.Array) or len(note.block)]

    def _open(self, path: str, *, whole: bool) -> HFile:
        """A base file; from a store that serves ranges, only what will be looked up in it."""
        outer, run = self.folder.outer(path), partial(side_by_side, self.folder)
        ranges = None if whole else final_ranges(self.folder, path, self._signs.get(path))
        if ranges is None:
            return open_hfile(self._view(path), path=outer, run=run)
        return open_hfile(Ranges(ranges.size, ranges.part, ranges.prefetch), path=outer, run=run)

    def _view(self, path: str) -> memoryview:
        sign = self._signs.get(path)
        return maps.view(self.folder, path) if sign is None else view_final(self.folder, path, sign)

    def _pieces(self, path: str, select: Select | None, keep: Keep | None) -> Sequence[BlockNote]:
        """The selected rows of a log file's blocks that count; the keys of DELETE blocks."""
        log = paths.parse_log_name(path.rpartition("/")[2])
        if log is None or not self.validity.counts(log.instant):
            return []
        where = self.folder.outer(path)
        if (known := self._known(path)) is not None:
            mine = Encoded(known.keys, known.plain_values, known.schema_text, where)
            return [BlockNote(log.instant, mine if select is None or keep is None else mine.only(keep))]
        if log.is_native:
            return self._native_pieces(log, path, select, keep)
        made: list[BlockNote] = []
        for block in read_blocks(self._view(path), path=where):
            if not self.validity.counts(block.instant):
                continue
            piece: Encoded | Whole | pa.Array
            if block.kind == BlockKind.DELETE:
                keys = block.deletes()["record_key"].combine_chunks()
                if not len(keys):  # a group's first
                    continue
                piece = keys if keep is None else keys.filter(keep(keys))
            else:
                file = _hfile_of(block)
                small = select is None or file.is_small
                piece = Whole(file, where) if small else _encoded(file, select, where)
            made.append(BlockNote(block.instant, piece, replaces=replaced_by(block.headers)))
        return made

    def _known(self, path: str) -> FileRows | None:
        sign = self._signs.get(path)
        return None if self.recent is None or sign is None else self.recent.get(path, sign[1])

    def _native_pieces(
        self, log: paths.LogName, path: str, select: Select | None, keep: Keep | None
    ) -> list[BlockNote]:
        """As ``_pieces``, of a native log file: an HFile that is one block."""
        where = self.folder.outer(path)
        file, instant, replaces = open_native_hfile(self._view(path), log, path=where)
        if not file.entry_count or not self.validity.counts(instant):  # a group's first has no rows
            return []
        if not log.is_deletes:
            small = select is None or file.is_small
            rows = Whole(file, where) if small else _encoded(file, select, where)
            return [BlockNote(instant, rows, replaces=replaces)]
        try:
            keys = file.rows()[0].cast(pa.string())
        except pa.ArrowInvalid as error:
            raise CorruptTable(f"deleted keys that are no text: {error}", path=where) from error
        gone = keys if keep is None else keys.filter(keep(keys))
        return [BlockNote(instant, gone, replaces=replaces)]

    def _secondary_version(self, partition: str) -> str | None:
        if kind_of(partition) != Kind.SECONDARY_INDEX:
            return None
        return self.definitions.secondary_version(partition)


@dataclass(frozen=True)
class SliceContent:
    """The content of a file slice, the Avro schemas of its files, and how many rows and deletes its log files
    hold."""

    content: Content
    found: _Found
    schema_texts: frozenset[str]
    log_rows: int
    recoders: dict[tuple[Content, str], Recoder]

    @property
    def rows(self) -> pa.Table:
        """The rows, each key once, tombstones included."""
        return self.found.merged(self.content)

    def encoded(self, schema_text: str, file_name: str) -> tuple[pa.Array, pa.Array]:
        """Keys and values of ``rows`` as a base file of this name holds them, sorted by key."""
        made = self._newest(schema_text, file_name) if self.content in OF_KEYS else None
        return made or encode(self.content, self.rows, schema_text, file_name=file_name)

    def _newest(self, schema_text: str, file_name: str) -> tuple[pa.Array, pa.Array] | None:
        recoder = self.recoders.setdefault((self.content, schema_text), Recoder(self.content, schema_text))
        pieces = [*self.found.base, *self.found.logs]
        try:
            base = "".join(one.path.rpartition("/")[2] for one in self.found.base)
            return newest_values([_piece(piece) for piece in pieces], recoder, file_name, base)
        except (CorruptTable, pa.ArrowInvalid):
            for piece in pieces:  # find the damaged one
                if isinstance(piece, Encoded):
                    piece.decoded(self.content)
            raise


def _piece(found: Encoded | pa.Array) -> Piece | pa.Array:
    return Piece(found.keys, found.values, found.schema_text) if isinstance(found, Encoded) else found


@dataclass(frozen=True)
class Encoded:
    """Rows of a file or block, not yet decoded; or of several blocks, ``parts``."""

    keys: pa.Array
    values: pa.Array
    schema_text: str
    path: str
    parts: Sequence[Whole] = ()

    def only(self, keep: Keep) -> Encoded:
        """The rows with wanted keys."""
        mask = keep(self.keys)
        return replace(self, keys=self.keys.filter(mask), values=self.values.filter(mask))

    def decoded(self, content: Content) -> pa.Table:
        """The decoded rows."""
        try:
            return decode(content, self.keys, self.values, self.schema_text, path=self.path)
        except CorruptTable:
            for one in self.parts:  # find the damaged one
                _encoded(one.file, None, one.path).decoded(content)
            raise


@dataclass(frozen=True)
class Whole:
    """All rows of a log block, not read yet."""

    file: HFile
    path: str


@dataclass(frozen=True)
class _Found:
    """Rows found in file slices, not decoded yet: in base files, and in log files in merge order."""

    base: list[Encoded]
    logs: list[Encoded | pa.Array]

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(len(one) if isinstance(one, pa.Array) else len(one.keys) for one in self.base + self.logs)

    def merged(self, content: Content) -> pa.Table:
        """The rows, each key once, tombstones included."""
        below = [block.rows for block in decoded_blocks(content, self.base) if block.rows is not None]
        return merge(content, pa.concat_tables(below) if below else None, decoded_blocks(content, self.logs))


def _in_one(found: Sequence[_Found]) -> list[_Found]:
    """What was found in slices with different keys, as if in one: decoding has a fixed cost."""
    base = list(chain.from_iterable(one.base for one in found))
    logs = list(chain.from_iterable(one.logs for one in found))
    return [_Found(base, logs)] if found else []


def _read_together(
    pieces: Iterable[Encoded | Whole | pa.Array], keep: Keep | None
) -> Iterator[Encoded | pa.Array]:
    """Reads whole blocks, runs of them with one schema together: most hold a few rows. ``keep``: which of
    their keys are wanted; None: all."""
    waiting: list[Whole] = []
    for piece in pieces:
        if waiting and not (
            isinstance(piece, Whole)
            and len(waiting) < _READ_TOGETHER
            and piece.file.schema_text == waiting[0].file.schema_text
        ):
            yield from _read(waiting, keep)
            waiting = []
        if isinstance(piece, Whole):
            waiting.append(piece)
        else:
            yield piece
    yield from _read(waiting, keep)


def _read(run: Sequence[Whole], keep: Keep | None) -> Iterator[Encoded]:
    rows = rows_of_all([one.file for one in run]) if len(run) > 1 else None
    if rows is None:
        read: Iterable[Encoded] = (_encoded(one.file, None, one.path) for one in run)
    else:
        read = [Encoded(*rows, run[0].file.schema_text, run[0].path, tuple(run))]
    yield from read if keep is None else (one.only(keep) for one in read)


def _encoded(file: HFile, select: Select | None, path: str) -> Encoded:
    keys, values = file.rows() if select is None else select(file)
    return Encoded(keys, values, file.schema_text, path)


def decoded_blocks(content: Content, pieces: Sequence[Encoded | pa.Array]) -> list[Block]:
    """Blocks in merge order. Neighbours with one schema are decoded together, since a block of few rows costs
    as much as one of many."""
    made: list[Block] = []
    waiting: list[Encoded] = []
    size = 0

    def flush() -> None:
        if waiting:
            several = len(waiting) > 1 or bool(waiting[0].parts)
            made.append(Block(rows=_joined(content, waiting), joined=several))
            waiting.clear()

    for piece in pieces:
        if isinstance(piece, pa.Array):
            flush()
            made.append(Block(deletes=piece))
            continue
        if waiting and (waiting[0].schema_text != piece.schema_text or size > _JOINED_BYTES):
            flush()
        size = piece.values.nbytes + (size if waiting else 0)
        waiting.append(piece)
    flush()
    return made


def _joined(content: Content, pieces: Sequence[Encoded]) -> pa.Table:
    if len(pieces) == 1:
        return pieces[0].decoded(content)
    first = pieces[0]
    keys, values = (pa.concat_arrays([getattr(p, name) for p in pieces]) for name in ("keys", "values"))
    try:
        return Encoded(keys, values, first.schema_text, first.path).decoded(content)
    except CorruptTable:
        for piece in pieces:  # find the damaged one
            piece.decoded(content)
        raise


def _among(keys: pa.Array) -> Keep:
    return lambda found: pc.is_in(found, value_set=keys.cast(found.type))


def _starting(prefixes: pa.Array) -> Keep:
    """A mask of keys that begin with any of these, found per length of prefixes, of which there are few."""
    sizes = pc.binary_length(prefixes.cast(pa.binary()))
    groups = [prefixes.filter(pc.equal(sizes, size)).cast(pa.binary()) for size in pc.unique(sizes)]

    def keep(found: pa.Array) -> pa.Array:
        plain = found.cast(pa.binary())
        hits = np.zeros(len(found), bool)
        for some in groups:
            size = len(some[0].as_py())
            cut = pc.binary_slice(plain, 0, size)
            hits |= pc.is_in(cut, value_set=some).to_numpy(zero_copy_only=False)
        return pa.array(hits)

    return keep


def _sorted(keys: pa.Array) -> pa.Array:
    """The keys sorted by unsigned bytes, like files."""
    plain = keys.cast(pa.binary())
    return plain.take(pc.sort_indices(plain))


def _hfile_of(block: LogBlock) -> HFile:
    if block.kind != BlockKind.HFILE_DATA:
        raise Unsupported(f"a {block.kind.name} block in the metadata table ({block.path} at {block.offset})")
    return block.hfile()


def _by_partition(rows: pa.Table) -> dict[str, dict[str, int]]:
    """Names and sizes by partition path; partitions without files come from the row of all partitions.

    ``CorruptTable`` if a partition has the same name as that row, which Java does not refuse: it would be two
    rows in one.
    """
    found: dict[str, dict[str, int]] = {}
    columns = (rows[name].to_pylist() for name in ("key", "name", "size"))
    for key, name, size in zip(*columns, strict=True):
        if key == name == ALL_PARTITIONS:
            raise CorruptTable(f"a partition of the data is called {name!r}", path=paths.METADATA)
        if key == ALL_PARTITIONS:
            found.setdefault(in_paths(name), {})
        else:
            found.setdefault(in_paths(key), {})[name] = size
    return found
