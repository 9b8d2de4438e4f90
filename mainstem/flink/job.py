"""``execute``: runs INSERTs as one Flink job, whose checkpoints become commits of their tables.

While this process lives, it commits what checkpoints complete, and at the end of the job what is left. If
it ends first, nothing is lost: the next job of the sink commits when it starts, or ``mainstem
flink-commit`` does at any time (``committer.py`` explains why several committers do no harm).
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.api.job_table import exists
from mainstem.errors import Invalid, MainstemError, Unavailable
from mainstem.flink.committer import Committer
from mainstem.flink.local_cluster import LocalCluster
from mainstem.flink.pipeline import Insert, Planned
from mainstem.flink.recovery import check_exactly_once, check_state
from mainstem.flink.stream_workers import ensure_workers, java_field, stream_environment
from mainstem.forks import Mutex
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    from pyflink.common.job_client import JobClient
    from pyflink.table import StatementSet, TableEnvironment

_log = logging.getLogger(__name__)

_PAUSE_S = 0.05


def execute(planned: Sequence[Planned], others: StatementSet | None = None) -> InsertResult:
    """Submits INSERTs, and those of ``others`` into tables that are not Hudi's, as one job.

    After all checks, creates missing tables, then commits what an earlier job of the same sinks left.
    Raises ``Unavailable`` or ``LockUnavailable`` if a table's lock cannot be acquired, ``Invalid`` if the
    environment's settings do not allow exactly-once writes (no checkpoints, another table's checkpoint),
    errors of ``Committer`` if an earlier job's rows cannot be committed, and PyFlink's errors for a job that
    cannot be submitted.
    """
    if not planned:
        raise Invalid("nothing to execute: no INSERT was given")
    env = planned[0].env
    if any(one.env is not env for one in planned):
        raise Invalid("the INSERTs of one job belong to one table environment")
    check_exactly_once(env, [one.rows for one in planned])
    there = [one.opened() for one in planned if exists(one.declared.options.location)]
    check_state(env, [insert.uid(number) for insert, number in _numbered(there)])
    inserts = [one.opened() for one in planned]
    for table in {insert.target.table.path: insert.target.table for insert in inserts}.values():
        # Check the lock now: later, only the committer's thread would notice that it is unreachable.
        table.writer_context().seams.lock.acquire().release()
    outcomes: list[Outcome] = []
    committers = _committers(inserts, outcomes.append)
    for committer in committers:
        committer.commit_pending()
    job = _submit(env, inserts, others)
    sinks = [insert.target.sink for insert in inserts]
    return InsertResult(_client(job), LocalCluster(job), committers, outcomes, sinks)


def _committers(inserts: Sequence[Insert], on_outcome: Callable[[Outcome], None]) -> list[Committer]:
    found: dict[tuple[str, str], Committer] = {}
    for insert in inserts:
        table, sink = insert.target.table, insert.target.sink
        committer = Committer(table, sink, on_outcome=on_outcome, on_error=_logged())
        found.setdefault((table.path, sink), committer)
    return list(found.values())


def _logged() -> Callable[[MainstemError], None]:
    """A callback that logs errors, and an error that repeats on every attempt only once."""
    last = ""

    def log(error: MainstemError) -> None:
        nonlocal last
        if str(error) != last:
            last = str(error)
            _log.warning("checkpoints wait for their commit: %s", error)

    return log


def _submit(env: TableEnvironment, inserts: Sequence[Insert], others: StatementSet | None) -> Any:
    """The Java client of the job."""
    from pyflink.java_gateway import get_gateway

    ensure_workers(env)
    env._before_execute()
    sinks = get_gateway().jvm.java.util.ArrayList()
    for insert, number in _numbered(inserts):
        sinks.add(insert.transformation(number))
    if others is not None:
        operations = java_field(others._j_statement_set, "operations")
        sinks.addAll(env._j_tenv.getPlanner().translate(operations))
    executor = java_field(stream_environment(env)._j_tenv, "execEnv")
    name = "insert into " + ", ".join(insert.target.sink for insert in inserts)
    pipeline = executor.createPipeline(sinks, env._j_tenv.getConfig().getConfiguration(), name)
    return executor.executeAsync(pipeline)


def _numbered(inserts: Iterable[Insert]) -> Iterator[tuple[Insert, int]]:
    """Each INSERT with its number among those of the same table and sink."""
    numbers: Counter[tuple[str, str]] = Counter()
    for insert in inserts:
        place = (insert.target.table.path, insert.target.sink)
        yield insert, numbers[place]
        numbers[place] += 1


def _client(job: Any) -> JobClient:
    """PyFlink's client with working savepoints: its own call methods that Flink 2 no longer has."""
    from pyflink.common.completable_future import CompletableFuture
    from pyflink.common.job_client import JobClient
    from pyflink.java_gateway import get_gateway

    canonical = get_gateway().jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL

    class Client(JobClient):
        def stop_with_savepoint(
            self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
        ) -> CompletableFuture:
            place = job.stopWithSavepoint(advance_to_end_of_event_time, savepoint_directory, canonical)
            return CompletableFuture(place, str)

        def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture:
            return CompletableFuture(job.triggerSavepoint(savepoint_directory, canonical), str)

    return Client(job)


class InsertResult:
    """A submitted job, like PyFlink's ``TableResult`` of an INSERT.

    ``outcomes``: commits of this process so far, in their order.
    """

    def __init__(
        self,
        client: JobClient,
        cluster: LocalCluster,
        committers: Sequence[Committer],
        outcomes: list[Outcome],
        sinks: list[str],
    ) -> None:
        self.outcomes = outcomes
        self._client = client
        self._cluster = cluster
        self._committers = list(committers)
        self._sinks = sinks
        self._result = client.get_job_execution_result()
        self._mutex = Mutex()
        self._settled = False
        # No thread watches for the end of the job: the planner keeps state in Java's threads, which a second
        # Python thread calling Java would mix up. So the committers run until ``wait`` or the end of this
        # process.
        for committer in self._committers:
            committer.start()

    @property
    def error(self) -> MainstemError | None:
        """The error that currently keeps a committer from committing (it keeps trying); None if none."""
        return next((one.error for one in self._committers if one.error is not None), None)

    def get_job_client(self) -> JobClient:
        """PyFlink's client of the job, for status, savepoints and cancelling."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Waits until the job has ended and everything that its checkpoints completed is committed.

        Meanwhile it replaces task managers of a local cluster that have shut themselves down.

        Raises ``Unavailable`` after ``timeout_ms`` (the job continues), errors of ``Committer``, and what
        PyFlink raises for a job that failed or was cancelled.
        """
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._result.done():
            if until is not None and time.monotonic() >= until:
                raise Unavailable(
                    f"the job {self._client.get_job_id()} did not end within {timeout_ms} ms; it goes on"
                )
            self._cluster.look()
            time.sleep(_PAUSE_S)
        self._settle()
        self._result.result()

    def print(self) -> None:
        """Prints the job's id and its sinks with -1 rows each, as Flink does: rows are not counted."""
        print(f"Job {self._client.get_job_id()}: " + ", ".join(f"{sink}: -1" for sink in self._sinks))

    def _settle(self) -> None:
        with self._mutex.held:
            if self._settled:
                return
            for committer in self._committers:
                committer.stop()
                committer.commit_pending()
            self._settled = True
