"""Finds the micro-batch that a write belongs to, from Spark's local properties, in driver and task.

A streaming query sets ``sql.streaming.queryId`` and ``streaming.sql.batchId`` for the thread that
runs its batch, and Spark passes them to every task. They are missing in threads that a user's
function starts; the session then still shows that it belongs to a streaming query.
"""

from __future__ import annotations

import hashlib
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Invalid
from mainstem.options.engines import BATCH_ID, GUARD, IDENTIFIER, ORDINAL
from mainstem.spark.options import WriteOptions

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import DataFrame, SparkSession

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
_ROOT = "spark.sql.execution.root.id"
_EXECUTION = "spark.sql.execution.query.id"
# The module that runs functions of foreachBatch on a server of Spark Connect.
_CONNECT_BATCHES = "foreach_batch_worker"
# Every streaming query sets these in its own copy of the session (4.1 to 4.3). They are internal to Spark,
# so a batch job with other streaming options set is not mistaken for a stream.
_SESSION_MARKS = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.streaming.offsetLog.formatVersion",
)


@dataclass(frozen=True)
class BatchIds:
    """The batch that a write belongs to.

    ``run`` identifies this attempt to execute the batch by application and root execution, so it differs
    for a restarted query, a second driver and a second attempt. ``started_ms`` is when the write began, by
    the driver's clock; None if unknown (data source on Spark 4.1).
    """

    query: str
    batch_id: int
    run: str
    started_ms: int | None


@dataclass(frozen=True)
class Found:
    """``ids``: None if unknown. ``streaming``: whether the session belongs to a streaming query."""

    ids: BatchIds | None
    streaming: bool


def in_driver(df: DataFrame) -> Found:
    """Ids of the micro-batch that the calling thread of the driver executes."""
    session = df.sparkSession
    try:
        context = session.sparkContext
    except Exception:  # Spark Connect: this process is a client, or the server's for one foreachBatch
        return Found(None, any(_CONNECT_BATCHES in name for name in _running()))
    get = context.getLocalProperty
    if not get(QUERY):
        return Found(None, _session_streams(session))
    conf = context.getConf()  # a copy, made entry by entry
    host, port = conf.get("spark.driver.host", ""), conf.get("spark.driver.port", "")
    ids = _ids(get, context.applicationId, host, port)
    return Found(ids, ids is not None or _session_streams(session))


def _running() -> list[str]:
    """Names of the modules that this process has loaded, and the file that it runs."""
    return [*list(sys.modules), str(getattr(sys.modules.get("__main__"), "__file__", ""))]


def _session_streams(session: SparkSession) -> bool:
    try:
        conf = session._jsparkSession.sessionState().conf()
        return any(conf.contains(mark) for mark in _SESSION_MARKS)
    except Exception:
        return False


def in_task(context: TaskContext) -> Found:
    """Ids of the micro-batch that a task belongs to."""
    get = context.getLocalProperty
    app, host, port = (get(k) or "" for k in ("spark.app.id", "spark.driver.host", "spark.driver.port"))
    ids = _ids(get, app, host, port)
    return Found(ids, ids is not None or any(get(mark) is not None for mark in _SESSION_MARKS))


def _ids(get: Callable[[str], str | None], application: str, host: str, port: str) -> BatchIds | None:
    query, batch, root = get(QUERY), get(BATCH), get(_ROOT)
    if not query or batch is None or not root or not application:
        return None
    run = f"{application}/{host}:{port}/{root}"
    return BatchIds(query, int(batch), run, _time_of(get(_EXECUTION)))


def _time_of(text: str | None) -> int | None:
    """Milliseconds since 1970 in a version 7 UUID, as Spark assigns to every execution; else None."""
    try:
        value = uuid.UUID(text or "")
    except ValueError:
        return None
    return value.int >> 80 if value.version == 7 else None


@dataclass(frozen=True)
class GuardIds:
    """The ids that the streaming guard of a write needs, from Spark and from options."""

    identifier: str
    query: str
    batch_id: int
    run: str
    started_ms: int | None
    ordinal: int | None


def guard_ids(found: Found, options: WriteOptions, *, table: str) -> GuardIds | None:
    """The ids of a guarded write; None for a plain batch write, or with the guard switched off.

    Raises ``Invalid`` for a streaming write whose ids are neither known nor given.
    """
    if not options.guarded:
        return None
    ids = found.ids
    if ids is None and not found.streaming and options.batch_id is None:
        if options.ordinal is not None:
            raise Invalid(
                f"{ORDINAL} was given, but this is no write of a micro-batch; drop the option, or"
                f" give {BATCH_ID} and {IDENTIFIER} too",
                table=table,
            )
        return None
    identifier = options.identifier or (ids.query if ids else "")
    batch_id = options.batch_id if options.batch_id is not None else (ids.batch_id if ids else None)
    if ids is not None and options.batch_id not in (None, ids.batch_id):
        raise Invalid(
            f"{BATCH_ID}={options.batch_id}, but this thread executes batch {ids.batch_id}",
            table=table,
        )
    if ids is None:
        missing = [
            name
            for name, value in (
                (IDENTIFIER, identifier), (BATCH_ID, batch_id), (ORDINAL, options.ordinal),
            )
            if value in (None, "")
        ]  # fmt: skip
        if missing:
            raise Invalid(
                "this write belongs to a micro-batch of a streaming query, but its thread does"
                " not know which (a thread that the foreachBatch function started, or Spark"
                " Connect): a replay could not be told from a new batch. Give"
                f" {', '.join(missing)} (the function's batch id, and a number per write), write"
                " from the function's own thread, or set"
                f" {GUARD}=off for rows that may be written twice",
                table=table,
            )
        assert batch_id is not None
        # The run is unknown: an ordinal used twice in one run looks like a replay.
        return GuardIds(identifier, "", batch_id, "", None, options.ordinal)
    assert batch_id is not None
    return GuardIds(identifier, ids.query, batch_id, ids.run, ids.started_ms, options.ordinal)


def looks(operation: str, names: list[str]) -> str:
    """A short text of operation and columns, which a write and its replay have in common."""
    columns = ",".join(names)
    if len(columns) > 200:
        columns = columns[:180] + "#" + hashlib.sha256(columns.encode()).hexdigest()[:12]
    return f"{operation}({columns})"
