"""Stages rows before their commit's instant is known: finished log blocks with a placeholder stamp.

A streaming engine writes rows in workers, but commits a checkpoint only when it is complete, much later and
perhaps in another process. So a worker encodes its rows as final log blocks in a private file, with a random
*stamp* of 17 characters in place of the instant's time (commit time, sequence numbers, block headers). One
line of JSON, the *committable*, describes the file. ``Transaction.add_staged`` takes such lines and copies
each bucket's blocks from the staged files into its log file, replacing the stamp with the instant.

  stage        file ``<sink>/staged/<stamp>`` with all blocks -> durable -> its folder durable -> the line
  add_staged   line and file are checked -> per bucket: partition metafile, marker, log file, blocks
               in the order of the lines

On a table without buckets, and under consistent hashing, the file holds plain rows (``unplaced_rows``), and
the commit puts them where their keys live by then. There are no stamped blocks then.

A line may take another's place (``instead``): the worker learnt meanwhile that some of its rows do not count.
It does so only among lines that are added together. If they are not, the other line was committed before, by
itself, and the later one is left out.

A worker that dies leaves a file without a line, which no process reads; the engine that keeps the lines
must remove it. Blocks are put in place whole: neither side merges rows, so that a table with partial updates,
ordering fields or deletes behaves as if the batch had been written in the transaction.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.log_file import BlockKind, LogBlock, read_blocks
from mainstem.layout.buckets import file_id_bucket
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.options.writing import BLOCK_FORMAT
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.truetime.seams import Randomness, Seams
from mainstem.writers.append import BucketAppender, FileIds
from mainstem.writers.encode_rows import Blocks, BucketEncoder, Place
from mainstem.writers.row_order import key_turns
from mainstem.writers.rows_in import as_table
from mainstem.writers.transaction_schema import declare
from mainstem.writers.unplaced_rows import Segment, segment_of, segments_of_file
from mainstem.writers.write_spec import DELETE, OF_BASE_FILES, WriteSpec

# Of lines with pieces, with segments, and instead of others: a release that does not know a version says so.
_VERSION, _UNPLACED_VERSION, _INSTEAD_VERSION = 1, 2, 3
# All written bytes are searched for the stamp. The search skips far at a byte that no stamp contains. Most
# rows consist of small letters and digits, so stamps consist of capital letters, which share no low bits with
# them.
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_STAMP_LENGTH = 17
# How often a row of a log block names its instant: in its commit time and in its sequence number.
_PER_ROW = 2
_STAMPS_MAX = 5
_COUNT_MAX = 2**53


@dataclass(frozen=True)
class Piece:
    """Consecutive blocks of one bucket in a staged file."""

    partition: str
    bucket: int
    #: the file group that the rows name
    file_id: str
    writes: int
    deletes: int
    blocks: int
    size: int


@dataclass(frozen=True)
class Committable:
    """What a line says: the staged file, and in its order the pieces that make it up."""

    #: which table, with which keys and buckets, the rows are for (``table_mark``)
    table: str
    sink: str
    stamp: str
    operation: str
    order: str
    pieces: tuple[Piece, ...] = ()
    #: of a table without buckets, in place of pieces
    segments: tuple[Segment, ...] = ()
    #: the stamp of the file whose place this line takes; without rows it has no file (and stamp) of its own
    instead: str = ""

    @property
    def path(self) -> str:
        """Path of the staged file."""
        return paths.staged_file(self.sink, self.stamp)

    @property
    def rows(self) -> int:
        """Rows written and keys deleted."""
        unplaced = sum(segment.rows for segment in self.segments)
        return unplaced + sum(piece.writes + piece.deletes for piece in self.pieces)

    @property
    def size(self) -> int:
        """Size of the staged file in bytes."""
        return sum(piece.size for piece in self.pieces) + sum(segment.size for segment in self.segments)

    def line(self) -> str:
        """JSON, without a line feed. Field names are short: an engine keeps lines in its checkpoints."""
        record: dict[str, object] = {
            "v": _UNPLACED_VERSION if self.segments else _VERSION, "table": self.table, "sink": self.sink,
            "file": self.stamp, "op": self.operation, "order": self.order,
        }  # fmt: skip
        if self.instead:
            record.update(v=_INSTEAD_VERSION, instead=self.instead)
        if self.segments:
            record["segments"] = [segment.record() for segment in self.segments]
        else:
            record["pieces"] = [list(asdict(piece).values()) for piece in self.pieces]
        return json.dumps(record, separators=(",", ":"))


def parse_line(line: str, *, source: str) -> Committable:
    """The committable in a line. ``source``: where it was read. Raises ``CorruptTable``."""
    try:
        record = json.loads(line)
        if record["v"] not in (_VERSION, _UNPLACED_VERSION, _INSTEAD_VERSION):
            raise Unsupported(
                f"a committable of version {record['v']!r}, expected at most {_INSTEAD_VERSION}:"
                " another release of mainstem"
                " wrote it; commit it with that release"
            )
        replaces = record["v"] == _INSTEAD_VERSION
        unplaced = "segments" in record if replaces else record["v"] == _UNPLACED_VERSION
        instead = record["instead"] if replaces else ""
        pieces = () if unplaced else tuple(Piece(*fields) for fields in record["pieces"])
        segments = tuple(map(Segment.parsed, record["segments"])) if unplaced else ()
        names = (record["table"], record["sink"], record["file"], record["op"], record["order"])
        for piece in pieces:
            _check_piece(piece, source)
        is_text = all(isinstance(name, str) for name in names)
        is_named = is_text and (paths.is_stamp(names[2]) if pieces or segments else instead and not names[2])
        if not is_named or (replaces and not _is_stamp(instead)):
            raise ValueError("a field is missing or of another type")
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise CorruptTable(
            f"a committable does not parse ({error}): {line[:200]!r}; nothing was committed. It says which"
            " rows a checkpoint wrote, so do not remove it: restore the file from a copy",
            path=source,
        ) from error
    return Committable(*names, pieces, segments, instead)


def _is_stamp(value: object) -> bool:
    return isinstance(value, str) and paths.is_stamp(value)


def _check_piece(piece: Piece, source: str) -> None:
    numbers = (piece.bucket, piece.writes, piece.deletes, piece.blocks, piece.size)
    if any(type(n) is not int or not 0 <= n <= _COUNT_MAX for n in numbers):
        raise ValueError(f"numbers {numbers}")
    if not isinstance(piece.partition, str) or not isinstance(piece.file_id, str):
        raise ValueError("a name is no text")
    if piece.partition:
        paths.inside(piece.partition, source=source)
    if piece.partition.split("/")[0] == paths.HOODIE or file_id_bucket(piece.file_id) != piece.bucket:
        raise ValueError(f"no place for rows: {piece.partition!r}, {piece.file_id!r}")
    if not piece.blocks or not piece.writes + piece.deletes or not piece.size:
        raise ValueError("a piece without rows")


# -- what is agreed on --------------------------------------------------------------------------------


def staging_spec(storage: Storage, random: Randomness, spec: WriteSpec, schema: pa.Schema) -> WriteSpec:
    """What workers need to stage rows of these columns and types; picklable.

    Raises ``Unsupported`` for what cannot be staged, ``Invalid`` for columns that the table cannot hold.
    """
    if spec.operation in OF_BASE_FILES:
        raise Unsupported(
            "bulk_insert cannot be staged: it writes base files of buckets that have none at its commit;"
            " use upsert or insert",
            table=spec.base,
        )
    if spec.block_format != "avro" and not spec.staged_as_rows:
        raise Unsupported(
            f"{BLOCK_FORMAT}={spec.block_format}: rows are staged before their commit's"
            " time is known, which can be put into avro blocks later and not into compressed ones; set it"
            " to avro for this writer (blocks of both kinds may stand in one table)",
            table=spec.base,
        )
    return replace(declare(spec, schema), identity=table_identity(storage, random))


def table_identity(storage: Storage, random: Randomness) -> str:
    """A text that identifies this table; no other table has it, not even a later one at the same path.

    Made at the first call. A copy of the table's folder has the same.
    """
    while True:
        try:
            data = storage.read(paths.TABLE_IDENTITY, max_bytes=PROPERTIES_BYTES_MAX)
            return data.decode("ascii", "replace")
        except FileNotFoundError:
            made = f"{random.getrandbits(128):032x}"
        if create_once(storage, paths.TABLE_IDENTITY, made.encode(), durable=True):
            storage.settle([], [paths.HOODIE, paths.OWN], durable=True)


def table_mark(spec: WriteSpec, identity: str) -> str:
    """What staged rows and the table must agree on: where each row's key puts it."""
    decided = [identity, spec.buckets, spec.hash_fields, asdict(spec.keys)]
    if spec.bucket_rules is not None:
        decided.append(spec.bucket_rules.expressions)
    decisive = json.dumps(decided, sort_keys=True)
    return hashlib.sha256(decisive.encode()).hexdigest()[:16]


