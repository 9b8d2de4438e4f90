"""Runs pieces of work as Spark tasks, one task each, and returns their results in order.

A piece must be safe to run several times: Spark retries tasks, runs speculative copies and abandons tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from mainstem.errors import MainstemError, Unavailable, Unsupported

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_LOOK_S = 0.5


def driver_context(spark: SparkSession, what: str) -> SparkContext:
    """The session's context. Raises ``Unsupported`` on Spark Connect, whose driver is on the server."""
    try:
        return spark.sparkContext
    except Exception as error:
        raise Unsupported(
            f"{what} plans and completes in the driver process, which Spark Connect keeps on the server; run"
            " it there, or the command of mainstem"
        ) from error


def in_tasks(
    context: SparkContext,
    work: Callable[[Any], Any],
    pieces: Sequence[Any],
    told: Callable[[int], None],
    otherwise: str,
) -> list[Any]:
    """Runs ``work(piece)`` for each piece in its own task; calls ``told`` with the number of finished tasks.

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
    with ThreadPoolExecutor(1) as waiting:
        job = waiting.submit(tasks.collect)
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
    trace = str(error).partition("\n\tat ")[0].strip()
    return trace.splitlines()[-1][:500] if trace else type(error).__name__
