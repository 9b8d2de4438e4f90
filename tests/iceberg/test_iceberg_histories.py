"""Goal: whatever happens to a table, Iceberg shows the rows of its newest base files, and every snapshot that
it keeps can be read and shows what it showed.

Method: random histories on a table that publishes by itself; after each step pyiceberg's rows are compared
with the read optimized query's, and all older snapshots with what they were.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.iceberg.after_changes import IcebergWarning
from tests.iceberg.conftest import check_shows_base_files, iceberg_table, rows_of

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int32()), ("note", pa.string())])
OPTIONS = {
    "hoodie.mainstem.iceberg.enable": "true", "hoodie.mainstem.services": "off",
    "hoodie.mainstem.fsync": "false",
    "hoodie.clean.commits.retained": "2",
}  # fmt: skip
CITIES = ("oslo", "rome & co", "a%2Fb", None)


class History:
    """One table and what is done to it."""

    def __init__(self, table: mainstem.Table, seed: int) -> None:
        self.table, self.chance = table, random.Random(seed)
        self.columns: dict[str, pa.DataType] = {field.name: field.type for field in SCHEMA}
        self.saved: str | None = None
        self.shown: dict[int, list[dict[str, Any]]] = {}

    def rows(self, cities: tuple[str | None, ...] = CITIES) -> pa.Table:
        picked = self.chance.sample(range(40), self.chance.randint(1, 12))
        made = [
            dict.fromkeys(self.columns) | {"id": f"k{i}", "city": cities[i % len(cities)],
            "n": self.chance.randint(0, 9), "note": "é" * self.chance.randint(0, 20)}
            for i in picked
        ]  # fmt: skip
        return pa.Table.from_pylist(made, pa.schema(list(self.columns.items())))

    def step(self) -> str:
        name = self.chance.choice(STEPS)
        getattr(self, name)()
        return name

    def upsert(self) -> None:
        self.table.upsert(self.rows())

    def delete(self) -> None:
        self.table.delete(self.rows().select(["id", "city"]))

    def compact(self) -> None:
        self.table.services.compact()

    def bulk_insert(self) -> None:
        self.table.bulk_insert(self.rows())

    def overwrite(self) -> None:
        self.table.insert_overwrite(self.rows((self.chance.choice(CITIES),)))

    def truncate(self) -> None:
        self.table.truncate()

    def evolve(self) -> None:
        if self.chance.random() < 0.5:
            self.columns[f"more{len(self.columns)}"] = pa.list_(pa.float64())
        else:
            self.columns["n"] = pa.int64()
        self.table.evolve(pa.schema(list(self.columns.items())))

    def cluster(self) -> None:
        self.table.services.cluster("n")

    def clean(self) -> None:
        if self.saved is None:
            self.table.services.clean()

    def savepoint(self) -> None:
        if self.saved is None and any(i.is_completed for i in self.table.timeline()):
            self.saved = self.table.services.savepoint().instant

    def restore(self) -> None:
        if self.saved is not None:
            self.table.services.restore(self.saved)
            self.table.services.delete_savepoint(self.saved)
            self.saved = None
            self.columns = {f.name: f.type for f in self.table.schema if not f.name.startswith("_hoodie")}

    def check(self) -> None:
        rows = check_shows_base_files(self.table)
        found = iceberg_table(self.table)
        current = found.current_snapshot()
        least, city = self.chance.randint(0, 9), self.chance.choice(CITIES)
        where = f"city = '{city}'" if city else "city IS NULL"
        picked = found.scan(row_filter=f"n >= {least} AND {where}").to_arrow()
        wanted = sum(row["n"] >= least and row["city"] == city for row in rows)
        assert picked.num_rows == wanted, f"{least}, {city}"
        for snapshot in found.snapshots():
            then = found.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
            before = pa.Table.from_pylist(self.shown.get(snapshot.snapshot_id, []))
            if before.num_rows:  # each snapshot shows the columns that it was made with
                names = [name for name in then.column_names if name in before.column_names]
                assert rows_of(then, names) == rows_of(before, names)
        if current is not None:
            self.shown[current.snapshot_id] = rows


STEPS = (
    *("upsert",) * 6, *("compact",) * 5, "delete", "delete", "bulk_insert", "overwrite", "evolve", "cluster",
    "clean", "clean", "savepoint", "restore", "truncate",
)  # fmt: skip


@pytest.mark.supports("Engines", "Iceberg: metadata beside the base files, read by pyiceberg")
@pytest.mark.parametrize("partitioned", [True, False], ids=["partitions", "one folder"])
@pytest.mark.parametrize("seed", range(3))
def test_iceberg_shows_the_newest_base_files_after_every_step(tmp_path, seed: int, partitioned: bool) -> None:
    parts = {"partition_by": ["city"]} if partitioned else {}
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=2, properties=OPTIONS, **parts
    )
    history = History(table, seed)
    history.upsert()
    history.compact()
    done = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", IcebergWarning)
        for _ in range(30):
            done.append(history.step())
            try:
                history.check()
            except AssertionError as error:
                raise AssertionError(f"after {done}") from error


@pytest.mark.parametrize("seed", range(2))
def test_iceberg_follows_a_table_without_buckets(tmp_path, seed: int) -> None:
    options = {**OPTIONS, "hoodie.index.type": "GLOBAL_SIMPLE" if seed else "SIMPLE"}
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by=["city"], properties=options
    )
    history = History(table, seed)
    for _ in range(4):
        history.upsert()
        history.compact()
        history.check()
    history.table.services.cluster()
    history.check()
    history.clean()
    history.check()
