"""Tables in Dagster: an IO manager. What an asset returns is a table, written in one commit.

    @asset(metadata={"record_key": "id", "ordering": "ts"})
    def trips() -> pyarrow.Table: ...

    @asset
    def fares(trips: pandas.DataFrame) -> pandas.DataFrame: ...

    Definitions([trips, fares], resources={"io_manager": MainstemIOManager(root="/lake")})

An asset's table lies at its ``path``, else at ``root/<key>``. What is made again takes the place of what was
there: all rows, or those of its partition; older rows can still be read as of then. Metadata of an asset:
``operation`` (one of ``Table.begin``: ``upsert`` adds to the rows instead), ``path``, and for a table that is
made ``record_key``, ``ordering``, ``partition_by``, ``buckets``. A partitioned asset needs ``partition_by``
with one column, whose values are the keys of its partitions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from dagster import ConfigurableIOManager, InputContext, OutputContext

from mainstem.api.table import Table
from mainstem.engines.named import KIND, opened, opened_or_made, place
from mainstem.errors import Invalid
from mainstem.readers.queries.scan_plan import ScanPlan
from mainstem.writers.outcome import EMPTY, Outcome, check_operation
from mainstem.writers.rows_in import RowStream, rows_in
from mainstem.writers.write_spec import INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE

__all__ = ["MainstemIOManager"]

_PARTITION_PATH = "_hoodie_partition_path"


class MainstemIOManager(ConfigurableIOManager):
    """Assets as tables below ``root``; ``properties`` are options of every table (stores, locks)."""

    root: str
    properties: dict[str, str] = {}  # noqa: RUF012 - a field of pydantic

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write what an asset returned: rows of any kind (docs/rows.md). None writes nothing: the asset has
        written its table by itself."""
        if obj is None:
            return
        said = context.definition_metadata or {}
        given = rows_in(obj)
        rows = pa.concat_tables(given.tables()) if isinstance(given, RowStream) else given
        path = self._place(context, said)
        if not rows.column_names:
            raise Invalid(f"the asset at {path} returned rows without columns")
        key = context.partition_key if context.has_partition_key else None
        operation = INSERT_OVERWRITE_TABLE if key is None else INSERT_OVERWRITE
        operation = check_operation(said.get("operation") or operation)
        kind = {name: _plain(said.get(name)) for name in KIND}
        table = opened_or_made(path, rows.schema, kind, self.properties)
        if key is not None:
            _check_partition(table, rows, key)
        outcome = _written(table, operation, rows, key)
        context.add_output_metadata({
            "path": table.path, "status": outcome.status, "instant": outcome.instant or "",
            "rows": rows.num_rows,
        })  # fmt: skip

    def load_input(self, context: InputContext) -> Any:
        """The table of an asset in the type that the consumer's argument has: a pandas or Polars frame, a
        ``pyarrow.dataset.Dataset``, a ``mainstem.Table`` or ``ScanPlan``; else a ``pyarrow.Table``. A
        partitioned input has the rows of its partitions."""
        upstream = context.upstream_output
        said = (upstream.definition_metadata if upstream is not None else None) or {}
        path = self._place(context, said)
        table = opened(path, self.properties)
        if table is None:
            raise Invalid(f"the asset has no table yet: there is none at {path}; materialize it first")
        keys = context.asset_partition_keys if context.has_asset_partitions else None
        wanted = context.dagster_type.typing_type
        return _as(wanted, table, None if keys is None else _one_of(table, keys))

    def _place(self, context: InputContext | OutputContext, said: Mapping[str, Any]) -> str:
        return place(self.root, "/".join(context.asset_key.path), _plain(said.get("path")), "an asset")


def _plain(value: Any) -> Any:
    """A value of metadata, of which some come wrapped."""
    return getattr(value, "value", value)


def _written(table: Table, operation: str, rows: pa.Table, key: str | None) -> Outcome:
    if rows.num_rows == 0 and key is not None and operation == INSERT_OVERWRITE:
        there = table.scan(columns=[_PARTITION_PATH], filter=_one_of(table, [key])).to_arrow()
        folders = sorted(set(there[_PARTITION_PATH].to_pylist()))
        return table.delete_partition(*folders) if folders else Outcome(EMPTY)
    made: Outcome = getattr(table, operation)(rows)
    return made


def _partition_column(table: Table) -> str:
    fields = table.config.partition_fields
    if len(fields) != 1:
        raise Invalid(
            "a partitioned asset needs a table with one partition column, found"
            f" {', '.join(fields) or 'none'}: give the metadata {{'partition_by': ...}} when it is made",
            table=table.path,
        )
    return str(fields[0])


def _check_partition(table: Table, rows: pa.Table, key: str) -> None:
    """Raises ``Invalid`` for rows of other partitions, whose rows they would replace."""
    name = _partition_column(table)
    if name not in rows.column_names:
        raise Invalid(f"the rows lack the partition column {name!r}", table=table.path)
    strange = [value for value in pc.unique(rows[name]).to_pylist() if str(value) != key]
    if strange:
        raise Invalid(
            f"the asset's partition is {key!r}, but it returned rows with {name} = {strange[0]!r}: keep only"
            " rows of the partition, or write with the operation upsert to an asset without partitions",
            table=table.path,
        )


def _one_of(table: Table, keys: Any) -> pc.Expression:
    name = _partition_column(table)
    kind = table.schema.field(name).type
    return pc.field(name).isin(pa.array(list(keys), pa.string()).cast(kind))


def _as(wanted: Any, table: Table, filter: pc.Expression | None) -> Any:
    if wanted is Table:
        return table
    user = table.schema.names
    plan = table.scan(columns=user, filter=filter)
    if wanted is ScanPlan:
        return plan
    if wanted is ds.Dataset:
        return plan.to_dataset()
    module, name = getattr(wanted, "__module__", "").partition(".")[0], getattr(wanted, "__name__", "")
    if (module, name) == ("pandas", "DataFrame"):
        return plan.to_pandas()
    if module == "polars":
        frame = sys.modules["polars"].DataFrame(plan)
        return frame.lazy() if name == "LazyFrame" else frame
    return plan.to_arrow()
