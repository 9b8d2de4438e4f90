"""Scenario ``sinks``: jobs stage rows and finish checkpoints, committers race for them, services run beside.

A job stands for Flink: it stages batches, writes their lines into a part file under a hidden name, completes
its checkpoint, and gives the part its final name. Its state outlives it: an heir takes up from the last
completed checkpoint, and gives a part its name if that had not happened. Two committers per sink run the
production code, beside ordinary writers, compactors and cleaners. In the end every completed checkpoint is in
exactly one commit, in order, and nothing is left in the sink's folders.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mainstem.api.table import Table
from mainstem.errors import MainstemError
from mainstem.flink.committer import PARTS_KEY, Committer
from mainstem.layout.properties import load_config
from mainstem.storage import paths
from mainstem.storage.links import has_links
from mainstem.writers.staged_rows import Stager, parse_line
from mainstem.writers.transaction import Transaction
from tests.sim import plain_format as plain
from tests.sim.ledger import user_columns
from tests.sim.oracle import Intent, Mode, Row, put_delete, put_row
from tests.sim.services_world import Services
from tests.sim.sim_store import Bucket
from tests.sim.tables_world import SCHEMA, Tables
from tests.sim.world import INTERRUPTS, Faults, Process, Violation

Operations = list[tuple[str, Row]]


@dataclass
class Job:
    """What a job's checkpoints hold: it outlives every process."""

    name: str
    checkpoints: int
    #: parts of completed checkpoints, in order
    parts: list[str] = field(default_factory=list)
    #: the part of the last checkpoint under its hidden name, until it has the final one
    hidden: str | None = None
    #: of that part; on a store it lies in a multipart upload that is not completed
    content: bytes = b""
    attempts: int = 0
    ended: bool = False

    @property
    def over(self) -> bool:
        return len(self.parts) == self.checkpoints and self.hidden is None


