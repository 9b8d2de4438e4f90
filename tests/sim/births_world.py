"""Scenario ``births``: a table is made by several at once, deleted and made anew at its path, over and over,
beside creators, writers, streams, readers, services and indexers that go on with what they opened.

A *life* of the path is the time from one deletion of the folder to the next. A handle belongs to the life in
which its table's note was made (``publish.table_identity``). The rules:

- in each life the properties are put in place once, whole and durable, and the metadata table that they name
  is there by then, whole and durable, and stays;
- nobody publishes on, takes files of, or changes the properties of a table of another life than his handle's;
- what was acknowledged is read as long as its life lasts, and nothing of another life ever is;
- nobody is told that a batch is committed by a table that is no more.

Folders are deleted in one step (moved away), or name by name (``rm -r``) beside everybody else; what lives
while that goes on may end with an error, and its rows may be there or not. Another engine makes tables too,
as Java does: it looks for the folder, then writes the properties over what is there, and leaves no note.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api import create
from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, RolledBack, TableExists, TableReplaced
from mainstem.formats.java_properties import parse_properties
from mainstem.layout.properties import TableConfig, encode_config, load_config
from mainstem.publish.table_identity import known_identity
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.writers.stream_guard import StreamGuard
from tests.sim import plain_format as plain
from tests.sim.sim_store import Bucket
from tests.sim.simulation import EXPECTED, Simulation
from tests.sim.world import Process, Violation

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
_OPTIONS = {
    "hoodie.client.heartbeat.interval_in_ms": "1000",
    "hoodie.client.heartbeat.tolerable.misses": "2",
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "3",
    "hoodie.keep.max.commits": "4",
    "hoodie.metadata.index.check.timeout.seconds": "20",
}
_INDEX = "record_index"


@dataclass
class Life:
    """What the path held between two deletions."""

    number: int
    #: how often the properties were put where none were
    born: int = 0
    #: whether another engine wrote its properties over ours
    overwritten: bool = False
    #: the folder was being removed name by name while this life began, or is: nothing is sure
    torn: bool = False
    published: set[str] = field(default_factory=set)
    #: row ids that were acknowledged, and those that may be there
    acknowledged: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)


class Births(Simulation):
    """Two or three creators, writers, a stream, readers, services, indexers and one who deletes."""

    scenario = "births"
    version = 9
    busy_calls = 6000

    def build(self) -> None:
        self.disk.watchers.clear()  # the rules of one life's timeline are looked at by the other scenarios
        self.disk.watchers.append(self._event)
        self.life = Life(0)
        self.lives = [self.life]
        self.life_of: dict[str, Life] = {}
        self.handles: dict[Process, Table] = {}
        self.numbers = 0
        self.removing = False
        self.settling = False
        rng = self.random
        self.deletions = rng.choice([0, 1, 2, 3, 4])
        self.rounds = {f"c{n}": 3 for n in range(rng.choice([2, 3]))}
        self.rounds |= {f"w{n}": 6 for n in range(rng.choice([1, 2]))} | {"s0": 6}
        for name in self.rounds:
            self.start(name, {"c": self._creator, "w": self._writer, "s": self._stream}[name[0]])
        self.start("deleter", self._deleter)
        self.start("reader", self._reader, counted=False)
        if rng.random() < 0.6:
            self.start("service", self._service, counted=False)
        for name in ["indexer", "indexer'"][: rng.choice([0, 1, 2])]:
            self.start(name, self._indexer, counted=False)
        if rng.random() < 0.4:
            self.start("stranger", self._another_engine, counted=False)

    # -- what happens to the disk ---------------------------------------------------------------------

    def _event(self, event: str, path: str, source: str = "") -> None:
        try:
            self._look(event, path, source)
        except Violation as violation:
            self.world.fail(violation)

    def _look(self, event: str, path: str, source: str) -> None:
        folder, name = self.disk.split(path)
        if path == paths.GATE and event == "created":
            self.life_of.setdefault(json.loads(bytes(self.disk.need(path).data))["table"], self.life)
        elif folder == paths.FENCE and event == "created" and (note := paths.parse_table_note(name)):
            self.life_of.setdefault(note, self.life)
        elif path == paths.PROPERTIES:
            self._properties(event)
        elif folder == paths.TIMELINE and self._is_published(event, name):
            self._only_its_own(path)
            done = plain.timeline_name(name)
            if done is not None and done.state == "completed" and done.action == "deltacommit":
                self.life.published.add(done.requested)
        elif event == "replaced" and folder.startswith(paths.HISTORY):
            self._only_its_own(path)
        elif event == "deleted":
            self._deleted(path, folder, name)

    def _is_published(self, event: str, name: str) -> bool:
        """Whether a section publishes this file: by a link, on a store by a put. What begins is put, too."""
        if not isinstance(self.disk, Bucket):
            return event == "linked"
        instant = plain.timeline_name(name)
        if event != "created" or instant is None or instant.state == "inflight":
            return False
        return instant.state == "completed" or instant.action != "deltacommit"

    def _properties(self, event: str) -> None:
        if event in ("linked", "created") and not self._is_stranger():
            self.life.born += 1
            if self.life.born > 1:
                raise Violation("born once", f"{paths.PROPERTIES} was {event} twice in one life")
            self._whole_at_birth()
        elif event == "replaced":
            if self._is_stranger():
                self.life.overwritten = True
            elif self._creating():
                raise Violation("born once", "a creator wrote over the properties of a table")
            else:
                self._only_its_own(paths.PROPERTIES)

    def _whole_at_birth(self) -> None:
        """At the moment of its birth."""
        text = self._durable(paths.PROPERTIES, named=False)
        listed = parse_properties(text, path=paths.PROPERTIES).get("hoodie.table.metadata.partitions", "")
        if not listed or self.removing or self.life.torn:
            return
        self._durable(f"{paths.METADATA}/{paths.PROPERTIES}")
        names = [plain.timeline_name(name) for name in self.disk.folders.get(paths.METADATA_TIMELINE, {})]
        if not any(name is not None and name.state == "completed" for name in names):
            raise Violation("whole at birth", "the metadata table has no completed instant")
        groups = [name for name in self.disk.folders.get(f"{paths.METADATA}/files", {}) if ".log." in name]
        if not groups:
            raise Violation("whole at birth", "the metadata table has no file group")
        self._durable(f"{paths.METADATA}/files/{groups[0]}")

    def _durable(self, path: str, *, named: bool = True) -> bytes:
        inode = self.disk.get(path)
        if inode is None or inode.synced < len(inode.data) or not inode.data:
            raise Violation("whole at birth", f"{path} is missing or not synced")
        data = bytes(inode.data)
        while named and path not in ("", paths.HOODIE):
            folder, entry = self.disk.split(path)
            if entry not in self.disk.durable.get(folder, {}):
                raise Violation("whole at birth", f"the name {path} is not durable")
            path = folder
        return data

    def _deleted(self, path: str, folder: str, name: str) -> None:
        if self._actor() == "deleter":
            return
        if path == f"{paths.METADATA}/{paths.PROPERTIES}":
            raise Violation("nobody removes", f"{self._actor()} removed {path}")
        instant = plain.timeline_name(name) if folder == paths.TIMELINE else None
        log = plain.log_file(path)
        of = instant.requested if instant is not None else log.instant if log is not None else None
        if of in self.life.published:
            self._only_its_own(path)

    def _only_its_own(self, path: str) -> None:
        """Whoever publishes, takes away or replaces has a handle of this life."""
        actor = self.world.current
        table = None if actor is None else self.handles.get(actor.process)
        identity = None if table is None else table.opened.identity
        if identity is not None and self.life_of[identity] is not self.life and not self.removing:
            raise Violation(
                "its own table",
                f"{self._actor()} opened the table of life {self.life_of[identity].number} and changed {path}"
                f" in life {self.life.number}",
            )

    def _actor(self) -> str:
        return "" if self.world.current is None else self.world.current.process.name

    def _is_stranger(self) -> bool:
        return self._actor() == "stranger"

    def _creating(self) -> bool:
        return self.world.current is not None and self.world.current.process not in self.handles

    # -- handles -----------------------------------------------------------------------------------------

    def open(self, process: Process) -> Table:
        """As ``open_table``."""
        seams = self.seams(process)
        identity = known_identity(seams.storage)
        table = Table(seams, load_config(seams.storage), dict(_OPTIONS), identity)
        self.handles[process] = table
        return table

    def create(self, process: Process, *, metadata: bool) -> Table:
        """As ``create_table``."""
        self.handles.pop(process, None)
        raw = self._raw(metadata=metadata)
        seams = self.seams(process)
        identity = create.put_table(seams, raw)
        table = Table(seams, TableConfig(raw), dict(_OPTIONS), identity)
        self.handles[process] = table
        return table

    def _raw(self, *, metadata: bool, buckets: int = 2) -> dict[str, str]:
        given = {"hoodie.mainstem.exclusive": "true"}
        raw = create.new_properties(
            self.base, SCHEMA, ["id"], [], [], buckets, self.version, given, "simulated"
        )
        return raw | create.with_metadata() if metadata else raw

    def _life(self, table: Table) -> Life | None:
        """None of a table without a note, to which no writer of ours came yet."""
        return None if table.opened.identity is None else self.life_of[table.opened.identity]

    def _retry(self, process: Process, work: Callable[[], Any]) -> Any:
        """Until faults let it through; None where there is no table, or not that one any more."""
        while not self._over():
            born = self.life.born > 0
            try:
                return work()
            except (*EXPECTED, RolledBack, OutcomeUnknown, OSError):
                self.world.counts.refused += 1
            except Invalid as error:
                self._may_refuse(process, error, born)
                return None
            except MainstemError:
                # Two lives in one look, or a folder that is half gone: not an answer, at least.
                if not (self.life.torn or self.removing or self.life.overwritten):
                    raise
                return None
            self.pause_between(process, 300)
        return None

    def _may_refuse(self, process: Process, error: Invalid, born: bool) -> None:
        """``born``: whether there was a table when the refused call began."""
        self.world.counts.refused += 1
        self.pause_between(process, 500)
        table = self.handles.get(process)
        unsure = self.life.torn or self.removing or self.life.overwritten or len(self.lives) > 1
        if isinstance(error, TableReplaced) and table is not None and self._life(table) is self.life:
            if not (self.life.torn or self.life.overwritten):
                raise Violation("its own table", f"{process.name} is refused by the table it opened: {error}")
        elif not isinstance(error, TableReplaced | TableExists) and not unsure and born:
            raise Violation("refused", f"in {process.name}: {error}") from error

    def _over(self) -> bool:
        return self.settling or (self.running == 0)

    # -- actors ------------------------------------------------------------------------------------------

    def _creator(self, process: Process) -> None:
        while self.rounds[process.name] > 0:
            self.rounds[process.name] -= 1
            metadata = self.random.random() < 0.8
            table = self._retry(process, lambda m=metadata: self._made_or_opened(process, m))
            if table is not None:
                self._retry(process, lambda t=table: self._upsert(process, t))
            self.pause_between(process, 2500)

    def _made_or_opened(self, process: Process, metadata: bool) -> Table:
        try:
            return self.create(process, metadata=metadata)
        except TableExists:
            return self.open(process)
        except Invalid as error:
            if len(self.lives) == 1 and not self.life.overwritten:
                raise Violation("takes up", f"what died creators left was not taken up: {error}") from error
            raise

    def _opened(self, process: Process, table: Table | None) -> Table | None:
        """The table that was opened, as long as it is there."""
        if table is not None and self.random.random() < 0.8:
            return table
        return self._retry(process, lambda: self.open(process))

    def _writer(self, process: Process) -> None:
        table = None
        while self.rounds[process.name] > 0:
            self.rounds[process.name] -= 1
            table = self._opened(process, table)
            if table is not None and self._retry(process, lambda t=table: self._upsert(process, t)) is None:
                table = None
            self.pause_between(process, 1500)

    def _stream(self, process: Process) -> None:
        """Micro-batches in order; from the first on where the table is another one."""
        table, batch = None, 0
        while self.rounds[process.name] > 0:
            self.rounds[process.name] -= 1
            again = self._opened(process, table)
            if again is None:
                table, batch = None, 0
                self.pause_between(process, 500)
                continue
            if table is None or again.opened.identity != table.opened.identity:
                batch = 0
            table, guard = again, StreamGuard("s", batch)
            done = self._retry(process, lambda t=table, g=guard: self._upsert(process, t, g))
            table, batch = (None, 0) if done is None else (table, batch + 1)
            self.pause_between(process, 1500)

    def _upsert(self, process: Process, table: Table, guard: StreamGuard | None = None) -> bool:
        before = self.life
        table.writer_context()  # gives a table of another engine its note
        life = self._life(table)
        assert life is not None
        self.numbers += 1
        ids = [f"{self.numbers}-{n}" for n in range(self.random.choice([1, 3]))]
        with table.begin("upsert", guard=guard) as txn:
            life.possible.update(ids)
            txn.write(pa.table({"id": ids, "ts": [self.numbers] * len(ids)}, schema=SCHEMA))
            self.pause_between(process, 800)
            outcome = txn.commit()
        if outcome.status == "already_committed":
            life.possible.difference_update(ids)
            if outcome.instant not in life.published:
                raise Violation("acknowledged", f"{guard} is held by {outcome.instant}, which is not there")
            if life is not before and life is not self.life:
                raise Violation("acknowledged", f"{guard} was acknowledged by a table that is no more")
        else:
            self.world.counts.commits += 1
            life.acknowledged.update(ids)
        return True

    def _deleter(self, process: Process) -> None:
        while self.deletions > 0 and not self._over():
            self.pause_between(process, 8000)
            if self.life.born == 0 and not self.disk.exists(paths.PROPERTIES) and self.random.random() < 0.7:
                if all(left <= 0 for left in self.rounds.values()):
                    return
                continue
            self.deletions -= 1
            if self.random.random() < 0.6:
                self.world.point("delete", "all at once")
                self._all_gone()
            else:
                self._remove_by_name(process)

    def _all_gone(self) -> None:
        """Somebody moves the folder away."""
        self._nobody_publishes()
        self.disk.folders, self.disk.durable = {"": {}}, {"": {}}
        self._next_life()

    def _nobody_publishes(self) -> None:
        """On a store, where a put that was decided may come late: who deletes a table stops those who are at
        something there, and waits until nothing travels any more (PROTOCOL.md)."""
        if not isinstance(self.disk, Bucket):
            return
        self.disk.travelling.clear()
        here = self.world.current
        for process in self.world.processes:
            busy = process not in self.idle and process is not (here and here.process)
            if busy and not process.immune and process.on_death is not None:
                process.kill()

    def _next_life(self, *, torn: bool = False) -> None:
        self.life = Life(len(self.lives), torn=torn)
        self.lives.append(self.life)
        self.world.note(f"LIFE {self.life.number}")

    def _remove_by_name(self, process: Process) -> None:
        storage = self.seams(process).storage
        self._nobody_publishes()
        self.removing, self.life.torn = True, True
        self._next_life(torn=True)
        while self.disk.folders.get(""):
            try:
                for name in storage.names(""):
                    (storage.delete_tree if name in self.disk.folders else storage.delete)(name)
            except OSError:
                self.world.counts.refused += 1
        self.removing = False
        self._all_gone()

    def _reader(self, process: Process) -> None:
        table = None
        while not self._over():
            table = self._opened(process, table)
            if table is not None and self._retry(process, lambda t=table: self._read(t)) is None:
                table = None
            self.pause_between(process, 3000)

    def _read(self, table: Table) -> bool:
        life, before = self._life(table), self.life
        if life is None:
            return True
        meant = set(life.acknowledged)
        crashes = self.world.counts.host_crashes
        found = self._ids(table)
        self.world.counts.reads += 1
        if life is not before and not before.torn:
            raise Violation("its own table", f"life {before.number} was read as life {life.number}")
        if crashes == self.world.counts.host_crashes:
            self._same(found, life, meant if life is self.life else set())
        return True

    def _ids(self, table: Table) -> list[str]:
        return table.scan(columns=["id"]).to_arrow().column("id").to_pylist()

    def _same(self, found: list[str], life: Life, meant: set[str]) -> None:
        if life.torn:
            meant = set()
        if len(found) != len(set(found)) or not meant <= set(found) <= life.possible:
            raise Violation(
                "rows",
                f"life {life.number}: lost {sorted(meant - set(found))}, of nobody"
                f" {sorted(set(found) - life.possible)}, {len(found)} rows",
            )

    def _service(self, process: Process) -> None:
        table = None
        while not self._over():
            table = self._opened(process, table)
            if table is not None:
                work = self.random.choice(
                    [table.compact, table.clean, table.archive, table.rollback_failed_writes]
                )
                if self._retry(process, lambda w=work: (w(), True)) is None:
                    table = None
            self.pause_between(process, 1500)

    def _indexer(self, process: Process) -> None:
        """Indexes, and with ``files`` the whole metadata table, made, dropped and made anew."""
        table = None
        while not self._over():
            self.pause_between(process, 4000)
            table = self._opened(process, table)
            if table is None:
                continue
            name = self.random.choice([_INDEX, _INDEX, "files"])
            try:
                if self.random.random() < 0.6:
                    table.create_index(name)
                else:
                    table.drop_index(name, if_exists=True)
            except TableReplaced:
                table = None
            except Invalid:
                self.world.counts.refused += 1  # it is there, somebody else builds it, or there is no table
            except (*EXPECTED, OutcomeUnknown, OSError):
                self.world.counts.refused += 1

    def _another_engine(self, process: Process) -> None:
        """Looks, makes folders, and writes the properties over whatever is there by then."""
        storage = self.seams(process).storage
        while not self._over():
            self.pause_between(process, 6000)
            try:
                if storage.stat(paths.HOODIE) is None:
                    for folder in paths.INITIAL_FOLDERS:
                        make_folder(storage, folder)
                    raw = self._raw(metadata=False, buckets=self.random.choice([2, 4]))
                    storage.put(paths.PROPERTIES, encode_config(raw, "then"), durable=True)
            except OSError:
                self.world.counts.refused += 1

    # -- the end -----------------------------------------------------------------------------------------

    def _host_crashed(self) -> None:
        self.disk.crash()
        if self.removing:  # what was removed may be back in part: somebody sees to that
            self.removing = False
            self._all_gone()
        if not self.disk.exists(paths.PROPERTIES) and not self.life.acknowledged:
            self.life.born = 0  # nobody was told of it

    def settle(self) -> None:
        self.finish("creators and writers")
        self.settling = True
        self.start("last", self._last, immune=True)
        self.finish("the last one")

    def _last(self, process: Process) -> None:
        """The table is opened or made anew, written once more, and holds what its life was promised."""
        self.world.sleep(60_000)
        if self.life.overwritten or self.life.torn:
            self._all_gone()
        try:
            table = self._made_or_opened(process, True)
        except Invalid as error:
            if len(self.lives) == 1:
                raise Violation("takes up", str(error)) from error
            self._all_gone()
            table = self._made_or_opened(process, True)
        table.rollback_failed_writes()
        self._upsert(process, table)
        life = self._life(table)
        assert life is self.life
        folders = Table(self.seams(process), table.config, {"hoodie.metadata.enable": "false"})
        for one in (table, folders):
            self._same(self._ids(one), life, life.acknowledged)
        rng = random.Random(self.seed)
        for wanted in rng.sample(sorted(life.acknowledged), min(3, len(life.acknowledged))):
            rows = table.scan(columns=["id"], filter=pc.field("id") == wanted).to_arrow()
            if rows.num_rows != 1:
                raise Violation("rows", f"{rows.num_rows} rows for {wanted}, which was acknowledged")