# -- in workers ---------------------------------------------------------------------------------------


class Stager:
    """Stages batches of one worker. ``spec`` is what ``Table.staging_spec`` gave. Not thread-safe.

    ``sink`` names the folder; writers of one sink take turns at nothing and never meet.
    """

    def __init__(self, storage: Storage, spec: WriteSpec, sink: str, random: Randomness) -> None:
        if not spec.identity:
            raise Invalid("rows are staged with the spec of Table.staging_spec", table=spec.base)
        self._storage = storage
        self._spec = spec
        self._sink = sink
        self._random = random
        self._mark = table_mark(spec, spec.identity)
        self._folder = paths.staged_folder(sink)
        # Rows of all workers end in one commit: its sequence numbers differ by this number.
        self._encoder = BucketEncoder(spec, str(random.getrandbits(31)))
        self._file_ids = FileIds(storage)
        self._settled = False

    def stage(
        self,
        rows: pa.Table | pa.RecordBatch,
        deleted: pa.BooleanArray | None = None,
        order: str = "",
        instead: str = "",
    ) -> str:
        """Write a batch of any buckets, durably; returns the line that commits it, "" for no rows.

        ``deleted`` marks rows that are deletions (with their ordering value, as a row flag's); of several
        rows of a key the later ones count, as far as the table's merge mode says so. ``order`` sorts the
        batches of a commit, as text; those of equal order keep that of their lines. ``instead``: the stamp
        of a file of this worker whose place the batch takes; without rows the file is taken back. Raises
        ``Invalid`` for rows that the table cannot hold, ``OSError`` for trouble with storage; nothing is left
        then.
        """
        try:
            batch = as_table(rows)
            if not batch.num_rows:
                return self._committable("", order, instead=instead).line() if instead else ""
            flags = _flags(deleted, batch.num_rows)
            for _ in range(_STAMPS_MAX):
                made = self._stage(batch, flags, order)
                if made is not None:
                    return replace(made, instead=instead).line()
        except MainstemError as error:
            error.table = error.table or self._spec.base
            raise
        raise Invalid("the rows hold every stamp that was drawn: randomness is broken", table=self._spec.base)

    def _stage(self, batch: pa.Table, deleted: np.ndarray | None, order: str) -> Committable | None:
        """None if the stamp happens to be in the rows."""
        stamp = _stamp(self._random)
        path = paths.staged_file(self._sink, stamp)
        if self._spec.staged_as_rows:
            segment, data = segment_of(self._encoder, batch, deleted)
            self._put(path, data)
            return self._committable(stamp, order, segments=(segment,))
        self._encoder.adopt(replace(self._spec, instant=stamp))
        sink = self._storage.upload(path)
        pieces: list[Piece] = []
        try:
            for piece, data in self._pieces(batch, deleted):
                if data.count(stamp.encode()) != _stamps(piece.writes, piece.blocks):
                    sink.close(durable=False)
                    self._storage.delete(path)
                    return None
                sink.append([data])
                pieces.append(piece)
            sink.close(durable=self._spec.fsync)
            self._settle()
        except BaseException:
            sink.close(durable=False)
            self._storage.delete(path)
            raise
        return self._committable(stamp, order, pieces=tuple(pieces))

    def _committable(self, stamp: str, order: str, **content: Any) -> Committable:
        return Committable(self._mark, self._sink, stamp, self._spec.operation, order, **content)

    def _put(self, path: str, data: bytes) -> None:
        sink = self._storage.upload(path)
        try:
            sink.append([data])
            sink.close(durable=self._spec.fsync)
            self._settle()
        except BaseException:
            sink.close(durable=False)
            self._storage.delete(path)
            raise

    def _pieces(self, batch: pa.Table, deleted: np.ndarray | None) -> Iterator[tuple[Piece, bytes]]:
        for rows, flags in self._in_turns(batch, deleted):
            for slab in self._encoder.split(rows, flags):
                encoded = self._encoder.blocks(slab, self._file_ids)
                for place, blocks in zip(slab.places, encoded, strict=True):
                    data = b"".join(blocks.buffers)
                    file_id = self._file_ids(*place)
                    yield (
                        Piece(*place, file_id, blocks.writes, blocks.deletes, blocks.count, len(data)),
                        data,
                    )

    def _in_turns(
        self, batch: pa.Table, deleted: np.ndarray | None
    ) -> Iterator[tuple[pa.Table, np.ndarray | None]]:
        """Splits the batch where a row follows its key's deletion: deletes follow their batch's rows."""
        return in_turns(self._spec, batch, deleted)

    def _settle(self) -> None:
        if not self._spec.fsync:
            return
        folder = self._folder
        above = [] if self._settled else [paths.HOODIE, paths.OWN, paths.SINKS, folder.rpartition("/")[0]]
        self._storage.settle([], [*above, folder], durable=True)
        self._settled = True


