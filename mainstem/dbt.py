"""Tables in dbt: a plugin of dbt-duckdb. Sources are read where they lie, models are written in one commit.

``profiles.yml``, then a source and a model (docs/engines.md has them whole):

    plugins: [{module: mainstem.dbt, alias: mainstem, config: {root: /lake}}]

    sources: [{name: lake, meta: {plugin: mainstem}, tables: [{name: trips}]}]

    {{ config(materialized="external", plugin="mainstem", unique_key="city", operation="upsert") }}

The table of a source or a model lies at its ``path``, else at ``root/<name>``. ``operation`` is one of
``Table.begin``. Without it a run replaces all rows, as dbt makes a table anew (``insert_overwrite_table``):
the older ones can still be read as of then. A missing table is made: ``unique_key`` is its record key;
``ordering``, ``partition_by``, ``buckets`` and ``properties`` are arguments of ``create_table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from dbt.adapters.duckdb.plugins import BasePlugin

from mainstem.engines.named import KIND, opened, opened_or_made, place
from mainstem.errors import Invalid
from mainstem.writers.outcome import check_operation
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE

__all__ = ["Plugin"]

_OF_SOURCES = ("as_of", "as_of_completion", "mode")


class Plugin(BasePlugin):
    """The plugin. ``config`` in the profile: ``root``, and ``properties`` for every table."""

    def initialize(self, plugin_config: Mapping[str, Any]) -> None:
        """Keep the profile's options."""
        self._root = plugin_config.get("root")
        self._properties = dict(plugin_config.get("properties") or {})

    def default_materialization(self) -> str:
        """Sources are views: DuckDB hands its columns and filters to the table."""
        return "view"

    def load(self, source_config: Any) -> ds.Dataset:
        """The dataset of a source. ``meta`` may hold ``path``, ``as_of``, ``as_of_completion``, ``mode``."""
        name = source_config.identifier
        path = place(self._root, name, source_config.get("path"), f"the source {name!r}")
        table = opened(path, self._properties)
        if table is None:
            raise Invalid(f"the source {name!r} has no table: there is none at {path}")
        when = {key: source_config.get(key) for key in _OF_SOURCES if source_config.get(key) is not None}
        return table.dataset(**when)

    def store(self, target_config: Any) -> None:
        """Write a model, which dbt-duckdb has put into a Parquet file, in one commit."""
        config, name = target_config.config, target_config.relation.identifier
        if target_config.location is None or target_config.location.format != "parquet":
            raise Invalid(f"the model {name!r} is not in a Parquet file: leave its format out")
        operation = check_operation(config.get("operation") or INSERT_OVERWRITE_TABLE)
        path = place(self._root, name, config.get("path"), f"the model {name!r}")
        rows = ds.dataset(target_config.location.path, format="parquet")
        kind = {**{key: config.get(key) for key in KIND}, "record_key": config.get("unique_key") or ()}
        properties = {**self._properties, **(config.get("properties") or {})}
        table = opened_or_made(path, rows.schema, kind, properties)
        getattr(table, operation)(pa.table({}) if _is_empty(rows) else rows)


def _is_empty(rows: ds.Dataset) -> bool:
    """Whether the model has no rows: dbt-duckdb writes one without any value then."""
    first = rows.head(2)
    return first.num_rows == 0 or (
        first.num_rows == 1 and all(first[name].null_count == 1 for name in first.column_names)
    )
