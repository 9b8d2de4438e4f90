"""Checkers that watch the disk while a run goes on, and that read it when the run is over.

They know the file format (``plain_format``) and what the writers meant (``oracle``), and nothing of
the production code. Rules carry the numbers of the invariants in the module's order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim import plain_format as plain
from tests.sim.gate_rules import GATE, GateRules
from tests.sim.ledger import Ledger, user_columns
from tests.sim.oracle import Intent, Mode, Row
from tests.sim.plain_format import TIMELINE, LogFile, TimelineName
from tests.sim.showing_rules import UNSHOWN, ShowingRules
from tests.sim.sim_storage import Disk
from tests.sim.sim_store import Bucket
from tests.sim.world import Actor, Process, Violation, World

if TYPE_CHECKING:
    from tests.sim.service_rules import ServiceRules

_FENCE = ".hoodie/.mainstem/fence"
_EPOCH = re.compile(r"^\.hoodie/\.mainstem/fence/epoch-(\d+)$")
_TICKET = re.compile(r"^\.hoodie/\.mainstem/fence/ticket-(\d+)-")
#: write token of a task attempt that goes on after its transaction was committed without it
LOST_ATTEMPT = "0-9-9"
HEARTBEATS = ".hoodie/.heartbeat"
WRITES = ("commit", "deltacommit", "replacecommit")
MARKERS = ".hoodie/.temp"


def is_lost(token: str) -> bool:
    """Whether a file with this write token is of such an attempt; its second number says the partition,
    too."""
    first, second, third = map(int, token.split("-"))
    return (first, second % 2**20, third) == (0, 9, 9)


@dataclass
class Publication:
    """A completed instant, in order of becoming visible."""

    requested: str
    completion: str
    action: str
    at: float


class Watch:
    """Rules that hold at every moment, checked at every change of a name.

    ``returns``: on a store, whether a late put may also bring back what a restore or a rollback took
    back, and plans that were archived. Without it, only completed instants that were archived come back.
    """

    returns = False

    def __init__(self, world: World, disk: Disk, *, fenced: bool = True) -> None:
        self.world = world
        self.disk = disk
        self.fenced = fenced  # False: a writer takes part that knows no fence
        self.published: list[Publication] = []
        self.requested: set[str] = set()
        self.rolled_back: dict[str, str] = {}  # target -> requested time of the rollback
        #: rules of table services; None where no rows are written
        self.rules: ServiceRules | None = None
        self._owner: dict[str, Process | None] = {}  # requested time -> who made it
        self._claims: dict[str, list[Process]] = {}  # requested time -> who showed its heartbeat
        self._made: set[str] = set()
        self._newest = ""  # of what is published; a request of a write may be tried in vain
        self._newest_plan = ""  # of what is published and no delta commit
        self._newest_compaction = ""  # that was planned
        self._begun: dict[str, str] = {}  # requests of writes, not inflight yet: what they must lie above
        self._before_beat: dict[str, str] = {}  # heartbeat -> the newest time when it appeared
        self._epoch_of: dict[Actor | None, int] = {}
        self._entered = 0
        #: of an object store, where files may come late and come back
        self.gate = GateRules(world, disk, fenced=fenced) if isinstance(disk, Bucket) else None
        #: of base files that get their names when their instant completes
        self.showing = ShowingRules(disk)
        self._shown: dict[str, bytes] = {}  # published files and their content
        self._gone: dict[str, bytes] = {}  # those that left the timeline
        self._back: set[str] = set()  # of those, the ones that a late put brought back
        self._had: dict[str, set[Process | None]] = {}  # requested time -> who ever requested it
        self._torn: set[str] = set()  # requested times of which a late delete removed a file
        disk.watchers.append(self._event)

    def host_crashed(self) -> None:
        """What was not durable is gone, and everybody who saw it is dead: start from the disk."""
        names = [plain.timeline_name(n) for n in self.disk.folders.get(TIMELINE, {})]
        kept = {key[:2] for key in plain.completed(self.disk)}
        self.published = [p for p in self.published if (p.requested, p.completion) in kept]
        self._made = {f"{f}/{n}" for f, names in self.disk.folders.items() for n in names}
        self.requested = {n.requested for n in names if n is not None} | {p[0] for p in kept}
        if self.rules is not None:
            self.rules.host_crashed(self.requested, kept)
        self._newest = _newest(names)
        self._begun.clear()
        self._entered = 0
        self._epoch_of.clear()
        self._claims.clear()
        self._owner.clear()  # what their heartbeats said is gone, too
        self.rolled_back.clear()
        for name in names:
            if name is not None and name.action == "rollback" and name.state == "requested":
                self._note_rollback(name)
            elif name is not None and name.action == "restore" and name.state == "requested":
                self._note_restore(name)
        self.published.sort(key=lambda p: p.completion)

    def entered_at(self, path: str) -> float:
        """When the section was entered that publishes this file, by the store's clock: the time of its
        epoch's marker, or of the gate's swap before the one that decided."""
        if self.gate is not None:
            decided = self.gate.decided.get(path)
            return 0.0 if decided is None else decided.entered
        fence = self.disk.folders.get(_FENCE, {})
        times = (inode.mtime for name, inode in fence.items() if inode and name.startswith("epoch-"))
        return max(times, default=0.0)

    def foreign_noted(self) -> bool:
        """Whether another kind of writer was noted on the table."""
        if self.gate is not None:
            return self.gate.foreign
        return self.disk.exists(f"{_FENCE}/foreign")

    # -- events -----------------------------------------------------------------------------------

    def _event(self, event: str, path: str, source: str = "") -> None:
        try:
            self._check(event, path, source)
        except Violation as violation:
            self.world.fail(violation)

    def _check(self, event: str, path: str, source: str) -> None:
        if path != TIMELINE and not path.startswith(_FENCE):
            # Between its epoch's marker and its listing a holder looks at the fence only: this one failed.
            self._epoch_of.pop(self.world.current, None)
        beats = path.startswith(f"{HEARTBEATS}/") and event != "deleted"
        if beats and isinstance(self.disk, Bucket) and self.disk.mode == "overwrite":
            raise Violation("heartbeats stay gone", f"{path} was put without a condition")
        who = self._who()
        self.showing.named(event, path, source, who)
        if path.startswith(f"{HEARTBEATS}/") and event != "deleted" and who is not None:
            self._before_beat.setdefault(path.rpartition("/")[2], self._newest)
            claims = self._claims.setdefault(path.rpartition("/")[2], [])
            if claims[-1:] != [who]:
                claims.append(who)
        if self.gate is not None and event in ("created", "replaced"):
            self.gate.replaced(path, event)
        if path.startswith(f"{TIMELINE}/"):
            self._timeline(event, path, source)
        elif path == TIMELINE:
            self._listed()
        elif path == GATE and self.gate is not None:
            self.gate.changed(event, self._who())
        elif self.gate is not None and path in self.gate.decided and event != "deleted":
            self.gate.visible(path)  # on the metadata table's timeline
        elif (marker := _EPOCH.match(path)) and event != "deleted":
            self._epoch_of[self.world.current] = int(marker[1])
            self.showing.entered(who, {p.requested for p in self.published})
        elif (log := plain.log_file(path)) is not None:
            self._data(event, path, log)
        elif event == "deleted" and path.endswith(".parquet") and not path.startswith(".hoodie/"):
            self._data_deleted(path, path.removesuffix(".parquet").rsplit("_", 1)[-1])
        elif self.rules is not None:
            self.rules.other(event, path)

    def _who(self) -> Process | None:
        """Who sent what happens now."""
        if self.world.current is not None:
            return self.world.current.process
        return self.disk.sender if isinstance(self.disk, Bucket) else None

    def _decider(self, path: str) -> Process | None:
        """Who publishes this file: on a store not always who puts it."""
        decided = None if self.gate is None else self.gate.decided.get(path)
        return self._who() if decided is None else decided.by

    def _new_name(self, event: str, path: str) -> None:
        if event == "replaced" or path in self._made:
            raise Violation("created twice", f"{path} ({event})")
        self._made.add(path)

    def _listed(self) -> None:
        actor = self.world.current
        if actor in self._epoch_of:
            self._entered = max(self._entered, self._epoch_of[actor])

    def _timeline(self, event: str, path: str, source: str) -> None:
        name = plain.timeline_name(path.rsplit("/", 1)[1])
        if name is None:
            return
        if event == "deleted":
            self._timeline_deleted(name, path)
            return
        if self._late_mark(name) or (self.gate is not None and self._late_request(name, path)):
            return
        if event == "replaced" and name.action == "indexing" and name.state == "requested":
            return  # an empty plan in the place of one that is ended
        self._new_name(event, path)
        if name.state == "requested":
            self._requested(name)
        elif name.state == "inflight":
            self._needs(name, "requested")
            self._has_begun(name)
        else:
            self._completed(name, path)
        begun = name.state == "requested" and name.action == "deltacommit"
        if name.state != "inflight" and not begun:
            self._fence(path, source)
            if self.fenced:
                self.showing.published(name, {p.requested for p in self.published})
        if name.action == "rollback" and name.state == "requested":
            self._note_rollback(name)
            self._spares_the_living(name)
        elif self.rules is not None and name.state == "requested":
            self.rules.requested(name)
            if name.action == "restore":
                self._note_restore(name)  # after the rules have read the plan

    def _late_mark(self, name: TimelineName) -> bool:
        """Whether an executor was stopped until its plan was done and archived, or taken back: its inflight
        file means nothing to anybody. ``settled`` finds the ones that are never removed."""
        service = name.action in (
            "clean", "rollback", "restore", "compaction", "logcompaction", "clustering",
        )  # fmt: skip
        over = name.requested in self.rolled_back or any(
            p.requested == name.requested for p in self.published
        )
        plan = f"{TIMELINE}/{name.requested}.indexing.requested"
        if name.action == "indexing" and self.disk.get(plan) is None:
            over = service = True  # dropped while its builder stood still
        return name.state == "inflight" and service and over

    def _late_request(self, name: TimelineName, path: str) -> bool:
        """Whether an object store carried a request out when nobody waited for it any more, and no harm is
        done.

        A published file may come back with the same bytes. The request and the inflight file of a write
        that was
        taken back may appear: a pending instant without a heartbeat, which the next rollback takes away.
        """
        if path in self._gone:
            if bytes(self.disk.need(path).data) != self._gone[path]:
                raise Violation("created twice", f"{path} came back with other bytes")
            self._back.add(path)
            self.world.counts.came_back += 1
            return True
        if name.completion is not None or (name.state == "requested" and name.action != "deltacommit"):
            return False
        self._had.setdefault(name.requested, set()).add(self._who())
        unknown = name.state == "inflight" and name.requested not in self.requested
        return unknown or path in self._made or self._is_over(name.requested)

    def _is_over(self, instant: str) -> bool:
        return instant in self.rolled_back or any(p.requested == instant for p in self.published)

    def _late_deletion(self, name: TimelineName, path: str) -> bool:
        """Whether an object store carried a deletion out late: of a file that had come back, or of one of a
        pending write, whose time may be another writer's by now. That one finds out, and gives up."""
        if path in self._back:
            self._back.discard(path)
            return True
        if path in self._shown:
            self._gone[path] = self._shown[path]
            if name.action == "rollback" and name.state == "completed":
                assert isinstance(self.disk, Bucket)
                for target in [t for t, rollback in self.rolled_back.items() if rollback == name.requested]:
                    self.disk.lose(target)  # nobody looks for files of that instant any more
            archived = any(row.requested == name.requested for row in plain.archived(self.disk))
            if not self.returns and not (archived and name.state == "completed"):
                assert isinstance(self.disk, Bucket)
                self.disk.closed.add(path)
        if name.state == "completed" or name.action != "deltacommit":
            return False
        actor, had = self.world.current, self._had.get(name.requested, set())
        owner = self._owner.get(name.requested)
        late = actor is None or (actor.process in had and actor.process is not owner)
        if not late:
            return False
        self._torn.add(name.requested)
        if not self._is_over(name.requested):
            self._made.discard(path)
            self.requested.discard(name.requested)
        return True

    def _fence(self, path: str, source: str) -> None:
        if self.gate is not None:
            self.gate.visible(path)
            self._shown[path] = bytes(self.disk.need(path).data)
            return
        ticket = _TICKET.match(source) or _EPOCH.match(source)
        if self.fenced and ticket is None:
            raise Violation("superseded", f"{path} was published without a ticket")
        if ticket is not None and int(ticket[1]) < self._entered:
            raise Violation(
                "superseded",
                f"epoch {ticket[1]} published {path} after epoch {self._entered} read the timeline",
            )

    def _note_rollback(self, name: TimelineName) -> None:
        path = f"{TIMELINE}/{name.requested}.rollback.requested"
        inode = self.disk.get(path)
        if inode is None or not inode.data:
            raise Violation("plan first", f"{path} has no plan")
        rolled = plain.container(bytes(inode.data))["instantToRollback"]
        target = rolled["commitTime"]
        if rolled["action"] == "compaction":
            raise Violation("plans stay", f"{path} rolls back the compaction {target}, which anybody may do")
        self.rolled_back[target] = name.requested
        if self.rules is not None and self.rules.takes_back(name.requested, target, bytes(inode.data)):
            self.published.append(
                Publication(name.requested, name.requested, "rollback planned", self.world.now)
            )

    def promised_ms(self, instant: str) -> float | None:
        """For how long the writer of an instant said that it may be silent, where its heartbeat still says
        so."""
        owner = self._claims.get(instant, [self._owner.get(instant)])[-1]
        return None if owner is None or not owner.silent_ms else owner.silent_ms

    def _spares_the_living(self, name: TimelineName) -> None:
        """Whoever is rolled back by another process was silent for longer than it had said it may be."""
        plan = self.disk.need(f"{TIMELINE}/{name.requested}.rollback.requested")
        told = plain.container(bytes(plan.data))["instantToRollback"]
        target = told["commitTime"]
        if told["action"] == "clustering":
            return  # a writer takes back a plan that would leave out its rows, whoever executes it
        beat, promised = self.disk.get(f"{HEARTBEATS}/{target}"), self.promised_ms(target)
        by = self._decider(f"{TIMELINE}/{name.requested}.rollback.requested")
        # A plan of a service is its executor's, who need not be who made it.
        own = by is not None and by in (self._owner.get(target), *self._claims.get(target, ()))
        if own or beat is None or promised is None or any(p.requested == target for p in self.published):
            return
        silent = self.entered_at(f"{TIMELINE}/{name.requested}.rollback.requested") - beat.mtime
        # One that beat after the other had looked was taken for dead rightly.
        if 0 <= silent < promised - 1:
            raise Violation(
                "live writer",
                f"{name.requested} rolls back {target}, whose writer showed itself {silent:.0f} ms before and"
                f" may be silent for {promised:.0f} ms",
            )

    def _note_restore(self, name: TimelineName) -> None:
        """From its plan on the table is what it was at the savepoint, and nothing that goes may complete."""
        if self.rules is None:
            return
        done = {p.requested for p in self.published}
        for instant, restore in self.rules.ledger.restored.items():
            if instant not in done:
                self.rolled_back.setdefault(instant, restore)
        self.published.append(
            Publication(name.requested, name.requested, "restore planned", self.world.now)
        )

    def _requested(self, name: TimelineName) -> None:
        if name.requested in self.requested:
            raise Violation("unique times", f"two instants were requested at {name.requested}")
        if name.action == "deltacommit":
            self._begun[name.requested] = self._floor(name.requested)
        elif name.requested <= self._newest and self.fenced:
            raise Violation(
                "time order", f"{name.requested} requested after {self._newest} became visible"
            )
        self.requested.add(name.requested)
        self._owner[name.requested] = self._decider(
            f"{TIMELINE}/{name.requested}.{name.action}.{name.state}"
        )
        if name.action != "deltacommit":
            self._newest = max(self._newest, name.requested)
            self._newest_plan = max(self._newest_plan, name.requested)
        if name.action == "compaction":
            self._newest_compaction = max(self._newest_compaction, name.requested)
        if name.action == "deltacommit" and name.requested not in self._claims:
            raise Violation("heartbeat first", f"{name.requested} was requested without a heartbeat")

    def _floor(self, requested: str) -> str:
        """What a write that is requested now must lie above: all that is visible. Where only the gate keeps
        writers apart, delta commits that appeared since its heartbeat do not count: they ran beside it."""
        if self.gate is None or self.gate.foreign:
            return self._newest
        return max(self._newest_plan, self._before_beat.get(requested, self._newest))

    def _has_begun(self, name: TimelineName) -> None:
        """A write has its time for good: all that was published before its request lies below."""
        newest = self._begun.pop(name.requested, "")
        if name.requested <= newest and self.fenced:
            raise Violation("time order", f"{name.requested} begun after {newest} became visible")

    def _needs(self, name: TimelineName, state: str) -> None:
        if name.state == "inflight" and name.requested in self.rolled_back:
            return  # made by a writer that was stopped inside begin; nobody may complete it
        if name.action == "savepoint" and state == "requested":
            return  # a savepoint begins inflight
        if name.requested in self._torn:
            return
        actions = {
            "commit": ("compaction",), "deltacommit": ("deltacommit", "logcompaction"),
            "replacecommit": ("clustering",),
        }  # fmt: skip
        found = [
            self.disk.exists(f"{TIMELINE}/{name.requested}.{action}.{state}")
            for action in actions.get(name.action, (name.action,))
        ]
        if not any(found):
            raise Violation(
                "legal states", f"{name.requested} became {name.state} without being {state}"
            )

    def _completed(self, name: TimelineName, path: str) -> None:
        assert name.completion is not None
        if name.completion <= name.requested:
            raise Violation("legal states", f"{path}: completed at or before it was requested")
        self._needs(name, "requested")
        self._needs(name, "inflight")
        again = [p for p in self.published if (p.requested, p.action) == (name.requested, name.action)]
        if again and name.action != "savepoint":
            raise Violation("created twice", f"{name.requested} completed twice")
        if name.requested in self.rolled_back:
            raise Violation(
                "no commit after rollback",
                f"{path} completed although rollback {self.rolled_back[name.requested]} was planned",
            )
        if self.published and name.completion <= self.published[-1].completion:
            raise Violation(
                "completion order",
                f"{path} became visible after {self.published[-1].completion}",
            )
        if name.completion <= self._newest and self.fenced:
            raise Violation("time order", f"{path} completed after {self._newest} became visible")
        if name.action == "deltacommit" and name.completion <= self._newest_compaction:
            raise Violation("time order", f"{path} completed after {self._newest_compaction} was planned")
        self._newest = max(self._newest, name.completion)
        if name.action != "deltacommit":
            self._newest_plan = max(self._newest_plan, name.completion)
        self.published.append(
            Publication(name.requested, name.completion, name.action, self.world.now)
        )
        self._content(name, path)
        self._count(name)

    def _count(self, name: TimelineName) -> None:
        counts = self.world.counts
        merged_logs = self.disk.exists(f"{TIMELINE}/{name.requested}.logcompaction.requested")
        counts.compactions += name.action == "commit"
        counts.clusterings += name.action == "replacecommit"
        counts.log_compactions += name.action == "deltacommit" and merged_logs
        counts.cleans += name.action == "clean"
        counts.savepoints += name.action == "savepoint"
        counts.restores += name.action == "restore"

    def _content(self, name: TimelineName, path: str) -> None:
        """Whole and durable at the moment of becoming visible, with every file that it names."""
        inode = self.disk.need(path)
        try:
            record = plain.container(bytes(inode.data))
        except Exception as error:
            raise Violation("whole when visible", f"{path}: {error}") from error
        if inode.synced < len(inode.data):
            raise Violation("durable when visible", f"{path} was not synced")
        if name.action in WRITES:
            stats = [stat for some in (record["partitionToWriteStats"] or {}).values() for stat in some]
            for stat in stats:
                self._data_file(name, stat)
            # Java looks up statistics of files by their bare names.
            names = Counter(stat["path"].rpartition("/")[2] for stat in stats)
            if len(names) != len(stats):
                raise Violation("names differ", f"{name.requested} wrote {names.most_common(1)}")
        if self.rules is not None:
            self.rules.completed(name, path)

    def _data_file(self, name: TimelineName, stat: Row) -> None:
        inode = self.disk.get(stat["path"])
        if inode is None:
            raise Violation("whole when visible", f"{name.requested} names {stat['path']}: missing")
        if stat["fileSizeInBytes"] != len(inode.data):
            raise Violation("whole when visible", f"{stat['path']} is not as long as it is said to be")
        if inode.synced < len(inode.data):
            raise Violation("durable when visible", f"{stat['path']} was not synced")
        path = stat["path"]
        while path:
            folder, entry = self.disk.split(path)
            if entry not in self.disk.durable.get(folder, {}):
                raise Violation("durable when visible", f"the name {path} was not synced")
            path = folder

    def _timeline_deleted(self, name: TimelineName, path: str) -> None:
        if name.action == "savepoint":
            self._made.discard(path)  # an instant may be saved again; its time is not given again
            return
        if self.gate is not None and self._late_deletion(name, path):
            return
        self._deletion_allowed(name, path)
        self._newest = _newest([plain.timeline_name(n) for n in self.disk.folders[TIMELINE]])
        archived = any(p.requested == name.requested for p in self.published)
        if name.requested not in self.rolled_back and not archived:  # given up: its time may be used again
            self._made.discard(path)
            self.requested.discard(name.requested)

    def _deletion_allowed(self, name: TimelineName, path: str) -> None:
        if self.rules is not None and self.rules.may_leave_timeline(name):
            self.world.counts.archived += name.state == "completed"
            return
        if name.state == "completed":
            raise Violation("legal states", f"completed {path} was deleted")
        done = [p for p in self.published if p.requested == name.requested]
        if done:
            raise Violation("legal states", f"{path} was deleted although {done[0].completion} is visible")
        if name.requested in self.rolled_back or self._gives_up(name):
            return
        if name.action == "indexing":  # dropped: the table names the index no more (``indexing_world``)
            return
        if name.action != "rollback":
            raise Violation("plan first", f"{path} was deleted without a rollback plan")

    def _gives_up(self, name: TimelineName) -> bool:
        """A writer may take its own instant back without a plan as long as it holds no file."""
        actor = self.world.current
        own = actor is not None and self._owner.get(name.requested) is actor.process
        return own and all(log.instant != name.requested for log in plain.log_files(self.disk))

    def _data(self, event: str, path: str, log: LogFile) -> None:
        if event == "deleted":
            self._data_deleted(path, log.instant)
            return
        if self.gate is not None and event == "created" and log.instant in self.rolled_back:
            return  # its put is carried out, or repeated, after the rollback that removed it: nobody shows it
        self._new_name(event, path)
        marker = f"{MARKERS}/{log.instant}/{path}.marker.CREATE"
        # The markers of an attempt that wakes up after the commit may be swept between its two steps.
        late = log.instant in self.rolled_back or is_lost(log.token)
        if not self.disk.exists(marker) and not late:
            raise Violation("marker first", f"{path} was created without its marker")

    def _data_deleted(self, path: str, instant: str) -> None:
        if not any(p.requested == instant for p in self.published) or self._surplus(path, instant):
            return
        if self.rules is None:
            raise Violation("nothing lost", f"{path} was deleted after its instant completed")
        self.rules.may_delete(path, instant)

    def _surplus(self, path: str, instant: str) -> bool:
        """Whether the completed instant does not name this file (of a failed attempt)."""
        return all(
            path not in plain.commit_on_disk(*key, data).paths
            for key, data in plain.completed(self.disk).items()
            if key[0] == instant and key[2] in WRITES
        )


