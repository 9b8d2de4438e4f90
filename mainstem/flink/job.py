"""``execute``: INSERTs as one running Flink job, whose checkpoints become commits of their tables.

While this process lives it commits what checkpoints complete, and at the end of the job what is left. If
it goes away first, nothing is lost: the next job of the sink commits when it starts, ``mainstem
flink-commit`` at any time (``committer.py`` says why several at once do no harm).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, MainstemError, Unavailable
from mainstem.flink.committer import Committer
from mainstem.flink.pipeline import Insert
from mainstem.flink.workers import checkpoint_interval_ms, ensure_workers, java_field, stream_environment
from mainstem.writers.outcome import Outcome

if TYPE_CHECKING:
    from pyflink.common.job_client import JobClient
    from pyflink.table import StatementSet, TableEnvironment

_PAUSE_S = 0.05


def execute(inserts: Sequence[Insert], others: StatementSet | None = None) -> InsertResult:
    """Submit INSERTs, and those of ``others`` into tables that are not Hudi's, as one job.

    Commits first what an earlier job of the same sinks left. Raises ``Invalid`` if the rows could not be
    written exactly once with the environment's settings (no checkpoints), errors of ``Committer`` for what an
    earlier job left and cannot be committed, and PyFlink's for a job that cannot be submitted.
    """
    if not inserts:
        raise Invalid("nothing to execute: no INSERT was given")
    env = inserts[0].env
    if any(insert.env is not env for insert in inserts):
        raise Invalid("the INSERTs of one job belong to one table environment")
    outcomes: list[Outcome] = []
    committers = _committers(inserts, outcomes.append)
    for committer in committers:
        committer.commit_pending()
    client = _client(_submit(env, inserts, others))
    return InsertResult(client, committers, outcomes, [insert.target.sink for insert in inserts])


def _committers(inserts: Sequence[Insert], on_outcome: Callable[[Outcome], None]) -> list[Committer]:
    found: dict[tuple[str, str], Committer] = {}
    for insert in inserts:
        table, sink = insert.target.table, insert.target.sink
        found.setdefault((table.path, sink), Committer(table, sink, on_outcome=on_outcome))
    return list(found.values())


def _submit(env: TableEnvironment, inserts: Sequence[Insert], others: StatementSet | None) -> Any:
    """The Java client of the job."""
    from pyflink.java_gateway import get_gateway

    ensure_workers(env)
    env._before_execute()
    sinks = get_gateway().jvm.java.util.ArrayList()
    numbers: Counter[tuple[str, str]] = Counter()
    for insert in inserts:
        place = (insert.target.table.path, insert.target.sink)
        sinks.add(insert.transformation(numbers[place]))
        numbers[place] += 1
    _check_exactly_once(env, sinks)
    if others is not None:
        operations = java_field(others._j_statement_set, "operations")
        sinks.addAll(env._j_tenv.getPlanner().translate(operations))
    executor = java_field(stream_environment(env)._j_tenv, "execEnv")
    name = "insert into " + ", ".join(insert.target.sink for insert in inserts)
    pipeline = executor.createPipeline(sinks, env._j_tenv.getConfig().getConfiguration(), name)
    return executor.executeAsync(pipeline)


def _client(job: Any) -> JobClient:
    """PyFlink's client; its savepoints call methods that Flink 2 no longer has."""
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


def _check_exactly_once(env: TableEnvironment, sinks: Any) -> None:
    config = env.get_config()
    if config.get("execution.runtime-mode", "STREAMING").upper() == "BATCH":
        return
    interval = checkpoint_interval_ms(env)
    if interval is None:
        if all(_bounded(sink) for sink in sinks):
            return
        raise Invalid(
            "INSERT INTO a Hudi table from an unbounded source without checkpoints would never commit: each"
            " commit is a checkpoint. Set execution.checkpointing.interval, for example"
            " t_env.get_config().set('execution.checkpointing.interval', '10 s')"
        )
    if "LEAST" in config.get("execution.checkpointing.mode", "EXACTLY_ONCE").upper():
        raise Invalid(
            "execution.checkpointing.mode=AT_LEAST_ONCE would write rows twice after a failure; set"
            " EXACTLY_ONCE, the default"
        )
    finished = "execution.checkpointing.checkpoints-after-tasks-finish"
    for key in (finished, f"{finished}.enabled"):
        if config.get(key, "true").lower() == "false":
            raise Invalid(f"{key}=false: the last rows of a source that ends would never be committed")


def _bounded(sink: Any) -> bool:
    """Whether every source that a transformation reads ends by itself."""
    sources = [one for one in sink.getTransitivePredecessors() if one.getInputs().isEmpty()]
    return all(_ends(source) for source in sources)


def _ends(source: Any) -> bool:
    methods = {method.getName() for method in source.getClass().getMethods()}
    if "getBoundedness" not in methods:
        return False
    if source.getBoundedness().toString() == "BOUNDED":
        return True
    if "getOperator" not in methods:
        return False
    # VALUES is an input format, which ends, in a source that says it is unbounded.
    function = source.getOperator().getUserFunction().getClass().getSimpleName()
    return function == "InputFormatSourceFunction"


class InsertResult:
    """A submitted job, like PyFlink's ``TableResult`` of an INSERT.

    ``outcomes``: commits of this process so far, in their order.
    """

    def __init__(
        self, client: JobClient, committers: Sequence[Committer], outcomes: list[Outcome], sinks: list[str]
    ) -> None:
        self.outcomes = outcomes
        self._client = client
        self._committers = list(committers)
        self._sinks = sinks
        self._result = client.get_job_execution_result()
        self._mutex = threading.Lock()
        self._settled = False
        # No thread looks whether the job has ended: the planner keeps what it knows in Java's threads, which
        # a second Python thread that calls Java would mix up. So these go on until ``wait``, or to the end
        # of this process.
        for committer in self._committers:
            committer.start()

    @property
    def error(self) -> MainstemError | None:
        """What keeps a committer from committing at present (it tries again); None if nothing does."""
        return next((one.error for one in self._committers if one.error is not None), None)

    def get_job_client(self) -> JobClient:
        """Status, savepoints, cancelling."""
        return self._client

    def wait(self, timeout_ms: int | None = None) -> None:
        """Until the job has ended and what its checkpoints completed is committed.

        Raises ``Unavailable`` after ``timeout_ms``, while the job goes on; errors of ``Committer``, and what
        PyFlink raises for a job that failed or was cancelled.
        """
        until = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        while not self._result.done():
            if until is not None and time.monotonic() >= until:
                raise Unavailable(
                    f"the job {self._client.get_job_id()} did not end within {timeout_ms} ms; it goes on"
                )
            time.sleep(_PAUSE_S)
        self._settle()
        self._result.result()

    def print(self) -> None:
        """The job's id, and its sinks with -1 rows each, as Flink does: they are not counted."""
        print(f"Job {self._client.get_job_id()}: " + ", ".join(f"{sink}: -1" for sink in self._sinks))

    def _settle(self) -> None:
        with self._mutex:
            if self._settled:
                return
            for committer in self._committers:
                committer.stop()
                committer.commit_pending()
            self._settled = True
