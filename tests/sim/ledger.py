"""Everything that completed on the simulated table, noted when it became visible, and Java's rule over it.

Files are cleaned, instants archived, commits restored away; the ledger keeps what they held. From it the
table's rows follow for any moment: per file group, each compaction merged exactly the log files that
had completed before its plan (in order of *requested* time), and what completed later lies on top. It
reads bytes with ``plain_format`` and shares nothing with the production code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.sim import plain_format as plain
from tests.sim.oracle import (
    GROWN,
    KEY,
    ORDERING,
    PARTITION,
    Deleted,
    Mode,
    Row,
    Where,
    beginning,
    onto_base,
    put_delete,
    put_row,
)
from tests.sim.plain_format import TIMELINE, Block, CommitOnDisk, LogFile, TimelineName
from tests.sim.sim_storage import Disk

Group = tuple[str, str]  # partition, file id


@dataclass
class WrittenLog:
    """A log file of a completed write, with what was in it."""

    log: LogFile
    completion: str
    blocks: list[Block]


@dataclass
class Compacted:
    """A compaction's plan; ``completion`` None while it is pending. ``logs`` are paths. ``kept``: the log
    files of the deletes that it kept."""

    time: str
    operations: dict[Group, tuple[str | None, frozenset[str]]]
    completion: str | None = None
    bases: dict[Group, str] = field(default_factory=dict)
    kept: dict[Group, str] = field(default_factory=dict)


@dataclass
class Clustered:
    """A clustering's plan: its file groups, and the paths of their files. ``completion`` None while it is
    pending."""

    time: str
    groups: frozenset[Group]
    files: frozenset[str]
    completion: str | None = None


@dataclass
class Bulk:
    """A base file that a bulk insert or a clustering wrote into an empty file group, or an overwrite into
    any."""

    instant: str
    completion: str
    path: str
    rows: list[Row]


@dataclass(frozen=True)
class Base:
    """A completed base file: its barrier and its path."""

    time: str
    path: str


@dataclass
class Ledger:
    """Writes, compactions and written base files in the order in which they became visible."""

    disk: Disk
    commits: dict[str, CommitOnDisk] = field(default_factory=dict)
    logs: dict[str, WrittenLog] = field(default_factory=dict)  # by path
    compactions: dict[str, Compacted] = field(default_factory=dict)
    clusterings: dict[str, Clustered] = field(default_factory=dict)
    bulk: dict[str, Bulk] = field(default_factory=dict)  # by path
    #: without buckets, where new file groups appear beside an overwrite
    placed: bool = False
    #: requested times of instants that a restore took back -> requested time of the restore
    restored: dict[str, str] = field(default_factory=dict)
    #: completed instant that a rollback took back -> when it was completed
    undone: dict[str, str] = field(default_factory=dict)
    #: which rows say that they are deletes
    marked: Callable[[Row], bool] = lambda row: False

    # -- noting -------------------------------------------------------------------------------------

    def requested(self, name: TimelineName) -> None:
        """A plan became visible."""
        if name.action == "restore":
            plan = plain.container(self._bytes(f"{name.requested}.restore.requested"))
            self.restored.update((i["commitTime"], name.requested) for i in plan["instantsToRollback"])
        if name.action == "clustering":
            self._clustering(name.requested)
        if name.action != "compaction":
            return
        plan = plain.container(self._bytes(f"{name.requested}.compaction.requested"))
        operations = {}
        for operation in plan["operations"]:
            partition = operation["partitionPath"]
            logs = frozenset(_inside(partition, file) for file in operation["deltaFilePaths"])
            operations[partition, operation["fileId"]] = (operation["dataFilePath"], logs)
        self.compactions[name.requested] = Compacted(name.requested, operations)

    def _clustering(self, time: str) -> None:
        plan = plain.container(self._bytes(f"{time}.clustering.requested"))["clusteringPlan"]
        slices = [one for group in plan["inputGroups"] for one in group["slices"]]
        groups = frozenset((one["partitionPath"], one["fileId"]) for one in slices)
        files = {
            _inside(one["partitionPath"], path.rpartition("/")[2])
            for one in slices
            for path in (one["dataFilePath"], *one["deltaFilePaths"])
            if path
        }
        self.clusterings[time] = Clustered(time, groups, frozenset(files))

    def completed(self, name: TimelineName, path: str) -> None:
        """An instant became visible as completed."""
        if name.action not in ("commit", "deltacommit", "replacecommit"):
            return
        assert name.completion is not None
        data = bytes(self.disk.need(path).data)
        commit = plain.commit_on_disk(name.requested, name.completion, name.action, data)
        self.commits[name.requested] = commit
        if name.action == "replacecommit":
            self.clusterings[name.requested].completion = name.completion
        if name.action == "commit" and name.requested in self.compactions:
            compacted = self.compactions[name.requested]
            compacted.completion = name.completion
            compacted.kept = {group_of(f): f for f in commit.paths if plain.log_file(f) is not None}
            compacted.bases = {group_of(f): f for f in commit.paths if f not in compacted.kept.values()}
        for file in commit.paths:
            log = plain.log_file(file)
            if log is not None:
                blocks = plain.blocks_of(self.disk, log)
                self.logs[file] = WrittenLog(log, name.completion, blocks)
            elif name.action == "deltacommit" or name.requested not in self.compactions:
                rows = plain.base_rows(self.disk, file)
                self.bulk[file] = Bulk(name.requested, name.completion, file, rows)

    def forget_lost(self, still_there: set[str], done: set[tuple[str, str]]) -> None:
        """A crash of the machine took what was not durable: keep the instants named (requested times), and
        as completed those of ``done`` (with completion time): one that lost only its last file is pending."""
        self.commits = {t: c for t, c in self.commits.items() if (t, c.completion) in done}
        self.logs = {p: w for p, w in self.logs.items() if (w.log.instant, w.completion) in done}
        self.bulk = {p: b for p, b in self.bulk.items() if (b.instant, b.completion) in done}
        self.compactions = {t: c for t, c in self.compactions.items() if t in still_there}
        self.clusterings = {t: c for t, c in self.clusterings.items() if t in still_there}
        for planned in (*self.compactions.values(), *self.clusterings.values()):
            if planned.time not in self.commits:
                planned.completion = None
        self.restored = {t: r for t, r in self.restored.items() if r in still_there}
        # Its own last file is gone by then, taken away by the rollback that goes on.
        self.undone = {t: c for t, c in self.undone.items() if t in self.restored}

    def _bytes(self, name: str) -> bytes:
        return bytes(self.disk.need(f"{TIMELINE}/{name}").data)

    # -- asking -------------------------------------------------------------------------------------

    def stands(self, instant: str, until: str | None = None) -> bool:
        """Whether no restore (planned at or before ``until``) took the instant back."""
        restore = self.restored.get(instant)
        return restore is None or (until is not None and restore > until)

    def writes(self) -> list[CommitOnDisk]:
        """Completed writes that no restore took back, in order of completion; services left out."""
        kept = [c for c in self.commits.values() if self.stands(c.requested) and not c.is_service]
        return sorted((c for c in kept if c.action == "deltacommit"), key=lambda c: c.completion)

    def rows_of(self, instant: str) -> list[Row]:
        """All rows that an instant wrote, with Hudi's columns."""
        rows = [row for block in self.blocks_of(instant) for row in block.rows]
        return rows + [row for bulk in self.bulk.values() if bulk.instant == instant for row in bulk.rows]

    def blocks_of(self, instant: str) -> list[Block]:
        """All log blocks that an instant wrote."""
        return [b for w in self.logs.values() if w.log.instant == instant for b in w.blocks]

    def logs_of(self, group: Group, until: str | None = None) -> list[WrittenLog]:
        """Log files of a group (a log compaction's too) completed at or before ``until``, in merge order."""
        found = [w for w in self.logs.values() if group_of(w.log.path) == group]
        kept = [w for w in found if self.stands(w.log.instant, until)]
        return sorted(
            (w for w in kept if until is None or w.completion <= until), key=lambda w: w.log.order
        )

    def replacing(self, group: Group, until: str | None = None) -> CommitOnDisk | None:
        """The commit, completed at or before ``until``, that replaced a file group; None: it stands."""
        done = [
            c for c in self.commits.values()
            if group in c.replaced and self.stands(c.requested, until)
            and (until is None or c.completion <= until)
        ]  # fmt: skip
        return min(done, key=lambda c: c.completion, default=None)

    def clustered_rows(self, mode: Mode, time: str) -> list[Row]:
        """The rows of the file groups that the clustering planned at ``time`` replaces."""
        found: list[Row] = []
        for group in sorted(self.clusterings[time].groups):
            found += self._group_rows(mode, group, None, self.compactions_of(group)).values()
        return found

    def groups(self) -> list[Group]:
        """Every file group that a completed write has a file in."""
        return sorted({*map(group_of, self.logs), *map(group_of, self.bulk)})

    def compactions_of(self, group: Group, until: str | None = None) -> list[Compacted]:
        """Completed compactions of a group, completed at or before ``until``, oldest plan first."""
        done = [
            c for c in self.compactions.values()
            if group in c.operations and c.completion is not None and self.stands(c.time, until)
        ]  # fmt: skip
        return sorted(
            (c for c in done if until is None or c.completion <= until), key=lambda c: c.time
        )

    def bases_of(self, group: Group, until: str | None = None) -> list[Base]:
        """Base files of a group that were completed at or before ``until``, oldest first."""
        found = [
            Base(c.time, c.bases[group]) for c in self.compactions_of(group, until) if group in c.bases
        ]
        found += [Base(bulk.instant, bulk.path) for bulk in self.bulk_of(group, until)]
        return sorted(found, key=lambda base: base.time)

    def bulk_of(self, group: Group, until: str | None = None) -> list[Bulk]:
        """Written base files of a group that were completed at or before ``until``, oldest request first."""
        of_group = [bulk for bulk in self.bulk.values() if group_of(bulk.path) == group]
        kept = [bulk for bulk in of_group if self.stands(bulk.instant, until)]
        return sorted(
            (b for b in kept if until is None or b.completion <= until), key=lambda b: b.instant
        )

    def _overwrites_of(self, partition: str, until: str | None) -> list[str]:
        """Instants that overwrote a partition, completed at or before ``until``. Log files of theirs are
        rows or deletes in file groups that stay."""
        return [
            commit.requested
            for commit in self.commits.values()
            if commit.operation in ("INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE")
            and (until is None or commit.completion <= until)
            and self.stands(commit.requested, until)
            and (
                commit.operation.endswith("TABLE")
                or any(
                    group_of(path)[0] == partition
                    for path in commit.paths
                    if path.endswith(".parquet") and plain.log_file(path) is None
                )
            )
        ]

    def _older(self, group: Group, instant: str) -> bool:
        """Whether a write to the group had completed when the instant was requested."""
        done = [w.completion for w in self.logs_of(group)] + [b.completion for b in self.bulk_of(group)]
        return any(completion < instant for completion in done)

    def newest_base(self, group: Group) -> str | None:
        """Path of the newest base file of a group."""
        bases = self.bases_of(group)
        return bases[-1].path if bases else None

    def pending_compactions(self, group: Group) -> list[str]:
        """Requested times of the pending compactions that have this group."""
        return sorted(
            c.time
            for c in self.compactions.values()
            if group in c.operations and c.completion is None and self.stands(c.time)
        )

    def files_at(self, group: Group, until: str, made: str) -> set[str]:
        """Paths of the files that a restore to the instant completed at ``until`` needs of a group.

        It undoes the compactions that were requested after that instant was. One that was requested before it
        and completed after the savepoint was ``made`` may go and take nothing along: the savepoint names what
        that compaction read. Base files of writers stay if they completed by then, as log files do.
        """
        if self.replacing(group, until) is not None:
            return set()
        saved = next(t for t, c in self.commits.items() if c.completion == until)
        written = {bulk.path for bulk in self.bulk_of(group, until)}
        bases = [
            base
            for base in self.bases_of(group, made)
            if (base.path in written if base.path in self.bulk else base.time <= saved)
        ]
        since = bases[-1].time if bases else ""
        logs = {w.log.path for w in self.logs_of(group, until) if since <= w.completion}
        return logs | ({bases[-1].path} if bases else set())

    def barriers_of(self, group: Group) -> list[str]:
        """Requested times of the base files of a group: compactions, planned or done, and written ones."""
        times = [
            t for t, c in self.compactions.items() if group in c.operations and self.stands(t)
        ]
        return sorted(times + [bulk.instant for bulk in self.bulk_of(group)])

    def due(self, group: Group, time: str) -> frozenset[str]:
        """Paths of the log files that a compaction planned at ``time`` must take in: Java's rule."""
        before = max((b for b in self.barriers_of(group) if b < time), default="")
        return frozenset(
            w.log.path for w in self.logs_of(group) if before <= w.completion < time
        )

    def rows(
        self, mode: Mode, until: str | None = None, *, of: Callable[[Group], bool] = lambda group: True
    ) -> dict[Where, Row]:
        """(partition, key) -> row of the table as it was at completion time ``until``."""
        found: dict[Where, Row] = {}
        for group in filter(of, self.groups()):
            if self.replacing(group, until) is not None:
                continue
            found.update(self._group_rows(mode, group, until, self.compactions_of(group, until)))
        return found

    def compacted_rows(self, mode: Mode, group: Group, time: str) -> dict[Where, Row]:
        """The rows of the base file that the compaction planned at ``time`` makes."""
        done = [c for c in self.compactions_of(group) if c.time < time]
        return self._group_rows(mode, group, None, done, last=time)

    def _group_rows(
        self, mode: Mode, group: Group, until: str | None, done: list[Compacted], last: str | None = None
    ) -> dict[Where, Row]:
        # A log compaction repeats rows that writers wrote, and changes none. A compaction's log are deletes.
        logs = [
            w for w in self.logs_of(group, until)
            if w.log.instant in self.compactions or not self.commits[w.log.instant].is_service
        ]  # fmt: skip
        rows: dict[Where, Row] = {}
        barrier = ""
        written = {bulk.instant: bulk.rows for bulk in self.bulk_of(group, until)}
        for instant in self._overwrites_of(group[0], until):
            if not self.placed or self._older(group, instant):
                written.setdefault(instant, [])  # whatever files it made
        times = sorted({*(c.time for c in done), *([last] if last else []), *written})
        for time in (t for t in times if last is None or t <= last):
            if time in written:  # what is older is hidden
                rows = {(row["part"], row["id"]): user_columns(row) for row in written[time]}
            else:
                rows = self._merged(mode, rows, [w for w in logs if barrier <= w.completion < time])
            barrier = time
        if last is None:
            rows = self._merged(mode, rows, [w for w in logs if w.completion >= barrier])
        return rows

    def _merged(
        self, mode: Mode, base: dict[Where, Row], logs: Iterable[WrittenLog]
    ) -> dict[Where, Row]:
        entries = beginning(mode, base)
        for written in logs:
            for block in written.blocks:
                for row in block.rows:
                    self._put(mode, entries, row)
                for delete in block.deletes:
                    put_delete(mode, entries, (delete.partition, delete.key), delete.ordering)
        return onto_base(mode, base, entries)

    def _put(self, mode: Mode, entries: dict[Where, Any], row: Row) -> None:
        if self.marked(row):
            put_delete(mode, entries, (row[PARTITION], row[KEY]), row[ORDERING])
        else:
            put_row(mode, entries, user_columns(row))

    def last_deletes(self, mode: Mode, logs: Iterable[WrittenLog]) -> dict[Where, tuple[int, str]]:
        """Keys that these logs, in merge order, delete last with an ordering value: that, and its instant."""
        entries: dict[Where, Any] = {}
        found: dict[Where, tuple[int, str]] = {}
        for written in logs:
            for block in written.blocks:
                for row in block.rows:
                    where = (row[PARTITION], row[KEY])
                    before = entries.get(where)
                    self._put(mode, entries, row)
                    after = entries[where]
                    if self.marked(row):
                        if after is not before:
                            found[where] = (row[ORDERING], written.log.instant)
                    elif not isinstance(after, Deleted) and after["v"] == row["v"]:
                        found.pop(where, None)
                for delete in block.deletes:
                    where = (delete.partition, delete.key)
                    before = entries.get(where)
                    put_delete(mode, entries, where, delete.ordering)
                    if entries[where] is not before and delete.ordering is not None:
                        found[where] = (delete.ordering, written.log.instant)
                    elif entries[where] is not before:
                        found.pop(where, None)
        return found


def user_columns(row: Row) -> Row:
    """A stored row without Hudi's columns, and without nulls of columns that were added (``Columns``)."""
    return {
        name: value
        for name, value in row.items()
        if not name.startswith("_hoodie_") and not (value is None and name.startswith(GROWN))
    }


def _inside(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def group_of(path: str) -> Group:
    """(partition, file id) of a data file."""
    partition, _, name = path.rpartition("/")
    log = plain.log_file(path)
    return partition, log.file_id if log is not None else name.split("_")[0]


