"""Runs pieces of work as Spark tasks, one task each, and returns their results in order.

A piece must be safe to run several times: Spark retries tasks, runs speculative copies and abandons tasks.

A session of Spark Connect has neither driver nor JVM in its process, and tables may be out of its reach. What
the driver does elsewhere, one task on the server does there (``on_server``).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mainstem.errors import MainstemError, Unavailable, Unsupported
from mainstem.spark.job_descriptions import description, in_thread

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.storage.location import Location

    Properties = Mapping[str, object] | None

_LOOK_S = 0.5
#: the column of answers of ``answered``
ANSWER = "answer binary"


def is_connect(spark: SparkSession) -> bool:
    """Whether this is a session of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def on_server(spark: SparkSession, work: Callable[[], Any], lost: type[MainstemError] = Unavailable) -> Any:
    """Runs ``work`` as one task on the server of a Spark Connect session and returns its result.

    Function and result are pickled. A ``MainstemError`` is raised unchanged; ``Unsupported`` where the
    server's Python lacks this package, ``lost`` where Spark gave up on the task.
    """
    task = spark.range(0, 1, 1, 1).mapInArrow(partial(_worked, work), ANSWER)
    return answers(task, lost)[0]


def here_or_there(spark: SparkSession, work: Callable[[], Any]) -> Any:
    """The result of ``work``: run in this process by a classic session, ``on_server`` by Spark Connect."""
    return on_server(spark, work) if is_connect(spark) else work()


def on_table(
    spark: SparkSession, location: Location, properties: Properties, method: str, *args: Any, **named: Any
) -> Any:
    """``on_server`` for a method of the table."""
    return on_server(spark, partial(_called, location, dict(properties or {}), method, args, named))


def _called(
    location: Location, properties: Properties, method: str, args: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    from mainstem.api.table import open_table

    return getattr(open_table(location, properties), method)(*args, **named)


def _worked(work: Callable[[], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        pass
    yield answered(work)


def answered(work: Callable[[], Any]) -> pa.RecordBatch:
    """A row of a task for ``answers``: the result of ``work``, or its ``MainstemError``."""
    try:
        found = work()
    except MainstemError as error:
        found = error
    return pa.record_batch({"answer": pa.array([pickle.dumps(found)], pa.binary())})


def answers(tasks: DataFrame, lost: type[MainstemError] | None = Unavailable) -> list[Any]:
    """The results of tasks on a server of Spark Connect that return ``answered``; errors as ``on_server``, or
    Spark's own without ``lost``."""
    try:
        found = [pickle.loads(bytes(row[0])) for row in tasks.collect()]
    except Exception as error:
        if lost is None and not lacks_us(error):
            raise
        raise told(error, lost or Unavailable) from error
    for one in found:
        if isinstance(one, MainstemError):
            raise one
    return found


def lacks_us(error: Exception) -> bool:
    """Whether a server has told that its Python lacks this package."""
    return "No module named 'mainstem" in str(error) or "data source: mainstem" in str(error)


def told(error: Exception, lost: type[MainstemError] = Unavailable) -> MainstemError:
    """An error of a server's task in one sentence."""
    if lacks_us(error):
        return Unsupported(
            "the Python of the Spark Connect server has no mainstem: install the version of this client where"
            " the server and its workers run (spark.pyspark.python, PYSPARK_PYTHON)"
        )
    way = "try again" if lost is Unavailable else "look at the timeline before it is done again"
    return lost(f"a task on the Spark Connect server failed ({_cause(error)}); {way}")


def driver_context(spark: SparkSession, what: str) -> SparkContext:
    """The session's context. Raises ``Unsupported`` on Spark Connect, whose driver is on the server."""
    try:
        return spark.sparkContext
    except Exception as error:
        raise Unsupported(
            f"{what} needs Spark's driver in this process, which Spark Connect keeps on the server: use a"
            " classic session there, or the command of mainstem"
        ) from error


def in_tasks(
    context: SparkContext,
    work: Callable[[Any], Any],
    pieces: Sequence[Any],
    told: Callable[[int], None],
    otherwise: str,
    called: str,
) -> list[Any]:
    """Runs ``work(piece)`` for each piece in its own task; calls ``told`` with the number of finished tasks.
    ``called``: what Spark's UI calls the job.

    A task's ``MainstemError`` is raised unchanged. Spark retries after any other error; if it gives up,
    ``Unavailable`` is raised, whose message ends with ``otherwise``.
    """
    if not pieces:
        return []
    done = context.accumulator(0)

    def run(piece: bytes) -> bytes:
        try:
            result: Any = work(pickle.loads(piece))
        except MainstemError as error:
            result = error
        done.add(1)
        return pickle.dumps(result)

    tasks = context.parallelize([pickle.dumps(piece) for piece in pieces], len(pieces)).map(run)
    before = description(context)

    def collect() -> list[bytes]:
        in_thread(context, called, before)
        return tasks.collect()

    with ThreadPoolExecutor(1) as waiting:
        job = waiting.submit(collect)
        while not wait([job], _LOOK_S).done:
            told(min(done.value, len(pieces)))
        try:
            results = [pickle.loads(result) for result in job.result()]
        except Exception as error:
            raise Unavailable(f"Spark's tasks failed ({_cause(error)}); {otherwise}") from error
    for result in results:
        if isinstance(result, MainstemError):
            raise result
    told(len(pieces))
    return results


def _cause(error: Exception) -> str:
    """The last line of the Python worker's traceback, before the JVM's frames."""
    trace = str(error).partition("\n\tat ")[0].partition("\n\nJVM stacktrace")[0]
    lines = [line for line in trace.strip().splitlines() if not line.startswith((" SQLSTATE", "SQLSTATE"))]
    return lines[-1][:500] if lines else type(error).__name__
