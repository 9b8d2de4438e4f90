"""Who executes a service's plan: a heartbeat on the plan's time, taken over when it has expired.

Nothing depends on it but double work: every service must stay right when two execute one plan at once,
for a claim can be lost without being noticed (the process was stopped for long).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.errors import Unavailable
from mainstem.publish.staging import prepared
from mainstem.writers.context import WriterContext


@contextmanager
def claimed(ctx: WriterContext, time: str, what: str) -> Iterator[bool]:
    """Whether the block may execute the plan of ``what``: nobody else alive does, which a heartbeat shows
    until the block ends. An ``OSError`` in it becomes ``Unavailable``: the plan stays pending.
    """
    if not claim(ctx, time):
        yield False
        return
    try:
        with ctx.synced():
            yield True
    except OSError as error:
        raise Unavailable(
            f"{what} {time} did not end: {error}; its plan stays, execute it again", table=ctx.base
        ) from error
    finally:
        ctx.heartbeats.stop(time)


def claim(ctx: WriterContext, time: str) -> bool:
    """Whether nobody alive executes the plan; our heartbeat says so from now on.

    The caller ends it with ``ctx.heartbeats.stop(time)``. Raises ``Unavailable`` for trouble with storage.
    """
    try:
        ctx.check_same_table()  # the plan may be one of a table that was made here since
        return ctx.heartbeats.claim(time, lambda: store_now_ms(ctx, time))
    except OSError as error:
        raise Unavailable(
            f"the plan {time} could not be claimed: {error}; it stays, execute it again", table=ctx.base
        ) from error


def store_now_ms(ctx: WriterContext, time: str) -> int:
    """The store's clock, by the time of a file just made (``time``: whose private file it is)."""
    with prepared(ctx.seams, time, b"") as probe:
        info = ctx.seams.storage.stat(probe)
    if info is None:
        raise Unavailable("the store removed a file that was just made", table=ctx.base)
    return info.mtime_ms
