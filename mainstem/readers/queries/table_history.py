"""Who wrote what, and when: the instants of the timeline and of its archive, as a table.

1. List the timeline, then ask the archive: an instant that is archived meanwhile is in one of them.
2. Decode the commit metadata of each write: operation, writer, counts, what its engine noted.
3. With keys, count those that the write's own files hold. Files that were cleaned since tell nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.formats.avro_container import decode_container
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options import WRITER_NAME
from mainstem.readers.planning.known_views import query_state
from mainstem.readers.planning.query_times import instant_time
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.key_places import keys_in_files
from mainstem.readers.skipping.wanted_keys import wanted_buckets
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import CommitMetadata, decode_commit
from mainstem.timeline.instant import (
    ACTIONS,
    COMMIT,
    COMPLETED,
    DELTACOMMIT,
    REPLACECOMMIT,
    RESTORE,
    ROLLBACK,
    Instant,
)

#: column of ``Table.history`` -> Hudi's write stat that it sums up
_SUMS = {
    "rows": "numWrites", "inserts": "numInserts", "updates": "numUpdateWrites", "deletes": "numDeletes",
    "errors": "totalWriteErrors", "bytes": "totalWriteBytes",
}  # fmt: skip
SCHEMA = pa.schema([
    ("requested", pa.string()), ("completion", pa.string()), ("action", pa.string()), ("state", pa.string()),
    ("archived", pa.bool_()), ("operation", pa.string()), ("writer", pa.string()),
    ("partitions", pa.list_(pa.string())), ("file_groups", pa.int64()), ("files", pa.int64()),
    ("replaced", pa.int64()), *((name, pa.int64()) for name in _SUMS), ("keys", pa.int64()),
    ("extra_metadata", pa.string()), ("took_back", pa.list_(pa.string())), ("damage", pa.string()),
])  # fmt: skip
_WRITES = frozenset((COMMIT, DELTACOMMIT, REPLACECOMMIT))
#: action -> what names, in HoodieRollbackMetadata and HoodieRestoreMetadata, the instants that it took back
_TAKES_BACK = {ROLLBACK: "commitsRollback", RESTORE: "instantsToRollback"}
# They write rows anew that others wrote.
_REWRITES = frozenset(("COMPACT", "LOG_COMPACT", "CLUSTER", "BUCKET_RESCALE"))


def table_history(
    storage: Storage,
    *,
    after: str | None = None,
    until: str | None = None,
    actions: Collection[str] | None = None,
    writer: str | None = None,
    partition: str | None = None,
    keys: str | tuple[str, str] | None = None,
    limit: int | None = None,
    damaged: str = "error",
) -> pa.Table:
    """``Table.history``: a row of ``SCHEMA`` for each instant, by completion time, pending ones last.

    ``damaged``: whether metadata that cannot be read is an ``error``, or told in ``damage`` (``skip``).
    """
    if limit is not None and limit < 0:
        raise Invalid(f"history(limit={limit}): expected a number of instants, or None for all")
    if actions is not None and not ACTIONS.issuperset(actions):
        found = ", ".join(sorted(set(actions) - ACTIONS))
        raise Invalid(f"history(actions=...): {found}: no action of a timeline; {', '.join(sorted(ACTIONS))}")
    first, last = (None if t is None else instant_time(t, w) for t, w in ((after, "after"), (until, "until")))
    state = query_state(storage)
    wanted = None if keys is None else _WantedKeys(state, *_range(keys))
    rows: list[dict[str, Any]] = []
    for instant, archived in reversed(list(_instants(state, first, last))):  # the newest are those of a limit
        if limit is not None and len(rows) >= limit:
            break
        if actions is not None and instant.action not in actions:
            continue
        one = _told(state, instant, archived, partition, damaged)
        if one.is_known and not one.is_of(writer, partition):
            continue
        count = None
        if wanted is not None:
            if not one.writes_rows:
                continue
            count = wanted.count(one.stats)
            if count == 0 and one.is_known:
                continue
        rows.append({**one.values(), "archived": archived, "keys": count})
    return pa.Table.from_pylist(rows[::-1], SCHEMA)


def _told(state: TableState, instant: Instant, archived: bool, partition: str | None, damaged: str) -> _Told:
    try:
        undone = _undone(state, instant, archived)
        return _Told(instant, _metadata(state, instant, archived), partition, undone)
    except CorruptTable as error:
        if damaged != "skip":
            raise
        return _Told(instant, None, partition, damage=error.message)


def _range(keys: str | tuple[str, str]) -> tuple[str, str]:
    low, high = (keys, keys) if isinstance(keys, str) else map(str, keys)
    if low > high:
        raise Invalid(f"history(keys=({low!r}, {high!r})): the first key is the greater one; swap them")
    return low, high


def _instants(state: TableState, after: str | None, until: str | None) -> Iterator[tuple[Instant, bool]]:
    """Instants with ``after < completion <= until``, and whether each is archived; pending ones at the end,
    unless an end is given."""
    listed = state.timeline.instants
    active = {i.requested for i in listed if i.completion}
    rows = (column.to_pylist() for column in state.archive.completed(after or "", until).columns)
    old = [
        (Instant(requested, action, COMPLETED, completion), True)
        for requested, completion, action in zip(*rows, strict=True)
        if requested not in active
    ]
    done = [(i, False) for i in listed if i.completion and (after or "") < i.completion <= (until or "9")]
    yield from sorted([*old, *done], key=lambda one: (one[0].completion or "", one[0].requested))
    if until is None:
        yield from ((i, False) for i in listed if not i.completion)


def _metadata(state: TableState, instant: Instant, archived: bool) -> CommitMetadata | None:
    """Archived ones are not kept: a history may have a hundred thousand."""
    if instant.action not in _WRITES or not instant.completion:
        return None
    if not archived:
        return state.metadata(instant.requested)
    blob = state.archive.metadata(instant.requested, instant.action)
    return None if blob is None else decode_commit(blob, path=f"archived instant {instant.requested}")


def _undone(state: TableState, instant: Instant, archived: bool) -> tuple[str, ...]:
    """Requested times of the instants that a completed rollback or restore took back; () if that is gone."""
    if instant.action not in _TAKES_BACK or not instant.completion:
        return ()
    path = paths.timeline_file(instant.file_name)
    try:
        if archived:
            path = f"archived instant {instant.requested}"
            blob = state.archive.metadata(instant.requested, instant.action)
        else:
            blob = read_final(state.storage, path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError:  # archived since it was listed
        return ()
    if not blob:
        return ()
    told = decode_container(blob, path=path)[0].get(_TAKES_BACK[instant.action])
    return tuple(str(one) for one in told) if isinstance(told, list) else ()


class _Told:
    """One instant, and what its metadata says of the table, or of one partition."""

    def __init__(
        self,
        instant: Instant,
        metadata: CommitMetadata | None,
        partition: str | None,
        took_back: Sequence[str] = (),
        damage: str | None = None,
    ) -> None:
        self.instant, self.metadata = instant, metadata
        self.took_back, self.damage = took_back, damage
        found = CommitMetadata() if metadata is None else metadata
        self.stats = {p: stats for p, stats in found.stats.items() if partition in (None, p)}
        self.replaced = {p: ids for p, ids in found.replaced.items() if partition in (None, p)}
        self.extra = {name: text for name, text in found.extra.items() if name != "schema"}
        self.writer = self.extra.pop(WRITER_NAME, "")

    @property
    def is_known(self) -> bool:
        """Whether it is known what it wrote; not of pending writes and of those archived without metadata."""
        return self.metadata is not None or self.instant.action not in _WRITES

    def is_of(self, writer: str | None, partition: str | None) -> bool:
        """Whether it is this writer's, and touched the partition."""
        touched = partition is None or bool(self.stats or self.replaced)
        return writer in (None, self.writer) and touched

    @property
    def writes_rows(self) -> bool:
        """Whether it wrote rows that are new. Compactions and clusterings write those of others anew."""
        rewrites = self.metadata is not None and self.metadata.operation in _REWRITES
        return self.instant.action in _WRITES and not rewrites

    def values(self) -> dict[str, Any]:
        """By column; counts are null where there is no metadata."""
        instant, stats = self.instant, [stat for some in self.stats.values() for stat in some]
        told: dict[str, Any] = {
            "requested": instant.requested, "completion": instant.completion, "action": instant.action,
            "state": instant.state.upper(), "operation": "", "writer": self.writer,
            "partitions": sorted(self.stats.keys() | self.replaced.keys()),
            "extra_metadata": json.dumps(self.extra, sort_keys=True),
            "took_back": list(self.took_back), "damage": self.damage,
        }  # fmt: skip
        if self.metadata is not None:
            told |= {
                "operation": self.metadata.operation,
                "file_groups": sum(len({s.get("fileId") for s in some}) for some in self.stats.values()),
                "files": sum(len(list(_files(p, some))) for p, some in self.stats.items()),
                "replaced": sum(map(len, self.replaced.values())),
                **{name: sum(stat.get(its) or 0 for stat in stats) for name, its in _SUMS.items()},
            }
        return told


