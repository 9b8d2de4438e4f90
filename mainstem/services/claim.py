"""Claims a service's plan for execution: a heartbeat on the plan's time, taken over once it has expired.

A claim only avoids double work. Every service must stay correct when two processes execute one plan at once,
because a process can lose its claim without noticing (if it is suspended for long).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mainstem.errors import Unavailable
from mainstem.publish.staging import prepared
from mainstem.storage import paths
from mainstem.storage.swaps import has_swaps
from mainstem.writers.context import WriterContext
from mainstem.writers.plans_that_came_back import is_archived_plan

# Each process that ends a plan sweeps its private files once.
_PROBES_MAX = 5


@contextmanager
def claimed(ctx: WriterContext, time: str, what: str) -> Iterator[bool]:
    """Yield whether the block may execute the plan, because no other live process does.

    Until the block ends, a heartbeat shows that this process executes it. An ``OSError`` in the block becomes
    ``Unavailable``; the plan stays pending. ``what`` names the plan in messages.
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
    """Claim the plan; False if another live process executes it.

    On success our heartbeat runs from now on; the caller ends it with ``ctx.heartbeats.stop(time)``. Raises
    ``Unavailable`` for trouble with storage.
    """
    try:
        ctx.check_same_table()  # the plan may belong to a table created here since
        if is_archived_plan(ctx, time):
            return False
        return ctx.heartbeats.claim(time, lambda: store_now_ms(ctx, time))
    except OSError as error:
        raise Unavailable(
            f"the plan {time} could not be claimed: {error}; it stays, execute it again", table=ctx.base
        ) from error


def store_now_ms(ctx: WriterContext, time: str) -> int:
    """The store's time, taken from a private file just made for the plan ``time``.

    On an object store, whose private files are in memory, from an object that everybody puts for this.
    """
    storage = ctx.seams.storage
    if has_swaps(storage):
        storage.put(paths.CLOCK, b"", durable=False)
        info = storage.stat(paths.CLOCK)
    else:
        info = None
        for _ in range(_PROBES_MAX):
            with prepared(ctx.seams, time, b"") as probe:
                info = storage.stat(probe)
            if info is not None:
                break  # else whoever ended the plan swept its private files just then, with this one
    if info is None:
        raise Unavailable("the storage lost a file that was just made; try again", table=ctx.base)
    return info.mtime_ms
