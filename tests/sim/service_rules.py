"""Rules for table services, checked at every change of a name: what they may plan, write and delete.

- a compaction takes in exactly the log files that completed before its plan, and its base files hold
  exactly the rows that Java's rule gives for them;
- a clustering's new files hold exactly the rows that the file groups hold which it replaces, at the moment
  when it completes;
- a data file of a completed instant is deleted only by a plan that names it, and never one that the
  newest slice, a pending plan, a savepoint or a query within the clean's retention needs;
- an instant leaves the timeline only when the archive's current version holds it, durably, completed
  file last; the archive holds nothing twice and nothing that never completed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.sim import plain_format as plain
from tests.sim.ledger import Group, Ledger, Row, group_of, user_columns
from tests.sim.oracle import Mode
from tests.sim.plain_format import HISTORY, TIMELINE, TimelineName
from tests.sim.sim_storage import Disk
from tests.sim.sim_store import Bucket
from tests.sim.world import Violation


@dataclass
class Retention:
    """What cleans must keep: the slices of the newest ``commits``, or the newest ``versions``."""

    commits: int | None = None
    versions: int | None = None


class ServiceRules:
    """The services' rules of one run, over its ledger."""

    def __init__(self, disk: Disk, base: str, mode: Mode, retention: Retention | None = None) -> None:
        self.disk = disk
        self.base = base
        self.mode = mode
        self.ledger = Ledger(disk)
        self.retention = retention or Retention()
        #: paths that cleans deleted
        self.cleaned: set[str] = set()
        self._clean_plans: dict[str, frozenset[str]] = {}

    def host_crashed(self, still_there: set[str], done: set[tuple[str, str]]) -> None:
        """What was not durable is gone; ``still_there``: requested times that are still known, ``done``:
        requested and completion times of what is still completed."""
        self.ledger.forget_lost(still_there, done)
        self._clean_plans = {t: p for t, p in self._clean_plans.items() if t in still_there}
        self.cleaned = {path for path in self.cleaned if not self.disk.exists(path)}

    # -- plans --------------------------------------------------------------------------------------

    def requested(self, name: TimelineName) -> None:
        """A plan became visible."""
        self.ledger.requested(name)
        if name.action == "compaction":
            self._compaction_planned(name.requested)
        elif name.action == "clean":
            self._clean_planned(name.requested)
        elif name.action == "restore":
            self._restore_planned(name.requested)

    def _compaction_planned(self, time: str) -> None:
        ledger = self.ledger
        plan = ledger.compactions[time]
        for group, (base, logs) in plan.operations.items():
            if busy := [t for t in ledger.pending_compactions(group) if t != time]:
                raise Violation("one plan", f"{time} plans {group}, which {busy[0]} has")
            meant = ledger.due(group, time)
            if logs != meant:
                raise Violation(
                    "compaction",
                    f"{time} takes {sorted(logs)} of {group}; completed before it: {sorted(meant)}",
                )
            newest = ledger.newest_base(group)
            if base != (newest.rsplit("/", 1)[-1] if newest else None):
                raise Violation("compaction", f"{time} merges onto {base} of {group}, newest is {newest}")

    def _clean_planned(self, time: str) -> None:
        plan = plain.container(bytes(self.disk.need(f"{TIMELINE}/{time}.clean.requested").data))
        named = set()
        for files in (plan["filePathsToBeDeletedPerPartition"] or {}).values():
            named.update(self._inside_table(file["filePath"]) for file in files)
        self._clean_plans[time] = frozenset(named)
        for path in sorted(named):
            if self._written(path):
                self._not_needed(path)
                self._not_retained(path)

    def _restore_planned(self, time: str) -> None:
        """Exactly what completed after the savepoint's instant goes."""
        plan = plain.container(bytes(self.disk.need(f"{TIMELINE}/{time}.restore.requested").data))
        going = {instant["commitTime"] for instant in plan["instantsToRollback"]}
        saved = self.ledger.commits[plan["savepointToRestoreTimestamp"]].completion
        for instant, commit in self.ledger.commits.items():
            if self.ledger.restored.get(instant, time) != time:
                continue  # an earlier restore took it back
            after = commit.completion > saved
            # A compaction planned before holds nothing that completed after: it may stay or go (Hudi
            # removes those requested after the savepoint's instant was).
            free = commit.action == "commit" and instant < saved
            if after != (instant in going) and not free:
                raise Violation(
                    "restore",
                    f"{time} restores to {saved} and {'keeps' if after else 'removes'} {instant}, completed"
                    f" at {commit.completion}",
                )

    def takes_back(self, rollback: str, target: str, plan: bytes) -> bool:
        """Whether a rollback's plan takes a completed instant back on purpose; that must be the newest."""
        if target in self.ledger.undone and self.ledger.restored.get(target) == rollback:
            return True  # known from before a crash of the machine
        commit = self.ledger.commits.get(target)
        if commit is None or not self.ledger.stands(target) or b"mainstem.rolled.back.completion" not in plan:
            return False
        later = [
            t for t, c in self.ledger.commits.items()
            if c.completion > commit.completion and self.ledger.stands(t)
        ]  # fmt: skip
        if later or commit.completion in self._savepoints():
            raise Violation("rollback", f"{rollback} takes back {target}, but {later or 'it is saved'}")
        for compacted in self.ledger.compactions.values():
            pending = compacted.completion is None and self.ledger.stands(compacted.time)
            if pending and any(
                path in logs for path in commit.paths for _, logs in compacted.operations.values()
            ):
                raise Violation("rollback", f"{rollback} takes back {target}, planned in {compacted.time}")
        self.ledger.restored[target] = rollback
        self.ledger.undone[target] = commit.completion
        return True

    def _inside_table(self, path: str) -> str:
        """A plan's path, absolute with or without a scheme, as a path of the table."""
        _, found, rest = path.partition(self.base + "/")
        return rest if found else path

    # -- completed instants ---------------------------------------------------------------------------

    def completed(self, name: TimelineName, path: str) -> None:
        """An instant became visible as completed."""
        self.ledger.completed(name, path)
        if name.action == "commit" and name.requested in self.ledger.compactions:
            self._compacted(name.requested)
        elif name.action == "replacecommit":
            self._clustered(name.requested)

    def _clustered(self, time: str) -> None:
        """It replaces what it planned, and no row is lost or changed, whoever wrote beside it."""
        ledger, commit = self.ledger, self.ledger.commits[time]
        if commit.replaced != ledger.clusterings[time].groups:
            raise Violation("clustering", f"{time} replaced {commit.replaced}, planned otherwise")
        rows = (user_columns(row) for path in commit.paths for row in plain.base_rows(self.disk, path))
        found, meant = Counter(map(text, rows)), Counter(map(text, ledger.clustered_rows(self.mode, time)))
        if found != meant:
            raise Violation("clustering", f"{time}: missing {meant - found}, too many {found - meant}")

    def _compacted(self, time: str) -> None:
        """The new base files are those of the plan and hold what Java's rule makes of its log files."""
        compacted = self.ledger.compactions[time]
        if set(compacted.bases) != set(compacted.operations):
            raise Violation(
                "compaction", f"{time} made {sorted(compacted.bases)}, planned {sorted(compacted.operations)}"
            )
        for group, path in compacted.bases.items():
            found = Counter(map(text, (user_columns(row) for row in plain.base_rows(self.disk, path))))
            meant = Counter(map(text, self.ledger.compacted_rows(self.mode, group, time).values()))
            if found != meant:
                raise Violation(
                    "compaction", f"{path}: missing {meant - found}, too many {found - meant}"
                )

    # -- deletions ------------------------------------------------------------------------------------

    def may_delete(self, path: str, instant: str) -> None:
        """Whether a data file that a completed instant names may go: raises ``Violation`` if not."""
        if not self.ledger.stands(instant):
            return
        if not any(path in named for named in self._clean_plans.values()):
            raise Violation("nothing lost", f"{path} was deleted after its instant completed, by no plan")
        self._not_needed(path)
        self.cleaned.add(path)

    def _written(self, path: str) -> bool:
        return path in self.ledger.logs or any(path in c.paths for c in self.ledger.commits.values())

    def _slice(self, path: str) -> tuple[Group, str]:
        """The file group of a file, and the barrier of its slice ("" before the first one)."""
        group = group_of(path)
        written = self.ledger.logs.get(path)
        if written is None:
            return group, path.removesuffix(".parquet").rsplit("_", 1)[-1]
        barriers = self.ledger.barriers_of(group)
        return group, max((b for b in barriers if b <= written.completion), default="")

    def _not_needed(self, path: str) -> None:
        """Not of the newest slice, of a pending plan, or of a savepoint."""
        group, own = self._slice(path)
        done = [b.time for b in self.ledger.bases_of(group)]
        if own >= max(done, default="") and self.ledger.replacing(group) is None:
            raise Violation("nothing lost", f"{path} is in the newest slice of {group}, or a pending one")
        for compacted in self.ledger.compactions.values():
            base, logs = compacted.operations.get(group, (None, frozenset()))
            pending = compacted.completion is None and self.ledger.stands(compacted.time)
            if pending and (path in logs or path.rsplit("/", 1)[-1] == base):
                raise Violation("nothing lost", f"{path} is in the pending plan {compacted.time}")
        for time in (t for t, action in plain.pending(self.disk).items() if action == "clustering"):
            planned = self.ledger.clusterings.get(time)
            if planned is not None and path in planned.files:
                raise Violation("nothing lost", f"{path} is in the pending clustering {time}")
        for instant, made in self._savepoints().items():
            if path in self.ledger.files_at(group, instant, made):
                raise Violation("nothing lost", f"{path} is needed by the savepoint {instant}")

    def _savepoints(self) -> dict[str, str]:
        """Completion times of the savepointed instants, and when the savepoints were made."""
        names = filter(None, map(plain.timeline_name, self.disk.folders.get(TIMELINE, {})))
        points = {n.requested: n.completion for n in names if n.action == "savepoint" and n.completion}
        commits = sorted(self.ledger.commits.items())
        return {c.completion: points[t] for t, c in commits if t in points and self.ledger.stands(t)}

    def _not_retained(self, path: str) -> None:
        """Not of a slice that the clean policy keeps (CleanPlanner)."""
        group, own = self._slice(path)
        replaced = self.ledger.replacing(group)
        if replaced is not None:
            kept = self._retained() if self.retention.commits is not None else None
            first = min((self.ledger.commits[t].completion for t in kept or ()), default="")
            if kept is None or (kept and replaced.requested < kept[0] and replaced.completion < first):
                return  # no query that counts is from before it was replaced
        later = [b.time for b in self.ledger.bases_of(group) if b.time > own]
        if self.retention.versions is not None and len(later) < self.retention.versions:
            raise Violation(
                "retention", f"{path} is of the newest {self.retention.versions} versions of {group}"
            )
        if self.retention.commits is not None:
            kept = self._retained()
            # Views are told by completion times: the newer slice must have been there before them.
            first = min((self.ledger.commits[t].completion for t in kept), default="")
            later = [b.time for b in self.ledger.bases_of(group, first) if b.time > own]
            if not kept or not any(time < kept[0] for time in later):
                oldest = kept[0] if kept else "any commit"
                raise Violation(
                    "retention", f"{path} is read by queries as of {oldest}, the oldest commit to retain"
                )

    def _retained(self) -> list[str]:
        """Requested times of the newest commits, and of more if an open write is older than they are."""
        assert self.retention.commits is not None
        times = sorted(t for t in self.ledger.commits if self.ledger.stands(t))
        waiting = [t for t, action in plain.pending(self.disk).items() if action == "deltacommit"]
        kept = times[-self.retention.commits :]
        if len(times) < self.retention.commits or not waiting or min(waiting) > kept[0]:
            return kept if len(times) >= self.retention.commits else []
        older = [t for t in times if t < min(waiting)]
        return [t for t in times if t >= older[-1]] if older else []

    # -- the archive ----------------------------------------------------------------------------------

    def other(self, event: str, path: str) -> None:
        """A change of a name that is neither a data file's nor an instant's."""

    def may_leave_timeline(self, name: TimelineName) -> bool:
        """Whether this file of an instant may be deleted because the archive holds the instant."""
        if not self.ledger.stands(name.requested):
            return True
        held = [row for row in plain.archived(self.disk) if row.requested == name.requested]
        if not held:
            return False
        if not self._durable(held[0].file):
            raise Violation("durable when visible", f"{name} was removed before its archive was durable")
        self._not_listed_by_a_writer(name, held[0].completion)
        if name.state == "completed":
            left = [
                n for n in self.disk.folders[TIMELINE]
                if (p := plain.timeline_name(n)) and p.requested == name.requested and not p.completion
            ]  # fmt: skip
            if left:
                raise Violation("archive", f"{name} went before {left}: the instant looks pending")
        return True

    def _not_listed_by_a_writer(self, name: TimelineName, completion: str) -> None:
        """What was pending when a Java writer began, or came since, it reads at its commit."""
        names = filter(None, map(plain.timeline_name, self.disk.folders[TIMELINE]))
        pending = [n for n in names if n.action == "deltacommit" and n.state == "requested"]
        for begun in (n.requested for n in pending):
            late = isinstance(self.disk, Bucket) and not self.disk.exists(f".hoodie/.heartbeat/{begun}")
            if late:  # a request that was carried out after its writer had taken it back
                continue
            if begun < completion and begun not in self.ledger.commits:
                raise Violation(
                    "archive", f"{name} goes, completed at {completion}, and the writer {begun} is in flight"
                )

    def _durable(self, file: str) -> bool:
        """Whether after a crash of the machine the archive's version names this file, and it is whole."""
        durable = self.disk.durable.get(HISTORY, {})
        inode = durable.get(file)
        whole = inode is not None and inode.synced == len(inode.data)
        return whole and file in plain.files_of_archive(durable)

    def archive(self) -> None:
        """Active and archived instants are all that completed, each once."""
        rows = plain.archived(self.disk)
        count = Counter((row.requested, row.action) for row in rows)
        if twice := [key for key, number in count.items() if number > 1]:
            raise Violation("archive", f"{twice[0]} is archived twice")
        known = {(t, c.completion) for t, c in self.ledger.commits.items() if self.ledger.stands(t)}
        writes = ("commit", "deltacommit", "replacecommit")
        there = {key[:2] for key in plain.completed(self.disk) if key[2] in writes}
        if known != there:
            raise Violation(
                "archive",
                f"completed, but neither active nor archived: {sorted(known - there)[:3]}; archived or"
                f" active, but never completed: {sorted(there - known)[:3]}",
            )
        newest = max((row.requested for row in rows if row.action in writes), default="")
        names = filter(None, map(plain.timeline_name, self.disk.folders.get(TIMELINE, {})))
        if old := [n for n in names if n.action == "restore" and n.completion and n.requested < newest]:
            raise Violation("archive", f"to Java {newest} is pending: it is archived, and {old[0]} is not")


def text(row: Row) -> str:
    """A row as text, for comparisons of multisets."""
    return repr(sorted(row.items()))
