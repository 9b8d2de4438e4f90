"""Makes the ``WriteSpec`` of a write from the table's properties, its newest schema and the process's
options."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.merge.modes import FILL_UNAVAILABLE
from mainstem.options import families
from mainstem.options.tables import PARTIAL_UPDATES, STORAGE_LAYOUT, UNAVAILABLE
from mainstem.options.writing import LAYOUT_OPTIONS, PARTIAL_BLOCKS
from mainstem.storage import paths
from mainstem.timeline.instant import DELTACOMMIT

if TYPE_CHECKING:
    from mainstem.api.opened_table import OpenedTable
    from mainstem.merge.rules import MergeRules
    from mainstem.metadata.fixed_column_types import HeldColumns
    from mainstem.timeline.active import ActiveTimeline
    from mainstem.writers.context import WriterContext
    from mainstem.writers.write_spec import WriteSpec


def write_spec(opened: OpenedTable, ctx: WriterContext, operation: str) -> WriteSpec:
    """The spec for a write to the table as it is now; ``instant`` is empty until the transaction begins.

    Reads the timeline, ``hoodie.properties`` and the newest schema. Raises ``Invalid`` if a key, partition or
    ordering field is no column, or if the properties have changed since the table was opened. Raises
    ``Unsupported`` for ``update_columns`` if the table's merge rules do not allow it.
    """
    from mainstem.layout.foreign_tables import check_key_encoding
    from mainstem.layout.key_generator import KeyGenerator
    from mainstem.layout.schema_fit import arrow_user_schema, log_schema
    from mainstem.merge.rules import merge_rules
    from mainstem.readers.planning.query_schema import schema_text
    from mainstem.readers.planning.table_state import TableState
    from mainstem.writers.transaction_schema import fills_missing
    from mainstem.writers.write_spec import (
        PARTIAL_BLOCKS_WARNING,
        UPDATE_COLUMNS,
        WriteSpec,
        complete_rules,
        native_logs,
    )

    config, options = ctx.config, ctx.options
    rules = merge_rules(config.raw)
    partial_blocks = operation == UPDATE_COLUMNS and options.partial_blocks
    if partial_blocks:
        _check_partial_blocks(opened)
        warnings.warn(PARTIAL_BLOCKS_WARNING, stacklevel=4)
    elif operation == UPDATE_COLUMNS:
        _check_update_columns(opened, rules)
    # Under the lock, the commit checks for another writer's newer schema (``writers.transaction_schema``).
    timeline = ctx.publisher.seen()
    user_schema = ctx.own_schema_in(timeline)
    if user_schema is None:
        user_schema = _schema_as_before(ctx, operation, timeline)
    if user_schema is None:
        user_schema = schema_text(TableState.of(ctx.seams.storage, opened.config, timeline))
    if ctx.keys_agreed and (planned := _as_before(ctx, operation, user_schema)) is not None:
        return replace(planned, planned_on=timeline.newest_completed)
    arrow = arrow_user_schema(user_schema)
    for role, names in (
        ("record key", config.record_key),
        ("partition", config.partition_fields),
        ("ordering", config.ordering),
    ):
        for name in names:
            if arrow.get_field_index(name) < 0:
                raise Invalid(
                    f"{role} field {name!r} is no column of the table, which has"
                    f" {', '.join(arrow.names)}",
                    table=opened.path,
                )
    keys = KeyGenerator.for_writing(config)
    if not ctx.keys_agreed:
        check_key_encoding(ctx.seams.storage, config)
        ctx.keys_agreed = True
    keys.check_schema(arrow)
    held = _looked_up(ctx)
    blocks_schema = log_schema(user_schema, config.name)
    spec = ctx.planned[operation] = WriteSpec(
        location=opened.seams.storage.location,
        instant="",
        operation=operation,
        table_name=config.name,
        keys=keys,
        fill_missing=fills_missing({**config.raw, **opened.given}),
        hash_fields=config.hash_fields,
        buckets=ctx.buckets,
        rings=config.history if config.uses_rings else None,
        bucket_rules=config.bucket_rules if ctx.buckets else None,
        rules=complete_rules(rules, user_schema, blocks_schema),
        ordering=config.ordering,
        user_schema=user_schema,
        log_schema=blocks_schema,
        fsync=options.fsync,
        log_bytes_max=options.log_bytes_max,
        block_format=options.block_format,
        partial_blocks=partial_blocks,
        layout={key: opened.given[key] for key in LAYOUT_OPTIONS if key in opened.given},
        never_widened=held.kept,
        planned_on=timeline.newest_completed,
        whole_numbers=held.whole,
        **native_logs(ctx.config),
    )
    return spec


def _schema_as_before(ctx: WriterContext, operation: str, timeline: ActiveTimeline) -> str | None:
    """The schema of this operation's latest write, if the newest completed instant is a write with the same.

    That is told by the bytes of its file: among many writers nobody decodes the commits of all others.
    """
    before, name = ctx.planned.get(operation), timeline.newest_completed
    if before is None or not name.endswith(f".{DELTACOMMIT}"):
        return None
    try:
        data = ctx.seams.storage.read(paths.timeline_file(name), max_bytes=TIMELINE_FILE_BYTES_MAX)
    except (FileNotFoundError, CorruptTable):  # archived since, or damaged, which is told where it is decoded
        return None
    other = any(word in data for word in (b"LOG_COMPACT", b"latest_schema"))
    return before.user_schema if before.user_schema.encode() in data and not other else None


def _as_before(ctx: WriterContext, operation: str, user_schema: str) -> WriteSpec | None:
    """The spec of this operation's latest write, if nothing that it was made from has changed."""
    before = ctx.planned.get(operation)
    if before is None or before.user_schema != user_schema:
        return None
    held = _looked_up(ctx)
    if before.buckets != ctx.buckets or before.native_logs != ctx.config.native_logs:
        return None
    return before if (before.never_widened, before.whole_numbers) == (held.kept, held.whole) else None


def _looked_up(ctx: WriterContext) -> HeldColumns:
    """Check that the properties are those that the table was opened with, and look what its indexes hold."""
    from mainstem.metadata.fixed_column_types import held_columns

    if not ctx.publisher.remembers or ctx.last_read is None:
        ctx.reread_config()
    return held_columns(ctx.seams.storage, ctx.newest_properties)


def _check_partial_blocks(opened: OpenedTable) -> None:
    if opened.config.sorted_files:
        raise Unsupported(
            f"{PARTIAL_BLOCKS}=true in a table with {STORAGE_LAYOUT}=LSM_TREE: Hudi's readers and compactions"
            " of such tables take rows of some columns for whole rows, and the other columns would be lost;"
            f" a table with {PARTIAL_UPDATES}=IGNORE_DEFAULTS needs no such blocks: drop the option there",
            table=opened.path,
        )


def _check_update_columns(opened: OpenedTable, rules: MergeRules) -> None:
    if rules.partial is None:
        raise Unsupported(
            f"update_columns needs a table with {PARTIAL_UPDATES}=IGNORE_DEFAULTS (or"
            " FILL_UNAVAILABLE); this one has none: every upsert replaces the row",
            table=opened.path,
        )
    if rules.partial == FILL_UNAVAILABLE and rules.unavailable is None:
        raise Unsupported(
            "update_columns under FILL_UNAVAILABLE needs the marker that stands for 'keep the older"
            " value': the table has no"
            f" {families.MERGE_PROPERTY}{UNAVAILABLE}",
            table=opened.path,
        )