class Sinks(Services):
    """``services`` with jobs and committers in place of most others."""

    scenario = "sinks"
    busy_calls = 6000

    def __init__(
        self, seed: int, *, faults: Faults | None = None, log: bool = False, body: str = "disk"
    ) -> None:
        super().__init__(seed, faults=faults, log=log, body=body)
        self.staged: dict[str, Operations] = {}

    def build(self) -> None:
        Tables.build(self)
        self.restoring = False
        self.patience_ms = 1000.0 * (self.seed % 4 == 0)  # where they stand back, they seldom race
        rng = random.Random(f"{self.seed}/sinks")
        self.jobs = {n: Job(n, rng.choice([2, 3, 5])) for n in ["t1", "t1_2"][: rng.choice([1, 1, 2])]}
        for name in self.jobs:
            self.start(f"job {name}", self._job(name))
            for number in (1, 2):
                self.start(f"committer {name} {number}", self._committer(name))
        self.start("cleaner", self._chore(lambda process, table: table.clean()), counted=False)

    # -- a job ----------------------------------------------------------------------------------------

    def _job(self, name: str) -> Any:
        def body(process: Process) -> None:
            job = self.jobs[name]
            table = self._patiently(process, lambda: self.open(process))
            spec = self._patiently(process, lambda: table.staging_spec(SCHEMA))
            storage = table.writer_context().seams.storage
            job.attempts += 1
            stager = Stager(storage, spec, name, process.random)
            self._restored(job)
            # Until its parts are committed a crash of the machine may take their names back.
            while not job.over or self._waiting(job):
                try:
                    self._finish(storage, job)
                    if not job.over:
                        self._checkpoint(process, storage, stager, job)
                except OSError:
                    self.world.counts.refused += 1
                self.pause_between(process, 100)
            job.ended = True

        return body

    def _waiting(self, job: Job) -> bool:
        return bool(self._with_rows(paths.committables_folder(job.name)))

    def _with_rows(self, folder: str) -> list[str]:
        """Files of a sink's folder, but for blanks, which stay in a store, and for hidden ones."""
        files = self.disk.folders.get(folder, {})
        return [n for n, file in files.items() if not n.startswith(".") and bytes(file.data).strip()]

    def _checkpoint(self, process: Process, storage: Any, stager: Stager, job: Job) -> None:
        number = len(job.parts)
        lines = []
        for batch in range(self.random.choice([1, 1, 2, 3])):
            lines.append(self._stage(stager, job, number))
            self.pause_between(process, 50)
            if batch and self.random.random() < 0.2:
                lines.append("")  # a batch without rows
        final = f"part-{job.attempts}-{number}"
        hidden = f".{final}.inprogress.{process.random.getrandbits(32):x}"
        folder = paths.committables_folder(job.name)
        job.content = "".join(f"{line}\n" for line in lines).encode()
        if has_links(storage):
            storage.put_new(f"{folder}/{hidden}", job.content, durable=True)
            storage.settle([], [*_parents(folder), folder], durable=True)
        job.parts.append(final)  # from here on the checkpoint is complete
        job.hidden = hidden

    def _stage(self, stager: Stager, job: Job, number: int) -> str:
        rng = self.random
        # Rows of a job are told from those of writers by their marks; keys are everybody's.
        rows = self._rows(rng, f"w{number}", rng.choice([1, 2, 4]))
        flags = [not self.mode.partial and rng.random() < 0.2 for _ in rows]
        batch = pa.Table.from_pylist(rows, schema=SCHEMA)
        line = stager.stage(batch, pa.array(flags), order=f"{number:04d}")
        kinds = ["delete" if gone else "upsert" for gone in flags]
        self.staged[parse_line(line, source="job").stamp] = list(zip(kinds, rows, strict=True))
        return line

    def _finish(self, storage: Any, job: Job) -> None:
        """What a file sink does when its checkpoint completed, and again after a restart."""
        if job.hidden is None:
            return
        folder = paths.committables_folder(job.name)
        if isinstance(self.disk, Bucket):
            self._complete_upload(job, f"{folder}/{job.parts[-1]}")
            return
        with suppress(FileNotFoundError):  # done before a crash
            storage.rename(f"{folder}/{job.hidden}", f"{folder}/{job.parts[-1]}")
        job.hidden = None

    def _complete_upload(self, job: Job, path: str) -> None:
        """On a store Flink's file sink completes a multipart upload, which has an effect once."""
        self.world.point("complete upload", path)
        if job.hidden is not None:
            self.disk.store(path, job.content, {})
            job.hidden = None

    def _restored(self, job: Job) -> None:
        """On a store a restored sink looks for the part of the last checkpoint, with its length."""
        if not isinstance(self.disk, Bucket) or not job.parts or job.hidden is not None:
            return
        found = self.disk.get(f"{paths.committables_folder(job.name)}/{job.parts[-1]}")
        if found is None or len(found.data) != len(job.content):
            raise Violation("liveness", f"the restored sink of {job.name} does not find {job.parts[-1]}")

    # -- committers -------------------------------------------------------------------------------------

    def _committer(self, name: str) -> Any:
        def body(process: Process) -> None:
            committer = self._patiently(process, lambda: Committer(self._opened(process), name))
            committer.patience_ms = self.patience_ms
            while True:
                over = self.jobs[name].ended
                try:
                    committer.commit_pending()
                    if over and not committer.pending():
                        return
                except MainstemError as error:
                    self._accept(error)
                except INTERRUPTS as error:
                    self.interrupted(error)
                self.pause_between(process, 200)

        return body

    def _opened(self, process: Process) -> Table:
        seams = self.seams(process)
        return Recorded(self, process.name, seams, load_config(seams.storage), self._options(process))

    def _options(self, process: Process) -> dict[str, str]:
        return {**self.heartbeat(process), **self.small_logs()}

    def _host_crashed(self) -> None:
        places = {job.name: paths.committables_folder(job.name) for job in self.jobs.values()}
        durable = {name: dict(self.disk.durable.get(folder, {})) for name, folder in places.items()}
        super()._host_crashed()
        for job in self.jobs.values():
            there = self.disk.folders.get(places[job.name], {})
            for name, inode in durable[job.name].items():
                if not job.parts or not name.startswith(f".{job.parts[-1]}."):
                    continue
                if job.parts[-1] not in there:  # a rename that was not synced is undone, never torn in two
                    self.disk.folders[places[job.name]][name] = inode
                    self.disk.durable[places[job.name]][name] = inode
                    job.hidden = name

    # -- the end ----------------------------------------------------------------------------------------

    def _serve(self, table: Table) -> None:
        for name in self.jobs:
            committer = Committer(table, name)
            if committer.commit_pending():
                raise Violation("liveness", f"part files of {name} were left")
            committer.sweep(-1)
        table.compact()
        table.clean()

    def _audit(self, table: Table) -> None:
        Tables._audit(self, table)
        self._in_order()
        for job in self.jobs.values():
            self._exactly_once(job)
            for folder in (paths.staged_folder(job.name), paths.committables_folder(job.name)):
                left = self._with_rows(folder)
                if left:
                    raise Violation("no orphans", f"{folder} holds {left}")

    def _in_order(self) -> None:
        """What a commit's log files leave of each key is what its batches do, one row after the other."""
        for intent in self.audit.committed():
            if not intent.writer.startswith("committer"):
                continue
            meant: dict[Any, Any] = {}
            for kind, row in intent.operations:
                _put(self.mode, meant, kind == "delete", row["part"], row["id"], row["ts"], row)
            found: dict[Any, Any] = {}
            logs = [w for w in self.rules.ledger.logs.values() if w.log.instant == intent.instant]
            for block in [block for w in sorted(logs, key=lambda w: w.log.order) for block in w.blocks]:
                for row in block.rows:
                    put_row(self.mode, found, user_columns(row))
                for gone in block.deletes:
                    _put(self.mode, found, True, gone.partition, gone.key, gone.ordering, {})
            if found != meant:
                raise Violation("order of batches", f"{intent.instant} left {found}, expected {meant}")

    def _exactly_once(self, job: Job) -> None:
        held: list[tuple[int, list[str]]] = []
        for data in plain.completed(self.disk).values():
            extra = plain.container(data).get("extraMetadata") or {}
            if PARTS_KEY in extra:
                sink, number, _ = json.loads(extra["mainstem.stream.guard"])
                held += [(number, json.loads(extra[PARTS_KEY]))] if sink == f"flink/{job.name}" else []
        committed = [part for _, parts in sorted(held) for part in parts]
        if committed != job.parts:
            raise Violation(
                "exactly once", f"commits of {job.name} hold {committed}, its checkpoints are {job.parts}"
            )