def in_turns(
    spec: WriteSpec, batch: pa.Table, deleted: np.ndarray | None
) -> Iterator[tuple[pa.Table, np.ndarray | None]]:
    """Splits rows where one follows its key's deletion: the deletes of a batch follow its rows."""
    if deleted is None or deleted.all() or spec.keys.made_up:  # whose rows are updated by their own keys
        yield batch, deleted
        return
    turns = key_turns(spec.keys.record_keys(batch).texts, deleted)
    last = int(turns.max())
    for turn in range(last + 1):
        mask = turns == turn
        if last == 0:
            yield batch, deleted
        else:
            yield batch.filter(pa.array(mask)), deleted[mask]


def _stamp(random: Randomness) -> str:
    number, letters = random.getrandbits(88), []
    for _ in range(_STAMP_LENGTH):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return "".join(letters)


def _stamps(writes: int, blocks: int) -> int:
    """How often the blocks name their instant: once per header, and ``_PER_ROW`` times per row."""
    return blocks + _PER_ROW * writes


def _flags(deleted: pa.BooleanArray | None, rows: int) -> np.ndarray | None:
    if deleted is None:
        return None
    if not pa.types.is_boolean(deleted.type) or len(deleted) != rows or deleted.null_count:
        raise Invalid(f"deleted: expected {rows} booleans without nulls, one per row")
    flags = deleted.to_numpy(zero_copy_only=False) if isinstance(deleted, pa.Array) else deleted.to_numpy()
    return flags if flags.any() else None