# -- when the run is over -----------------------------------------------------------------------------


class Audit:
    """Rules about the whole table, read from the disk alone and held against the writers' intents."""

    def __init__(self, watch: Watch, mode: Mode, intents: list[Intent]) -> None:
        self.watch = watch
        self.disk = watch.disk
        self.mode = mode
        self.intents = {intent.instant: intent for intent in intents}

    def committed(self) -> list[Intent]:
        """The visible transactions in order of completion; outcome honesty is checked on the way."""
        assert self.watch.rules is not None
        restored = self.watch.rules.ledger.restored
        visible = [commit for commit in plain.commits(self.disk) if commit.requested not in restored]
        seen = {commit.requested for commit in visible}
        for intent in self.intents.values():
            if intent.fate == "committed" and intent.instant not in seen | set(restored):
                raise Violation("nothing lost", f"{intent.writer} was told {intent.instant} committed")
            if intent.fate == "failed" and intent.instant in seen:
                raise Violation("honest outcome", f"{intent.instant} is visible but was said to fail")
        for commit in visible:
            if commit.requested not in self.intents:
                raise Violation("nothing doubled", f"{commit.requested} was committed by nobody")
        return [self.intents[commit.requested] for commit in visible]

    def content(self) -> None:
        """The committed files hold exactly the rows that were meant, all or none, each once."""
        by_instant: dict[str, list[str]] = {}
        for log in plain.log_files(self.disk):
            if is_lost(log.token):
                continue
            by_instant.setdefault(log.instant, []).append(log.path)
        buckets: dict[tuple[str, str], set[str]] = {}
        base_files = plain.base_files(self.disk)
        assert self.watch.rules is not None
        ledger, cleaned = self.watch.rules.ledger, self.watch.rules.cleaned
        for commit in ledger.writes():
            there = [*base_files.get(commit.requested, []), *by_instant.get(commit.requested, [])]
            if sorted(set(commit.paths) - cleaned) != sorted(there):
                raise Violation(
                    "one slice", f"{commit.requested} names {commit.paths}, the disk has {there}"
                )
            logs = [ledger.logs[path] for path in commit.paths if path in ledger.logs]
            for written in logs:
                buckets.setdefault((written.log.partition, written.log.file_id[:8]), set()).add(
                    written.log.file_id
                )
            if commit.requested in self.intents:
                intent = self.intents[commit.requested]
                self._same(intent, ledger)
                self._timed(intent, ledger)
        for where, ids in buckets.items():
            if len(ids) > 1:
                raise Violation("one file id", f"{where} has {sorted(ids)}")

    def _same(self, intent: Intent, ledger: Ledger) -> None:
        found: Counter[str] = Counter()
        for row in ledger.rows_of(intent.instant):
            if row["_hoodie_commit_time"] != intent.instant:
                raise Violation("one slice", f"{intent.instant} wrote a row of another instant: {row}")
            found[_text(user_columns(row))] += 1
        for block in ledger.blocks_of(intent.instant):
            if block.instant != intent.instant:
                raise Violation("one slice", f"{intent.instant} wrote a block of {block.instant}")
            found.update(f"delete {d.partition} {d.key}" for d in block.deletes)
        meant: Counter[str] = Counter()
        for kind, row in intent.operations:
            text = f"delete {row['part']} {row['id']}" if kind == "delete" else _text(row)
            meant[text] += 1
        if found != meant:
            raise Violation(
                "nothing lost, nothing doubled",
                f"{intent.instant}: missing {meant - found}, too many {found - meant}",
            )

    def _timed(self, intent: Intent, ledger: Ledger) -> None:
        """Deletes of a statement have the ordering values that they were given."""
        if not intent.timed:
            return
        given = {(row["part"], row["id"]): row["ts"] for kind, row in intent.operations if kind == "delete"}
        for delete in (d for block in ledger.blocks_of(intent.instant) for d in block.deletes):
            meant = given.get((delete.partition, delete.key))
            if delete.ordering != meant:
                raise Violation(
                    "deletes keep ordering values",
                    f"{intent.instant} deletes {delete.key} at {delete.ordering}, meant {meant}",
                )

    def streams(self, batches: dict[str, int]) -> None:
        """Each batch of each stream is committed exactly once."""
        counted = Counter(i.stream for i in self.committed() if i.stream is not None)
        for stream, count in batches.items():
            for batch in range(count):
                if counted[(stream, batch)] != 1:
                    raise Violation(
                        "exactly once",
                        f"batch {batch} of {stream} was committed {counted[(stream, batch)]} times",
                    )

    def settled(self) -> None:
        """Nothing pending, no garbage of dead writers, a constant number of files of our own."""
        if waiting := plain.pending(self.disk):
            raise Violation("liveness", f"still pending: {waiting}")
        done = {requested for requested, _, _ in plain.completed(self.disk)}
        for log in plain.log_files(self.disk):
            if log.instant not in done:
                raise Violation("no orphans", f"{log.path} belongs to no instant")
        for instant, files in plain.base_files(self.disk).items():
            if instant not in done:
                raise Violation("no orphans", f"{files} belong to no instant")
        for name in sorted(self.disk.folders.get(HEARTBEATS, {})):
            raise Violation("no orphans", f"heartbeat {name} is still there")
        for name in sorted(self.disk.folders.get(MARKERS, {})):
            raise Violation("no orphans", f"the marker folder of {name} is still there")
        for name in sorted(self.disk.folders.get(UNSHOWN, {})):
            raise Violation("no orphans", f"files that {name} did not show are still there")
        fence = self.disk.folders.get(".hoodie/.mainstem/fence", {})
        for name in sorted(name for name in fence if name.startswith("showing-")):
            raise Violation("no orphans", f"the note {name} is still there")
        # The epoch, and at most three notes; a crash of the machine may bring an older one back.
        if len(fence) > 5 + self.watch.world.counts.host_crashes:
            raise Violation("constant files", f"the fence folder holds {sorted(fence)}")
        contents = self.disk.folders.get(".hoodie/.mainstem/decided", {})
        named = [] if self.watch.gate is None else self.watch.gate.contents()
        if left := sorted(set(contents) - set(named)):
            raise Violation("constant files", f"contents of decisions are left: {left}")


def _newest(names: Iterable[TimelineName | None]) -> str:
    """The newest time among them, those aside at which a write was requested."""
    times = ((n.completion or "", "" if n.action == "deltacommit" else n.requested) for n in names if n)
    return max(map(max, times), default="")


def same_rows(rows: list[Row], expected: dict[tuple[str, str], Row], what: str) -> None:
    """Raises ``Violation`` unless the rows are exactly the expected ones."""
    found = Counter(_text(row) for row in rows)
    meant = Counter(_text(row) for row in expected.values())
    if found != meant:
        raise Violation("snapshot", f"{what}: missing {meant - found}, too many {found - meant}")


def _text(row: Row) -> str:
    return repr(sorted(row.items()))
