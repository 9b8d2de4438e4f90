"""What a statement that changes rows knows of its table: looked up in this process, or on the server of a
Spark Connect session, whose client touches no file of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mainstem.api.job_table import exists, open_or_create
from mainstem.api.table import Table
from mainstem.errors import Invalid
from mainstem.layout.properties import TableConfig
from mainstem.merge.modes import IGNORE_DEFAULTS
from mainstem.merge.rules import MergeRules, column_defaults, merge_rules
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.spark.options import WriteOptions


@dataclass(frozen=True)
class Looked:
    """A table at a moment; picklable. ``schema``: its own columns; ``shown``: with Hudi's meta columns.
    ``moment``: the completion time as of which the statement reads, None before the first commit.
    ``is_global``: a key is in one partition only. ``defaults``: of columns that partial updates keep."""

    path: str
    config: TableConfig
    rules: MergeRules
    schema: pa.Schema
    shown: pa.Schema
    moment: str | None
    is_global: bool
    defaults: Mapping[str, Any]

    @classmethod
    def at(cls, table: Table, moment: str | None) -> Looked:
        """Of an open table."""
        rules = merge_rules(table.config.raw)
        defaults: Mapping[str, Any] = {}
        if rules.partial == IGNORE_DEFAULTS:
            state = TableState.load(table.opened.seams.storage, table.config)
            defaults = column_defaults(schema_text(state))
        look = table.writer_context().look_for_keys
        is_global = look is not None and look().index.is_global
        return cls(
            table.path, table.config, rules, table.schema, table.scan().schema, moment, is_global, defaults
        )


def opened(verb: str, options: WriteOptions) -> Table:
    """The table that a statement changes. Raises ``Invalid`` if there is none."""
    if not exists(options.location):
        raise Invalid(f"{verb}: there is no table", table=options.location.base)
    return open_or_create(options, pa.schema([]))


def newest_moment(table: Table) -> str | None:
    """The completion time as of which a statement reads; None before the first commit."""
    state = TableState.load(table.opened.seams.storage, table.config)
    return max((one.completion for one in state.timeline.completed if one.completion), default=None)


def look(verb: str, options: WriteOptions) -> Looked:
    """``Looked`` of the newest moment."""
    table = opened(verb, options)
    return Looked.at(table, newest_moment(table))