# -- in the process that commits ----------------------------------------------------------------------


def counting(lines: Iterable[Committable]) -> list[Committable]:
    """Those lines whose rows count: a line that another one replaced does not, nor one that would replace a
    line which is not among these."""
    found: list[Committable | None] = []
    places: dict[str, int] = {}
    for one in lines:
        if one.instead:
            place = places.pop(one.instead, None)
            if place is None:
                continue
            found[place] = None
        if one.stamp:
            places.setdefault(one.stamp, len(found))
            found.append(one)
    return [one for one in found if one is not None]


def append(
    seams: Seams,
    spec: WriteSpec,
    appender: BucketAppender,
    lines: Sequence[Committable],
    schema_seen: Callable[[str], None],
    counts: Callable[[], Iterable[int]] = tuple,
) -> int:
    """Writes staged rows into a transaction's log files; returns the number of rows and deleted keys.

    Calls ``schema_seen`` with the schema of every block. ``counts``: the bucket counts that the table had.
    Rows that were staged by another one than the spec's are encoded again, all in the order of their lines.
    """
    ordered = in_order(seams, spec, lines, counts)
    mark = table_mark(spec, table_identity(seams.storage, seams.random))
    if all(one.table == mark for one in ordered):
        appender.write_encoded(_stamped(seams.storage, ordered, spec.instant, appender.file_id, schema_seen))
    else:
        appender.write_routed(_staged_blocks(seams.storage, ordered, schema_seen))
    return sum(one.rows for one in ordered)


