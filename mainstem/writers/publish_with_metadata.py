"""Publishes an action, together with its part of the metadata table if the table has one.

The table itself says which metadata partitions are maintained; no writer's options do (apache/hudi#18180).
They are read each time: outside the lock, to make their rows, and under it, to check that they are still the
same (``metadata.commits.delta_commit``, steps 1 and 2). So an index that is added while a writer is about to
commit gets the writer's rows, and one that was dropped gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeGuard, TypeVar

from mainstem.errors import CorruptTable, MainstemError, RolledBack, Unavailable
from mainstem.metadata.commits.action import FileChanges
from mainstem.metadata.commits.delta_commit import MetadataCommit
from mainstem.metadata.commits.partition_rows import Maintained
from mainstem.metadata.metadata_table import own_config
from mainstem.publish.publisher import Published, Section
from mainstem.publish.showing import Showing
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Upload
from mainstem.telemetry import steps
from mainstem.timeline.instant import DELTACOMMIT
from mainstem.writers.context import WriterContext

T = TypeVar("T")
_ROUNDS_MAX = 10


class _Moved:
    """A decision: the list of indexes changed since the rows were made."""


def _stands(published: Published[T | _Moved]) -> TypeGuard[Published[T]]:
    return not isinstance(published.decision, _Moved)


def publish_with_metadata(
    ctx: WriterContext,
    instant: str,
    changes: FileChanges,
    target: Callable[[str], str],
    *,
    prepared: str,
    decide: Callable[[Section], T | None],
    settle: Callable[[Sequence[Upload]], None] | None = None,
    carries: bool = False,
    showing: Showing | None = None,
    shares_sync: bool = False,
) -> Published[T]:
    """``Publisher.publish`` for an action's completed file; ``instant`` is its requested time.

    ``settle`` makes durable, all at once, what the action has written, ``prepared``, and the private files
    that it is given. None: they are durable already. ``carries``, ``showing``, ``shares_sync``: see
    ``Publisher.publish``.

    Raises ``Unsupported`` if the table got an index meanwhile that mainstem does not maintain,
    ``CorruptTable`` if the table names a metadata table that does not exist, ``Unavailable`` if its indexes
    keep changing; nothing is published then.
    """
    storage = ctx.seams.storage
    part = _prepare(ctx, instant, changes, settle, first=True)
    for _ in range(_ROUNDS_MAX):
        made_for = part.maintained if part is not None else Maintained()

        def may(section: Section, made_for: Maintained = made_for) -> T | _Moved | None:
            decision = decide(section)
            if decision is not None:
                return decision
            now = Maintained.now(storage, ctx.properties(section), changes, ctx.known_groups, locked=True)
            return None if now == made_for else _Moved()

        try:
            published: Published[T | _Moved] = ctx.publisher.publish(
                target,
                prepared=prepared,
                decide=may,
                ahead=None if part is None else part.ahead,
                beside=ctx.read_properties,
                carries=carries and part is None,
                showing=showing,
                shares_sync=shares_sync,
            )
        except RolledBack:
            if part is not None:
                part.forget()
            raise
        finally:
            if part is not None:
                part.release()
        if _stands(published):
            if part is not None and published.time is not None:
                part.remember(ctx.recent_rows)
                part.leave_dropped()
            return published
        begun, part = part, _prepare(ctx, instant, changes)
        if begun is not None and part is None:
            _take_back(ctx, instant, begun)
    raise Unavailable(
        f"the table's indexes changed {_ROUNDS_MAX} times while {instant} was being published; nothing was"
        " published, do it again",
        table=ctx.base,
        instant=instant,
    )


def _take_back(ctx: WriterContext, instant: str, begun: MetadataCommit) -> None:
    """Remove the instant from the metadata table if a superseded attempt began it there and the table has no
    indexes any more: no process would ever complete it. If it is completed there it stays, since the instant
    itself is about to complete."""
    if ctx.publisher.metadata_timeline().completion_of(instant, DELTACOMMIT) is None:
        begun.forget()


def _prepare(
    ctx: WriterContext,
    instant: str,
    changes: FileChanges,
    settle: Callable[[Sequence[Upload]], None] | None = None,
    rounds: int = _ROUNDS_MAX,
    *,
    first: bool = False,
) -> MetadataCommit | None:
    storage = ctx.seams.storage
    # Read before the lock is taken, and checked again under it.
    config = ctx.newest_properties if first else ctx.properties()
    config.check_metadata(ctx.base)
    maintained = Maintained.now(storage, config, changes, ctx.known_groups)
    if not maintained:
        if settle is not None:
            settle([])
        return None

    def durable(sinks: Sequence[Upload]) -> None:
        storage.settle(sinks, [], durable=True)

    try:  # raises unless the metadata table exists and is one of Hudi 1.x
        own_config(FolderStorage(storage, paths.METADATA))
        with steps.timed("metadata.prepare", ctx.base):
            return MetadataCommit.prepare(
                storage, ctx.seams.random, instant, config, maintained, changes, settle or durable
        )
    except CorruptTable as error:
        # An index may have been dropped while its rows were made.
        if rounds and Maintained.now(storage, ctx.properties(), changes, ctx.known_groups) != maintained:
            return _prepare(ctx, instant, changes, settle, rounds - 1)
        error.table = error.table or ctx.base
        raise
    except MainstemError as error:
        error.table = error.table or ctx.base
        raise
