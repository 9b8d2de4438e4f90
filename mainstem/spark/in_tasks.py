"""Pieces of work as Spark tasks: one each, with what they return in their order.

A piece must be harmless when it runs several times, for Spark repeats, speculates and forgets tasks.
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
    """The session's context; ``Unsupported`` for Spark Connect, whose driver is elsewhere."""
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
    """``work(piece)`` for each, in a task of its own; ``told`` is called with how many have ended.

    A ``MainstemError`` of a task is raised as it is. Anything else Spark tries again; should it give up:
    ``Unavailable``, which says ``otherwise``.
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
    """The last line of the worker's own trace, before the frames of the JVM."""
    trace = str(error).partition("\n\tat ")[0].strip()
    return trace.splitlines()[-1][:500] if trace else type(error).__name__