def append_anew(
    seams: Seams,
    appender: BucketAppender,
    lines: Sequence[Committable],
    schema_seen: Callable[[str], None],
) -> int:
    """As ``append``, of blocks that cannot be put as they are: among rows, or into native log files."""
    appender.write_routed(_staged_blocks(seams.storage, lines, schema_seen))
    return sum(one.rows for one in lines)


def _staged_blocks(
    storage: Storage, lines: Iterable[Committable], schema_seen: Callable[[str], None]
) -> Iterator[tuple[str, LogBlock]]:
    """The blocks of staged files, in their order. Raises ``CorruptTable`` as ``_stamped``."""
    for one in lines:
        _check_size(storage, one)
        offset = 0
        for piece in one.pieces:
            for block in _checked_blocks(_read(storage, one, offset, piece), one, offset, piece):
                schema_seen(block.schema_text)
                yield piece.partition, block
            offset += piece.size


def unplaced(storage: Storage, lines: Sequence[Committable]) -> Iterator[tuple[str, pa.Table, np.ndarray]]:
    """What ``unplaced_rows.segments_of_file`` gives, of lines that are in order."""
    for one in lines:
        yield from segments_of_file(storage, one.path, one.segments)


def in_order(
    seams: Seams,
    spec: WriteSpec,
    lines: Sequence[Committable],
    counts: Callable[[], Iterable[int]] = tuple,
) -> list[Committable]:
    """Sorts by ``order``, else keeps the given order. ``counts``: see ``append``. Raises ``Invalid`` for
    another table's rows and for a committable given twice."""
    identity = table_identity(seams.storage, seams.random)
    mark, marks = table_mark(spec, identity), frozenset[str]()
    seen: set[str] = set()
    for one in lines:
        if one.table != mark and not marks:
            marks = frozenset(table_mark(replace(spec, buckets=count), identity) for count in counts())
        if one.table != mark and one.table not in marks:
            raise Invalid(
                f"staged rows ({one.path}) are of another table, or of this one when its keys were"
                f" others: they say {one.table}, expected {mark}. Nothing was committed; rows of a table"
                " that was dropped cannot be committed to one that was made anew: start the job without its"
                " old checkpoint",
                table=spec.base,
            )
        if one.stamp in seen:
            raise Invalid(f"staged rows ({one.path}) are given twice; nothing was committed", table=spec.base)
        if bool(one.segments) != spec.staged_as_rows and not spec.takes_either:
            raise Invalid(f"staged rows ({one.path}) are of a table of another kind", table=spec.base)
        if (one.operation == DELETE) != (spec.operation == DELETE):
            raise Invalid(
                f"staged rows ({one.path}) are of a {one.operation}, the transaction is a {spec.operation}",
                table=spec.base,
            )
        seen.add(one.stamp)
    return sorted(lines, key=lambda one: one.order)


