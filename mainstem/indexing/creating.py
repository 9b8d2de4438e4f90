"""Creating an index as users ask for it: what it rests on first, then the index itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mainstem.errors import MainstemError, OutcomeUnknown, Unavailable
from mainstem.indexing import lists
from mainstem.indexing.build import Built, create
from mainstem.indexing.drop import drop
from mainstem.indexing.spec import make_spec
from mainstem.indexing.status import Index
from mainstem.metadata.build.ranges import META_COLUMNS
from mainstem.metadata.partitions import FILES
from mainstem.readers.schema import schema_text
from mainstem.readers.state import TableState
from mainstem.services.progress import Progress, silent
from mainstem.table.properties import load_config
from mainstem.writers.context import WriterContext


def rebuild(ctx: WriterContext, index: Index, progress: Progress | None = None) -> Built:
    """``Table.reindex``."""
    columns = [name for name in index.columns if name not in META_COLUMNS]
    state = TableState.load(ctx.seams.storage, load_config(ctx.seams.storage).completed_by(ctx.given))
    properties = {**state.config.raw, **ctx.given}
    make_spec(index.partition, columns, schema_text(state), state.config, properties)  # may it be built?
    drop(ctx, index.partition)
    return create_index(ctx, index.partition, columns, {}, progress)


def create_index(
    ctx: WriterContext,
    kind: str,
    columns: Sequence[str],
    options: Mapping[str, str],
    progress: Progress | None = None,
) -> Built:
    """``Table.create_index``."""
    try:
        config = load_config(ctx.seams.storage).completed_by(ctx.given)
        state = TableState.load(ctx.seams.storage, config)
        properties = {**config.raw, **ctx.given, **options}
        spec = make_spec(kind, columns, schema_text(state), config, properties)
        if kind != FILES and FILES not in lists.ready(config):
            create(ctx, make_spec(FILES, (), schema_text(state), config, properties), progress or silent)
        return create(ctx, spec, progress or silent)
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