class Recorded(Table):
    """A committer's table: what its transactions hold is noted for the checkers."""

    def __init__(self, simulation: Sinks, name: str, *rest: Any) -> None:
        super().__init__(*rest)
        self._simulation = simulation
        self._name = name

    def begin(self, operation: str = "upsert", **given: Any) -> Transaction:
        txn = super().begin(operation, **given)
        if not txn.already_committed:
            intent = Intent(self._name, txn.instant)
            self._simulation.audit.intents[intent.instant] = intent
            self._simulation.intents.append(intent)
            self._record(txn, intent)
        return txn

    def _record(self, txn: Any, intent: Intent) -> None:
        add, commit = txn.add_staged, txn.commit

        def add_staged(lines: list[str], *, source: str = "") -> int:
            before = len(intent.operations)
            for line in lines:
                intent.operations += self._simulation.staged[parse_line(line, source=source).stamp]
            try:
                return add(lines, source=source)
            except BaseException:
                del intent.operations[before:]
                raise

        txn.add_staged = add_staged
        txn.commit = lambda: self._simulation.told(commit, intent)


def _put(
    mode: Mode, entries: dict[Any, Any], gone: bool, part: str, key: str, ts: int | None, row: Row
) -> None:
    if gone:
        put_delete(mode, entries, (part, key), ts)
    else:
        put_row(mode, entries, row)


def _parents(folder: str) -> list[str]:
    parts = folder.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]