def _stamped(
    storage: Storage,
    lines: Iterable[Committable],
    instant: str,
    file_ids: Callable[[str, int], str],
    schema_seen: Callable[[str], None],
) -> Iterator[tuple[Place, Blocks]]:
    """The blocks of staged files, ready for the log files of ``instant``, bucket by bucket.

    One piece is in memory at a time. Raises ``CorruptTable`` for a staged file that is missing or not what
    its line says.
    """
    by_place: dict[Place, list[tuple[Committable, int, Piece]]] = {}
    for one in lines:
        _check_size(storage, one)
        offset = 0
        for piece in one.pieces:
            place = (piece.partition, piece.bucket)
            by_place.setdefault(place, []).append((one, offset, piece))
            offset += piece.size
    for place in sorted(by_place):
        for one, offset, piece in by_place[place]:
            data = _read(storage, one, offset, piece)
            for block in _checked_blocks(data, one, offset, piece):
                schema_seen(block.schema_text)
            data = _with_instant(data, one.stamp, instant)
            if piece.writes:
                data = _in_group(data, one, piece, file_ids(*place))
            yield place, Blocks([data], piece.writes, piece.deletes, piece.blocks)


def _check_size(storage: Storage, one: Committable) -> None:
    info = storage.stat(one.path)
    if info is None or info.is_folder:
        raise CorruptTable(
            "staged rows are missing: a committable names this file; nothing was committed. If somebody"
            " removed it, its rows are lost: take the job back to a savepoint that was made before",
            path=one.path,
        )
    if info.size != one.size:
        raise _damaged(one, f"{info.size} bytes, its committable says {one.size}")


def _read(storage: Storage, one: Committable, offset: int, piece: Piece) -> bytes:
    try:
        data = storage.read_range(one.path, offset, piece.size)
    except FileNotFoundError:
        raise _damaged(one, "it was removed while it was read") from None
    if len(data) != piece.size:
        raise _damaged(one, f"ends in the middle of a piece of {piece.size} bytes at {offset}")
    return data


def _checked_blocks(data: bytes, one: Committable, offset: int, piece: Piece) -> list[LogBlock]:
    """Its blocks, which must be what the line says, to the last place where the instant belongs."""
    try:
        blocks = read_blocks(memoryview(data), path=one.path)
    except CorruptTable as error:
        raise _damaged(one, error.message) from error
    kinds = {block.kind for block in blocks}
    rows = sum(block.records()[1] for block in blocks if block.kind == BlockKind.AVRO_DATA)
    stamps = data.count(one.stamp.encode())
    found = (len(blocks), rows, {block.instant for block in blocks}, stamps)
    meant = (piece.blocks, piece.writes, {one.stamp}, _stamps(piece.writes, piece.blocks))
    if found != meant or not kinds <= {BlockKind.AVRO_DATA, BlockKind.DELETE}:
        raise _damaged(
            one, f"blocks, rows, stamps and their number at offset {offset} are {found}, expected {meant}"
        )
    return blocks


def _with_instant(data: bytes, stamp: str, instant: str) -> bytes:
    return data.replace(stamp.encode(), instant.encode())


def _in_group(data: bytes, one: Committable, piece: Piece, file_id: str) -> bytes:
    """Rows name their file group; it may have got another name since they were staged."""
    if file_id == piece.file_id:
        return data
    before = piece.file_id.encode()
    if len(file_id) != len(before) or data.count(before) != piece.writes:
        raise Unsupported(
            f"rows of bucket {piece.bucket} of partition {piece.partition!r} were staged for the file group"
            f" {piece.file_id!r}, but another writer has made {file_id!r} meanwhile, whose name cannot be put"
            f" in place ({one.path}); nothing was committed. Load a table before its streams start"
        )
    return data.replace(before, file_id.encode())


def _damaged(one: Committable, what: str) -> CorruptTable:
    return CorruptTable(
        f"staged rows are damaged: {what}; nothing was committed. Restore the file from a copy, or take the"
        " job back to a savepoint that was made before",
        path=one.path,
    )
