"""Going on with a table that Java wrote: writes and services of ours, and the rows that must come of it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

import mainstem
from mainstem.layout.properties import MAINTAINED
from mainstem.metadata.metadata_partitions import kind_of
from tests.golden_tables.tables import NAMES, expectations, unpack

PARTITION, KEY = "_hoodie_partition_path", "_hoodie_record_key"
META = ("_hoodie_commit_time", "_hoodie_commit_seqno", KEY, PARTITION, "_hoodie_file_name")
TABLES = [name for name in NAMES if not name.endswith(".logs")]
# A writer of ours chooses these by itself, or refuses them before it looks at the table (test_options.py).
NOT_TAKEN = (
    "hoodie.write.concurrency.mode", "hoodie.clean.failed.writes.policy", "hoodie.metadata.enable",
    "hoodie.schema.on.read.enable", "hoodie.populate.meta.fields",
    "hoodie.merge.allow.duplicate.on.inserts", "hoodie.spark.sql.", "hoodie.write.auto.upgrade",
    "hoodie.datasource.write.payload.class",
)  # fmt: skip

#: what of a table's name -> what the refusal to write it must say; None for one that is written all the same
REFUSED: dict[str, str | None] = {
    "all_types_cow_v8": "COPY_ON_WRITE",
    "cdc_cow": "COPY_ON_WRITE",
    "cdc_late_rows": "hoodie.table.cdc.enabled=true in a table of version 9",
    "cdc_mor": "hoodie.table.cdc.enabled=true in a table of version 9",
    "clustering_cow": "COPY_ON_WRITE",
    "clustering_mor.scheduled": "the pending clustering 20261120092942036 replaces them",
    "corrupt_bad_size": "a log block with a size of",
    "corrupt_first_cut10": "cut off",
    "corrupt_garbage_tail": "no log block begins here",
    "corrupt_half_block": "cut off",
    "corrupt_middle_corrupt_then_good": "whose trailer is",
    "corrupt_tail_cut10": "cut off",
    "cow_basic": "COPY_ON_WRITE",
    "cow_bucket": "COPY_ON_WRITE",
    "keys_slash_date": "is no date such as",
    "keys_virtual_keys": "hoodie.populate.meta.fields='false'",
    "killed_cow": "COPY_ON_WRITE",
    "mdt_all": "an index on 'from_unixtime'",
    "mdt_all.secondary": None,
    "mdt_all_cow": "COPY_ON_WRITE",
    "merge_into_partial": "hive_style_partitioning",
    "schema_evolution_widen": "no simple bucket index",
    "schema_on_read": "hive_style_partitioning",
    "schema_on_read_types": "no simple bucket index",
    "vectors_cow": "COPY_ON_WRITE",
}

def refusal(name: str) -> str | None:
    """Words of the error that refuses to write this table; None if mainstem goes on with it."""
    config = expectations(name)["table_config"]
    if name.startswith("v10_cdc_mor"):
        return None
    name = name.removeprefix("v10_")
    lists = (config.get(f"hoodie.table.metadata.partitions{s}", "").split(",") for s in ("", ".inflight"))
    if {kind_of(partition) for names in lists for partition in names if partition} - MAINTAINED:
        return "has a metadata table"
    if name in REFUSED:
        return REFUSED[name]
    return REFUSED.get(name.split(".")[0]) or REFUSED.get("_".join(name.split("_")[:2]))


def open_as_its_writers(name: str, folder: Path) -> mainstem.Table:
    """The table unpacked, opened with the options of its Java writers."""
    unpacked = unpack(name, folder)
    found = [path.parent.parent for path in unpacked.rglob("hoodie.properties")]
    base = min(found, key=lambda path: len(path.parts))
    given = expectations(name).get("writer_options", {})
    options = {k: v for k, v in given.items() if k.startswith("hoodie.") and not k.startswith(NOT_TAKEN)}
    options |= {
        "hoodie.mainstem.timeline.zone": "UTC",
        "hoodie.time.generator.max_expected_clock_skew_ms": "0",
        "hoodie.mainstem.fsync": "false",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "these options (have no effect in mainstem|ask for indexes)")
        return mainstem.open_table(base, properties=options)


class Continued:
    """A table and the rows that it must have: ``rows`` by (partition path, record key)."""

    def __init__(self, table: mainstem.Table) -> None:
        self.table = table
        self.before = table.scan().to_arrow()
        self.schema = pa.schema([f for f in self.before.schema if f.name not in META])
        self.rows = {(row[PARTITION], row[KEY]): _user(row) for row in self.before.to_pylist()}
        self._step = 0

    def go_on(self) -> None:
        """Updates, a delete, a compaction, updates and a delete on top of it, a clean, archiving."""
        keys = sorted(self.rows)
        self.update(keys[:3])
        self.delete(keys[3:4])
        self.table.compact()
        self.update(keys[1:2] + keys[4:6])
        self.delete(keys[2:3])
        self.table.clean()
        self.table.archive()

    def update(self, keys: list[tuple[str, str]]) -> None:
        """New versions of rows, with higher ordering values and another text, or vectors turned round."""
        self.table.upsert(self.newer(keys))

    def newer(self, keys: list[tuple[str, str]]) -> pa.Table:
        """The rows of an update, which are from now on the table's."""
        keys = [key for key in keys if key in self.rows]
        self._step += 1
        for key in keys:
            self.rows[key] = self._newer(self.rows[key])
        return pa.Table.from_pylist([self.rows[key] for key in keys], schema=self.schema)

    def delete(self, keys: list[tuple[str, str]]) -> None:
        gone = self.gone(keys)
        if gone.num_rows:
            self.table.delete(gone)

    def gone(self, keys: list[tuple[str, str]]) -> pa.Table:
        """The rows of a delete, which the table has no longer from now on."""
        return pa.Table.from_pylist(
            [self.rows.pop(key) for key in keys if key in self.rows], schema=self.schema
        )

    def _newer(self, row: dict[str, Any]) -> dict[str, Any]:
        config = self.table.config
        new = dict(row)
        for name in config.ordering:
            if isinstance(new[name], int):
                new[name] += 1000
        taken = {*config.record_key, *config.partition_fields, *config.ordering}
        for field in self.schema:
            if pa.types.is_fixed_size_list(field.type) and new[field.name] is not None:
                new[field.name] = new[field.name][::-1]
            free = field.name not in taken and not field.name.startswith("_hoodie") and field.name != "op"
            if free and pa.types.is_string(field.type):
                new[field.name] = f"ours {self._step}"
                break
        return new

    def expected(self) -> list[tuple]:
        """Rows of a snapshot, in the order of ``shown``."""
        return _ordered(pa.Table.from_pylist(list(self.rows.values()), schema=self.schema))


def shown(rows: pa.Table) -> list[tuple]:
    """The user columns of rows, in an order that does not depend on who read them."""
    return _ordered(rows.drop_columns([name for name in META if name in rows.column_names]))


def _user(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in META}


def _ordered(rows: pa.Table) -> list[tuple]:
    texts = [[repr(value) for value in column.to_pylist()] for column in rows.columns]
    return sorted(zip(*texts, strict=True))
