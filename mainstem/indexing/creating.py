"""Creating an index as users ask for it: what it rests on first, then the index itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mainstem.errors import Invalid, MainstemError, OutcomeUnknown, Unavailable
from mainstem.indexing import lists
from mainstem.indexing.build import Built, create, deadline_ms
from mainstem.indexing.contents import rows_by_partition
from mainstem.indexing.drop import drop
from mainstem.indexing.first_rows import Run
from mainstem.indexing.needs import await_whole, live_builders
from mainstem.indexing.spec import IndexSpec, Wish, make_spec
from mainstem.indexing.status import Index
from mainstem.metadata.build.ranges import META_COLUMNS
from mainstem.metadata.definitions import read_definitions
from mainstem.metadata.partitions import FILES
from mainstem.readers.schema import schema_text
from mainstem.readers.state import TableState
from mainstem.services.progress import Progress, silent
from mainstem.table.properties import load_config
from mainstem.writers.context import WriterContext


def rebuild(
    ctx: WriterContext, index: Index, progress: Progress | None = None, run: Run | None = None
) -> Built:
    """``Table.reindex``; ``run`` as of ``create_index``."""
    columns = [name for name in index.columns if name not in META_COLUMNS]
    name = index.name if index.name != index.partition else None
    _spec(ctx, index.kind, columns, name, index.options)  # may it be built?
    drop(ctx, index.partition)
    return create_index(ctx, index.kind, columns, index.options, progress, name, run)


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
    try:
        spec = _spec(ctx, kind, columns, name, options)
        for needed in spec.needs:
            _provide(ctx, needed, lambda part: _spec(ctx, part, (), None, options), progress or silent, run)
        if FILES in spec.needs:
            await_whole(ctx, (FILES,), deadline_ms(ctx))
        return create(ctx, spec, progress or silent, run)
    except OutcomeUnknown:
        raise
    except OSError as error:
        raise Unavailable(
            f"creating the index {kind} failed: {error}; what was begun is cleared away when it is created or"
            " dropped again",
            table=ctx.base,
        ) from error
    except MainstemError as error:
        error.table = error.table or ctx.base
        raise


def _provide(
    ctx: WriterContext, needed: str, spec: Callable[[str], IndexSpec], progress: Progress, run: Run | None
) -> None:
    """What another index rests on: there, being built by a process that lives, or built now."""

    def cared_for() -> bool:
        living = any(live_builders(ctx, needed).values())
        return living or needed in lists.ready(load_config(ctx.seams.storage))

    if cared_for():
        return
    try:
        create(ctx, spec(needed), progress, run)
    except Invalid:
        if not cared_for():  # else somebody began at the same moment
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
        lambda: rows_by_partition(state),
    )  # fmt: skip
    return make_spec(kind, wish)
