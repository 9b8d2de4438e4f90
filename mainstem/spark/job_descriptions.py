"""What Spark's UI calls our jobs: "mainstem upsert into /data/trips: write log files".

Only the description of the calling thread's jobs is set, and set back; their group, by which Spark cancels
them, stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext

_DESCRIPTION = "spark.job.description"


@contextmanager
def described(context: SparkContext, what: str) -> Iterator[None]:
    """Jobs of the block are called ``what``, followed by what they would be called: in a streaming query its
    name, run and batch."""
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, _called(what, before))
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)


def in_thread(context: SparkContext, what: str, before: str | None) -> None:
    """The same for a thread of its own; ``before``: ``description`` of the thread that made it."""
    context.setLocalProperty(_DESCRIPTION, _called(what, before))


def description(context: SparkContext) -> str | None:
    """What jobs of the calling thread are called."""
    return context.getLocalProperty(_DESCRIPTION)


def _called(what: str, before: str | None) -> str:
    return f"mainstem {what}<br/>{before}" if before else f"mainstem {what}"
