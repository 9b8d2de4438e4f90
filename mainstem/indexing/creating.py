"""Creates an index for a user: first the indexes that it depends on, then the index itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, Unavailable, naming
from mainstem.indexing import index_lists
from mainstem.indexing.dead_builds import end_dead_builds
from mainstem.indexing.dropping import Dropped, drop
from mainstem.indexing.expected_contents import rows_by_partition
from mainstem.indexing.index_build import Built, create, deadline_ms
from mainstem.indexing.index_spec import TYPE, IndexSpec, Wish, make_spec
from mainstem.indexing.initial_rows import Run
from mainstem.indexing.required_indexes import await_whole, live_builders
from mainstem.indexing.status import READY, Index, indexes
from mainstem.indexing.unsafe_for_java import check_for_java
from mainstem.layout.properties import load_config
from mainstem.metadata.commits.setting_aside import to_rebuild, without_rebuild
from mainstem.metadata.derive.column_ranges import META_COLUMNS
from mainstem.metadata.derive.expression_functions import EXPRESSION
from mainstem.metadata.index_definitions import read_definitions
from mainstem.metadata.metadata_partitions import (
    COLUMN_STATS,
    FILES,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
    Kind,
    kind_of,
)
from mainstem.options import INDEX_KEYS, INDEX_TIMEOUT
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.services.progress import Progress, silent
from mainstem.telemetry import steps
from mainstem.timeline.restore_records import taking_back
from mainstem.writers.context import WriterContext


def rebuild(
    ctx: WriterContext, index: Index, progress: Progress | None = None, run: Run | None = None
) -> Built:
    """``Table.reindex``; ``run`` as of ``create_index``."""
    _check_again(ctx, index)
    drop(ctx, index.partition)
    return _again(ctx, index, progress, run)


def rebuild_all(
    ctx: WriterContext, progress: Progress | None = None, run: Run | None = None
) -> Iterator[Built]:
    """``Table.reindex_all``; ``run`` as of ``create_index``."""
    storage = ctx.seams.storage
    known = indexes(storage, load_config(storage), ctx.timeline())
    whole = [index for index in known if index.state == READY and index.partition != FILES]
    for index in whole:
        _check_again(ctx, index)
    there = [index.partition for index in whole]
    for index in whole:
        if _base(index.partition) in there:
            continue
        above = [other for other in whole if _base(other.partition) == index.partition]
        for other in above:
            drop(ctx, other.partition)
        yield rebuild(ctx, index, progress, run)
        for other in above:
            yield _again(ctx, other, progress, run)


def _base(partition: str) -> str | None:
    """The index that this one depends on, besides ``files``."""
    if partition.startswith(SECONDARY_PREFIX):
        return RECORD_INDEX
    return COLUMN_STATS if partition == PARTITION_STATS else None


def _check_again(ctx: WriterContext, index: Index) -> None:
    """Raise early what building such an index would raise at its start."""
    columns, name = _as_made(index)
    try:
        _spec(ctx, index.kind, columns, name, _options(index))
    except OSError as error:
        raise Unavailable(
            f"rebuilding the index {index.partition} failed: {error}; it is as before, try again",
            table=ctx.base,
        ) from error


def _again(
    ctx: WriterContext, index: Index, progress: Progress | None = None, run: Run | None = None
) -> Built:
    columns, name = _as_made(index)
    return _create(ctx, index.kind, columns, _options(index), progress, name, run)


def _options(index: Index) -> Mapping[str, str]:
    """Options to make an index like this one."""
    if index.kind != Kind.EXPRESSION_INDEX:
        return index.options
    return {EXPRESSION: index.function, **index.options, TYPE: index.index_type}


def _as_made(index: Index) -> tuple[list[str], str | None]:
    """Columns and name to make an index like this one."""
    columns = [name for name in index.columns if name not in META_COLUMNS]
    return columns, index.name if index.name != index.partition else None


def tend(ctx: WriterContext) -> Iterator[Built | Dropped]:
    """The part of a service round for indexes: end dead builds, and rebuild indexes that were set aside."""
    yield from end_dead_builds(ctx)
    yield from rebuild_set_aside(ctx)


def rebuild_set_aside(ctx: WriterContext, progress: Progress | None = None) -> Iterator[Built]:
    """Rebuild indexes that were set aside by a restore or rollback (``metadata.commits.setting_aside``).

    Each may fail alone: for instance, an index on a column that did not exist yet at the savepoint cannot be
    built. The first error is raised at the end.
    """
    storage, failed = ctx.seams.storage, []
    config = load_config(storage)
    if not to_rebuild(config) or taking_back(storage, ctx.timeline()) is not None:
        return  # an index built before that ends would be set aside again
    waiting = [name for name in to_rebuild(config) if name not in index_lists.ready(config)]
    known = {index.partition: index for index in indexes(storage, config, ctx.timeline())}
    for partition in sorted(waiting, key=lambda name: name != FILES):
        index = known.get(partition) or Index(partition, partition, str(kind_of(partition)))
        try:
            yield _again(ctx, index, progress)
        except OutcomeUnknown:
            raise
        except MainstemError as error:
            if isinstance(error, Invalid) and _is_cared_for(ctx, partition):
                continue
            failed.append(error)
            error.message = (
                f"the index {partition} could not be built anew after a restore or rollback: {error.message}."
                f" If it is not wanted any more, drop it: Table.drop_index({partition!r})"
            )
            if partition == FILES:
                break
    if len(waiting) < len(to_rebuild(config)):  # another engine built some
        ctx.publisher.guarded(
            lambda section: index_lists.change(
                ctx.seams, section, lambda now: without_rebuild(now, index_lists.ready(now))
            )
        )
    if failed:
        raise failed[0]


def _is_cared_for(ctx: WriterContext, partition: str) -> bool:
    """Whether an index is ready, or being built by a live process."""
    living = any(live_builders(ctx, partition).values())
    return living or partition in index_lists.ready(load_config(ctx.seams.storage))


def create_index(
    ctx: WriterContext,
    kind: str,
    columns: Sequence[str],
    options: Mapping[str, str],
    progress: Progress | None = None,
    name: str | None = None,
    run: Run | None = None,
) -> Built:
    """``Table.create_index``; ``run``: where rows are made, if not in this process."""
    for key in options:
        of_function = kind == Kind.EXPRESSION_INDEX and not key.startswith("hoodie.")
        if key not in INDEX_KEYS and not of_function:
            raise Invalid(
                f"the option {key!r} of an index of the kind {kind}: not among"
                f" {', '.join(sorted(INDEX_KEYS))}",
                table=ctx.base,
            )
    with naming(ctx.base, f"creating the index {kind} failed", "nothing was begun"):
        check_for_java(kind, {**load_config(ctx.seams.storage).raw, **ctx.given, **options})
    if INDEX_TIMEOUT in options:
        ctx = replace(ctx, given={**ctx.given, INDEX_TIMEOUT: options[INDEX_TIMEOUT]})
    with steps.step("index.build", ctx.base, kind=kind):
        return _create(ctx, kind, columns, options, progress, name, run)


def _create(
    ctx: WriterContext,
    kind: str,
    columns: Sequence[str],
    options: Mapping[str, str],
    progress: Progress | None,
    name: str | None,
    run: Run | None,
) -> Built:
    advice = "what was begun is cleared away when it is created or dropped again"
    with naming(ctx.base, f"creating the index {kind} failed", advice):
        spec = _spec(ctx, kind, columns, name, options)
        for _ in end_dead_builds(ctx, but=spec.partition):
            continue
        for needed in spec.needs:
            on = columns if needed == COLUMN_STATS else ()
            make = partial(_spec, ctx, columns=on, name=None, options=options)
            _provide(ctx, needed, make, progress or silent, run)
        await_whole(ctx, [part for part in spec.needs if part in (FILES, COLUMN_STATS)], deadline_ms(ctx))
        if COLUMN_STATS in spec.needs:
            spec = _spec(ctx, kind, columns, name, options)  # whose columns it has
        return create(ctx, spec, progress or silent, run)


def _provide(
    ctx: WriterContext, needed: str, spec: Callable[[str], IndexSpec], progress: Progress, run: Run | None
) -> None:
    """Make sure that a needed index is ready or being built by a live process; otherwise build it now."""
    if _is_cared_for(ctx, needed):
        return
    try:
        create(ctx, spec(needed), progress, run)
    except Invalid:
        if not _is_cared_for(ctx, needed):  # otherwise another process began at the same moment
            raise


def _spec(
    ctx: WriterContext, kind: str, columns: Sequence[str], name: str | None, options: Mapping[str, str]
) -> IndexSpec:
    storage = ctx.seams.storage
    config = load_config(storage).completed_by(ctx.given)
    state = TableState.load(storage, config)
    given = {**config.raw, **ctx.given, **options}
    wish = Wish(
        columns, schema_text(state), config, given, name, read_definitions(storage, config),
        lambda: rows_by_partition(state), options,
    )  # fmt: skip
    return make_spec(kind, wish)