class _WantedKeys:
    """Counts the record keys of a range that an instant's files hold."""

    def __init__(self, state: TableState, low: str, high: str) -> None:
        self._state, self._low, self._high = state, low, high
        one = pa.array([low]) if low == high else None
        self._buckets = wanted_buckets(one, state.config, state.storage)

    def count(self, stats: Mapping[str, list[dict[str, Any]]]) -> int | None:
        """Keys of the range, once for each file; None if files that may hold some are gone or cannot be read,
        and the others have none."""
        found, unread = 0, False
        for partition, some in stats.items():
            for path in _files(partition, [stat for stat in some if self._may_hold(partition, stat)]):
                try:
                    for keys in keys_in_files(self._state, partition, [path]):
                        unread = unread or keys.null_count > 0  # virtual keys: in other columns
                        inside = pc.and_(pc.greater_equal(keys, self._low), pc.less_equal(keys, self._high))
                        found += pc.count_distinct(keys.filter(inside)).as_py()
                except (FileNotFoundError, CorruptTable, Unsupported):
                    unread = True
        return None if unread and not found else found

    def _may_hold(self, partition: str, stat: Mapping[str, Any]) -> bool:
        return self._buckets is None or self._buckets.may_hold(partition, str(stat.get("fileId") or ""))


def _files(partition: str, stats: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Base and log files of an instant, without change data; what does not parse as one is none.

    Where the table records change data, the log files of a stat are also those that its own file follows.
    """
    for stat in stats:
        path = str(stat.get("path") or "").rpartition("/")[2]
        own = paths.parse_log_name(path)
        for name in sorted({path, *(stat.get("logFiles") or ())}):
            log = paths.parse_log_name(name)
            if log is None:
                is_there = paths.parse_base_name(name) is not None
            else:
                is_there = not log.is_cdc and (own is None or log.instant == own.instant)
            if is_there:
                yield paths.in_partition(partition, name)
