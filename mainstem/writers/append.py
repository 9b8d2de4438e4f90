"""Appends rows: splits a batch by bucket and appends blocks to one new log file per bucket and writer.

Order per file: partition metafile, marker, log file (HoodieAppendHandle; protocols 3.2). A log file
belongs to one instant and is invisible until that instant completes.

**Markers.** By them Java's rollback of a writer that died finds its files. Each is an empty file of its own
(Hudi's DIRECT), or a line of a file of many (TIMELINE_SERVER_BASED), in which case Java looks for no others.
So the first files of a transaction decide. Many are put together only where all are known before the first
one is made: then, in this order, the file that tells the kind, one with the line of each file, the files. A
name that turns out to be another (it was taken, or the file got too large) is put into a further one first.
They hold bytes, which a crash of the machine must not take while the files' names stay; so they are durable
before that. Four fsyncs cost as much as some dozens of empty files.

Where there are hard links, the markers of a transaction in one folder are names of one empty file, on a disk
those of all that a process writes (``storage.protocol.Alike``). A file system makes a name much faster than a
file, and without a journal (ext4) it makes files the slower the more were removed in the last minutes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Invalid, MainstemError, RolledBack, Unavailable
from mainstem.formats.log_file import LogBlock
from mainstem.formats.native_log import DELETES, LOG
from mainstem.layout.buckets import file_id_bucket, nbcc_file_id
from mainstem.layout.partitions import metafile_text, nested
from mainstem.layout.stored_rings import Rings
from mainstem.limits import MIB
from mainstem.metadata.commits.written_rows import WrittenRows
from mainstem.options.placing import URL_ENCODE
from mainstem.options.writing import HEARTBEAT_MS
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.links import has_links, links
from mainstem.storage.protocol import EMPTY, Storage, Upload, drop
from mainstem.storage.side_by_side import side_by_side
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.timeline.instant import DELTACOMMIT, REQUESTED
from mainstem.writers.encode_rows import Blocks, BucketEncoder, Place, Slab
from mainstem.writers.open_logs import LogMaker, OpenLog, drop_log
from mainstem.writers.routed_anew import routed
from mainstem.writers.rows_in import as_table
from mainstem.writers.write_spec import WriteSpec

_OPEN_FILES_MAX = 400
# So many markers are put together.
TOGETHER_MIN = 64
# The rows of larger transactions are not kept in memory until the commit.
_WRITTEN_BYTES_MAX = 16 * MIB
# Rows that wait for native log files take so much memory at most, together.
_HELD_BYTES_MAX = 128 * MIB


class BucketAppender:
    """Writes batches of one transaction (or of one task of it). Not thread-safe.

    ``token`` is the write token ``<task partition>-<stage>-<attempt>``; the instant makes names unique
    across writers, the token (``FileTokens``) within the instant. ``known_buckets`` (partition -> buckets
    that were seen with the constant NBCC file id) and ``known_partitions`` (seen with their metafile) may be
    shared by the transactions of a table and save listings. ``surely_alive``: whether no
    process can have rolled back the instant yet.
    """

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        known_buckets: dict[str, set[int]] | None = None,
        known_partitions: set[str] | None = None,
        surely_alive: Callable[[], bool] = lambda: False,
    ) -> None:
        self._storage = storage
        self._spec = spec
        self._tokens = FileTokens(token)
        self.rings = None if spec.rings is None else Rings(storage, spec.buckets, spec.rings)
        self._encoder = BucketEncoder(spec, token.split("-", 1)[0], self.rings)
        self._logs: dict[tuple[str, int], OpenLog] = {}
        self._make_log = LogMaker()
        self._versions: dict[tuple[str, int], int] = {}
        self._file_ids = FileIds(storage, known_buckets)
        self._closed: list[WriteStat] = []
        #: bytes of rows that wait for native log files
        self._unwritten_bytes = 0
        self._folders: set[str] = set()
        #: markers of the files opened so far; the first ``_marked`` of them are there
        self.markers: list[str] = []
        self._marked = 0
        #: folder -> a marker of this appender in it: further ones are names of the same empty file
        self._linked: dict[str, str] = {}
        #: the first batch is the only one
        self.at_once = False
        #: where markers are lines of files: those that are there
        self._lines: set[str] | None = None
        #: partitions that were looked at: whether they had a metafile
        self._known_partitions = set() if known_partitions is None else known_partitions
        self._surely_alive = surely_alive
        #: called once before the first data file is made, perhaps in another thread
        self.before_files: Callable[[], None] | None = None
        #: waits until the instant is durable on the timeline; called once before anything of it is made
        self.begun: Callable[[], None] | None = None
        self._placed: dict[str, bool] = {}
        self.rows = 0
        #: path -> rows of all data blocks of a log file, for the commit's metadata; small transactions only
        self.written: dict[str, list[WrittenRows]] = {}
        self._written_bytes = 0
        #: a step stopped halfway (full disk, failed sync, interrupt): the files' content is unknown, so they
        #: are never published. Never reset: a later success does not repair an earlier failure.
        self.torn = False

    # -- batches ---------------------------------------------------------------------------------

    def write(self, batch: pa.Table | pa.RecordBatch, deleted: np.ndarray | None = None) -> int:
        """Appends a batch; returns the number of rows. If a row is refused, nothing is written.

        ``deleted``: mask of rows that are deletes whatever their columns say. Raises ``Invalid`` if an
        earlier step stopped halfway.
        """
        self._check_whole()
        try:
            return self._write(as_table(batch), deleted)
        except MainstemError as error:
            error.table = error.table or self._spec.base
            raise

    def adopt(self, spec: WriteSpec) -> None:
        """Writes later batches in the schema of ``spec``; each block records its own schema."""
        self._spec = spec
        self._encoder.adopt(spec)

    @property
    def wrote(self) -> bool:
        """Whether any file was made."""
        return bool(self._versions)

    def _write(self, batch: pa.Table, deleted: np.ndarray | None) -> int:
        if batch.num_rows == 0:
            return 0
        slabs = list(self._encoder.split(batch, deleted))  # of views: nothing is copied
        for partition in dict.fromkeys(place[0] for slab in slabs for place in slab.places):
            self._check_partition(partition)
        self._check_alive()
        self._announce(slabs)
        for slab in slabs:
            self._append(slab)
        self.rows += batch.num_rows
        self.torn = False
        return batch.num_rows

    def write_encoded(self, pieces: Iterable[tuple[Place, Blocks]]) -> None:
        """Appends blocks encoded elsewhere for this instant and for the ``file_id`` of their place."""
        self._check_whole()
        self._check_alive()
        self.torn = True  # until all are appended
        for place, blocks in pieces:
            self._append_blocks(place, blocks)
            self.rows += blocks.writes + blocks.deletes
        self.torn = False

    def write_routed(self, blocks: Iterable[tuple[str, LogBlock]]) -> None:
        """Appends what blocks of another instant hold, given with their partition, by this one's bucket count
        (``writers.routed_anew``)."""
        self.write_encoded(routed(self._encoder, self.file_id, blocks))

    # -- files -----------------------------------------------------------------------------------

    def _take_back_files(self) -> int:
        """Remove the files made so far, which ``settle`` makes durable; returns the greatest version among
        their names: later ones need greater ones."""
        for log in self._logs.values():
            drop_log(self._storage, log)
        for stat in self._closed:
            self._storage.delete(stat.path)
        self._unwritten_bytes = 0
        passed = max(self._versions.values(), default=0)
        for mine in (self._logs, self._closed, self._versions, self.written):
            mine.clear()
        return passed

    def _append(self, slab: Slab) -> None:
        encoded = self._encoder.blocks(slab, self.file_id)
        self.torn = True  # until the whole batch is appended: a half-written block must not commit
        self._written_bytes += slab.rows.nbytes
        if self._written_bytes > _WRITTEN_BYTES_MAX:
            self.written.clear()
        for place, blocks in zip(slab.places, encoded, strict=True):
            self._append_blocks(place, blocks)

    def _append_blocks(self, place: Place, blocks: Blocks) -> None:
        left: Blocks | None = blocks
        while left is not None:
            log = self._log(*place)
            before = log.held
            try:
                after = log.append(left)
            except FileExistsError:  # another attempt of this task has the name: take the next version
                del self._logs[place]
                continue
            self._unwritten_bytes += log.held - before
            taken = left.parts if after is None else left.parts[: len(left.parts) - len(after.parts)]
            if not left.parts or any(not part.deletes for part in taken):
                self._note(log.stats[0], blocks)
            if after is not None or log.is_full:
                self._close_log(place)
            left = after
        if self._unwritten_bytes > _HELD_BYTES_MAX:
            self._hand_on()

    def _hand_on(self) -> None:
        """Free the memory of rows that wait for native log files."""
        for place, log in list(self._logs.items()):
            log.flush()
            if log.held:  # a file that is sorted
                self._close_log(place)
        self._unwritten_bytes = 0

    def _note(self, stat: WriteStat, blocks: Blocks) -> None:
        if blocks.writes and blocks.rows is None:  # encoded elsewhere
            self._written_bytes = _WRITTEN_BYTES_MAX + 1
            self.written.clear()
        elif self._written_bytes <= _WRITTEN_BYTES_MAX:
            self.written.setdefault(stat.path, []).extend([blocks.rows] if blocks.rows is not None else [])

    def _log(self, partition: str, bucket: int) -> OpenLog:
        key = (partition, bucket)
        log = self._logs.get(key)
        if log is not None and log.ended:
            self._close_log(key)
            log = None
        if log is None:
            if len(self._logs) >= _OPEN_FILES_MAX:
                self._close_oldest(_OPEN_FILES_MAX // 2)
            log = self._logs[key] = self._open_log(partition, bucket)
        return log

    def _open_log(self, partition: str, bucket: int) -> OpenLog:
        place = (partition, bucket)
        while True:
            version = self._versions[place] = self._versions.get(place, 0) + 1
            try:
                return self._make_log(self._spec, partial(self._make_file, partition, bucket, version))
            except FileExistsError:
                continue  # another attempt of this task has the name: take the next version

    def _make_file(self, partition: str, bucket: int, version: int, kind: str) -> tuple[Upload, WriteStat]:
        """A log file of this kind, and its stat. Raises ``FileExistsError`` if the name is taken."""
        name = self._log_name(partition, bucket, version, kind)
        sink = self._open_file(partition, name)
        return sink, self._stat(partition, bucket, name, version)

    def _stat(self, partition: str, bucket: int, name: str, version: int) -> WriteStat:
        return WriteStat(partition, self.file_id(partition, bucket), name, self._spec.instant, version)

    def _log_name(self, partition: str, bucket: int, version: int, kind: str = LOG) -> str:
        instant, token = self._spec.instant, self._token(partition, bucket)
        if self._spec.native_logs:
            return paths.native_log_name(self.file_id(partition, bucket), instant, version, token, kind)
        return paths.log_name(self.file_id(partition, bucket), instant, version, token)

    def _token(self, partition: str, bucket: int) -> str:
        return self._tokens(partition)

    def _open_file(self, partition: str, name: str, *, unshown: bool = False) -> Upload:
        """A new data file. Raises ``FileExistsError`` if the name is taken. ``unshown``: it gets the name
        when the instant completes (``publish.showing``)."""
        self._wait_for_begin()
        self._ensure_partition(partition)
        # The marker first: a file without one survives Java's rollback and comes back later.
        self._mark(partition, name)
        where = paths.in_partition(partition, name)
        sink = self._storage.upload(paths.unshown(self._spec.instant, partition, name) if unshown else where)
        self._folders.add(partition)
        return sink

    def _wait_for_begin(self) -> None:
        if self.begun is not None:
            self.begun()
            self.begun = None

    def _mark(self, partition: str, name: str) -> None:
        if self._lines is None:
            self.markers.append(paths.marker(self._spec.instant, partition, name))
            if not has_swaps(self._storage):
                try:
                    self._put_markers()
                except FileExistsError:  # another attempt's: put no more
                    self._marked = len(self.markers)
                    raise
        elif (line := paths.marker_line(partition, name)) not in self._lines:
            self._put_lines([line])

    def _announce(self, slabs: Sequence[Slab]) -> None:
        """Put the markers of all files of a batch together, if it makes many and is the only one."""
        together = self.at_once and not self.markers
        together = together and sum(len(slab.places) for slab in slabs) >= TOGETHER_MIN
        if not together or not (has_links(self._storage) or has_swaps(self._storage)):
            return  # Java itself has none together on HDFS
        self._wait_for_begin()
        if self.before_files is not None:
            self.before_files()
            self.before_files = None
        instant, self._lines = self._spec.instant, set()
        self.markers.append(paths.markers_kind(instant))
        self._storage.put_new(self.markers[-1], paths.MARKERS_KIND, durable=self._spec.fsync)
        names = [
            (place[0], self._log_name(*place, version=1, kind=kind))
            for slab in slabs
            for place, kinds in zip(slab.places, self._kinds(slab), strict=True)
            for kind in kinds
        ]
        self._put_lines([paths.marker_line(*name) for name in names])

    def _kinds(self, slab: Slab) -> list[tuple[str, ...]]:
        """For each place of a slab, the kinds of files that its rows need."""
        if slab.deleted is None or not self._spec.native_logs:
            return [(LOG,)] * len(slab.places)
        gone = np.add.reduceat(slab.deleted.astype(np.int64), slab.bounds[:-1])
        lengths = np.diff(slab.bounds)
        return [
            (LOG,) if not dead else (DELETES,) if dead == count else (LOG, DELETES)
            for dead, count in zip(gone.tolist(), lengths.tolist(), strict=True)
        ]

    def _put_lines(self, lines: Sequence[str]) -> None:
        assert self._lines is not None
        instant, fsync = self._spec.instant, self._spec.fsync
        self.markers.append(paths.markers(instant, len(self.markers) - 1))
        self._marked = len(self.markers)
        text = "".join(f"{line}\n" for line in lines)
        self._storage.put_new(self.markers[-1], text.encode(), durable=fsync)
        self._storage.settle([], [paths.marker_folder(instant), paths.TEMP], durable=fsync)
        self._lines.update(lines)

    def _put_markers(self) -> None:
        """Put the markers of the files opened so far: on a disk at once, on a store all together, as no file
        is there before it is closed."""
        steps: list[Callable[[], None]]
        steps = [partial(self._put_marker, path) for path in self.markers[self._marked :]]
        if self.before_files is not None:
            steps.insert(0, self.before_files)
            self.before_files = None
        side_by_side(self._storage, lambda step: step(), steps)
        self._marked = len(self.markers)

    def _put_marker(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        first = self._linked.get(folder)
        if first is not None:
            try:
                links(self._storage).link(first, path)
                return
            except FileExistsError:
                raise
            except OSError:  # a rollback removed the first one, or it has as many names as a file may
                del self._linked[folder]
        self._storage.put_new(path, EMPTY, durable=False)
        if has_links(self._storage):
            self._linked[folder] = path

    def _ensure_partition(self, partition: str) -> None:
        if partition in self._folders:
            return
        self._check_partition(partition)
        if self._placed[partition]:
            return
        metafile = paths.partition_metafile(partition)
        depth = len(partition.split("/")) if partition else 0
        if partition:
            make_folder(self._storage, partition)
        # Atomically: on a half-written metafile of a killed writer, Java would fail forever.
        create_once(self._storage, metafile, metafile_text(self._spec.instant, depth), durable=True)

    def _check_partition(self, partition: str) -> None:
        """Raises ``Invalid`` for a new partition inside or around another one: Java would not find it."""
        if partition in self._placed:
            return
        if partition in self._known_partitions:
            self._placed[partition] = True
            return
        try:
            there = self._storage.stat(paths.partition_metafile(partition)) is not None
            other = nested(self._storage, partition) if partition and not there else None
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise Invalid(
                f"the path of the partition that begins with {partition[:60]!r} is longer than this file"
                f" system takes ({error.strerror}): shorten the partition value",
                table=self._spec.base,
                instant=self._spec.instant,
            ) from error
        if other is not None:
            raise Invalid(
                f"partition {partition!r} cannot be made beside {other!r}: one folder would lie in the other,"
                " and Hudi's Java readers, which look for no partition below one, would not find the rows of"
                " the inner one; change the partition values, or create the table with"
                f" {URL_ENCODE}=true",
                table=self._spec.base,
                instant=self._spec.instant,
            )
        self._placed[partition] = there
        if there:
            self._known_partitions.add(partition)

    def file_id(self, partition: str, bucket: int) -> str:
        """The file group of a bucket."""
        if self.rings is not None:
            return self.rings.of(partition).file_id(bucket)
        return self._file_ids(partition, bucket)

    @property
    def groups_written(self) -> frozenset[tuple[str, str]]:
        """(partition, file id) of the files made so far."""
        held = {(place[0], self.file_id(*place)) for place in self._versions}
        return frozenset(held | {(stat.partition, stat.file_id) for stat in self._closed})

    def bucket_of(self, partition: str, file_id: str) -> int | None:
        """The bucket of a file group; None if it is that of none (any more)."""
        if self.rings is not None:
            return self.rings.of(partition).nodes.get(file_id)
        return file_id_bucket(file_id)

    def _check_alive(self) -> None:
        """Raises if this writer was rolled back: nothing would remove the files that it creates now."""
        if self._surely_alive() and not self.torn:
            return
        spec = self._spec
        # Not the inflight file, which a writer stopped inside begin may make after its rollback.
        requested = paths.timeline_file(f"{spec.instant}.{DELTACOMMIT}.{REQUESTED}")
        if self._storage.stat(requested) is None:
            self.discard()
            # Markers made since the rollback removed the folder; no live writer can have this instant.
            self._storage.delete_tree(paths.marker_folder(spec.instant))
            raise RolledBack(
                "the transaction's instant is gone from the timeline: another writer found its"
                " heartbeat expired and rolled it back; write the data again in a new transaction"
                f" (raise {HEARTBEAT_MS} if the process pauses for long)",
                table=spec.base,
                instant=spec.instant,
            )

    def _check_whole(self) -> None:
        if self.torn:
            self._check_alive()  # a rollback explains the failure better
            raise Invalid(
                "an earlier step of this transaction failed halfway or was interrupted: its files may hold"
                " part of a batch, or bytes that the disk lost. Abort it and write all its batches again in"
                " a new transaction",
                table=self._spec.base,
                instant=self._spec.instant,
            )

    def _close_log(self, key: tuple[str, int]) -> None:
        self._end(self._logs[key])
        self._put_markers()
        for sink in self._logs[key].sinks:
            sink.close(durable=self._spec.fsync)
        self._note_closed(key)

    def _close_oldest(self, count: int) -> None:
        """Several together: a journal, or a store, takes hundreds of files in the time of a few."""
        oldest = list(self._logs)[:count]
        for key in oldest:
            self._end(self._logs[key])
        self._put_markers()
        sinks = [sink for key in oldest for sink in self._logs[key].sinks]
        self._storage.settle(sinks, [], durable=self._spec.fsync)
        for key in oldest:
            self._note_closed(key)

    def _end(self, log: OpenLog) -> None:
        self._unwritten_bytes -= log.held
        log.end()

    def _note_closed(self, key: tuple[str, int]) -> None:
        self._closed += self._logs.pop(key).stats

    def close(self) -> list[WriteStat]:
        """Makes all files durable; returns one stat per log file. Raises ``RolledBack`` if rolled back."""
        stats = self.finish()
        self.settle()
        self._check_alive()
        return stats

    def finish(self) -> list[WriteStat]:
        """Ends appending; returns one stat per log file. ``settle`` makes the files durable.

        Raises ``RolledBack`` if rolled back.
        """
        self._check_whole()
        self._check_alive()
        self.torn = True  # until all that waited is handed on
        for log in self._logs.values():
            self._end(log)
        self.torn = False
        return [*self._closed, *(stat for log in self._logs.values() for stat in log.stats)]

    def settle(self, others: Sequence[Upload] = ()) -> None:
        """Makes all files durable, together with ``others``, which belong to the same commit.

        After a failure they are never published: a second sync reports success for bytes that the first lost.
        """
        self._check_whole()
        self.torn = True  # until all are durable
        logs = list(self._logs.values())
        folders = set(self._folders)
        # Up to the base: another writer may have made the folder and not yet synced its name.
        for partition in self._folders:
            while partition:
                partition = partition.rpartition("/")[0]
                folders.add(partition)
        try:
            for log in logs:
                self._end(log)
            self._put_markers()
            sinks = [sink for log in logs for sink in log.sinks]
            self._storage.settle([*sinks, *others], sorted(folders), durable=self._spec.fsync)
        except OSError as error:
            raise Unavailable(
                f"closing log files failed: {error}; nothing was published. Abort this transaction and write"
                " its batches again in a new one",
                table=self._spec.base,
                instant=self._spec.instant,
            ) from error
        self._closed += [stat for log in logs for stat in log.stats]
        self._logs.clear()
        self.torn = False

    def discard(self) -> None:
        """Closes and removes every file of this appender, which was rolled back or will not be published.

        Afterwards the appender refuses every other call.
        """
        self.release()
        for stat in self._closed:
            if stat.unshown:
                self._storage.delete(stat.stored_at)
            self._storage.delete(stat.path)
        for stat in (stat for log in self._logs.values() for stat in log.stats):
            self._storage.delete(stat.path)
        self._closed.clear()
        self._logs.clear()

    def forget(self) -> None:
        """Frees memory of rows, once nothing more is done with them."""
        self.written.clear()

    def release(self) -> None:
        """Closes every file, keeps its content, and frees memory."""
        self.torn = True
        self.forget()
        for sink in (sink for log in self._logs.values() for sink in log.sinks):
            with suppress(OSError):
                drop(sink)


class FileTokens:
    """The write token of a task's files in each partition: no two files of an instant share a name.

    File groups of one bucket have one id in all partitions, and Hudi's readers look up statistics of files
    by their bare names: where two files share one, Java takes the range of the other and loses rows. The
    first number is the task's, so the files of tasks keep their order of merging. The others also tell the
    partition, each attempt's in its own way, so attempts never meet. Hudi 1.3 reads each number as an
    ``int`` (``FileNameParser``). The first partition has the token as it is given.
    """

    def __init__(self, token: str) -> None:
        self._task, stage, attempt = token.split("-")
        # The stage tells writers apart whose attempts are equal, and is small there. Those of Spark are
        # counted through the application, and none of them lives for 2^30 others.
        self._stage, self._attempt = int(stage) % 2**20, int(attempt) % 2**30
        self._numbers: dict[str, int] = {}

    def __call__(self, partition: str) -> str:
        number = self._numbers.setdefault(partition, len(self._numbers))
        more, number = divmod(number, 2**11)
        return f"{self._task}-{self._stage + number * 2**20}-{self._third(more)}"

    def _third(self, more: int) -> int:
        """The attempt and ``more``: a number below 2^30 if that is 0, else with a bit for how it is made."""
        if not more:
            return self._attempt
        for bits, mark, below in ((15, 3 * 2**29, 2**14), (25, 2**30, 2**4)):
            if self._attempt < 2**bits and more < below:
                return mark + more * 2**bits + self._attempt
        raise Invalid(
            f"the write token {self._task}-{self._stage}-{self._attempt} in {more * 2**11} partitions: there"
            " are no more numbers for so many. Write fewer partitions in one task"
        )


class FileIds:
    """File id of each bucket: that of its existing file group in the partition, else the constant NBCC id.

    ``known_buckets`` as in ``BucketAppender``.
    """

    def __init__(self, storage: Storage, known_buckets: dict[str, set[int]] | None = None) -> None:
        self._storage = storage
        self._known_ids: dict[str, dict[int, str]] = {}
        self._known_buckets = {} if known_buckets is None else known_buckets

    def __call__(self, partition: str, bucket: int) -> str:
        if bucket in self._known_buckets.get(partition, ()):
            return nbcc_file_id(bucket)
        known = self._known_ids.get(partition)
        if known is None or bucket not in known:
            known = self._known_ids[partition] = existing_file_ids(self._storage, partition)
            # Only what a listing showed, and only the constant id: later writers of that bucket
            # see the same file group. A bucket without a file is looked up again each time.
            constant = {b for b, file_id in known.items() if file_id == nbcc_file_id(b)}
            self._known_buckets.setdefault(partition, set()).update(constant)
        return known.setdefault(bucket, nbcc_file_id(bucket))


def existing_file_ids(storage: Storage, partition: str) -> dict[int, str]:
    """Bucket -> file id of the file groups that a partition already has.

    Raises ``CorruptTable`` when one bucket has two: rows written to either would be doubled.
    """
    found: dict[int, str] = {}
    for name in storage.names(partition):
        parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
        bucket = file_id_bucket(parsed.file_id) if parsed else None
        if parsed is None or bucket is None:
            continue
        other = found.setdefault(bucket, parsed.file_id)
        if other != parsed.file_id:
            raise CorruptTable(
                f"bucket {bucket} of partition {partition!r} has two file groups, {other!r} and"
                f" {parsed.file_id!r}; a bucket index allows one. Writing would double rows: remove the"
                " duplicate with the engine that made it",
                path=paths.in_partition(partition, name),
                table=storage.base,
            )
    return found
