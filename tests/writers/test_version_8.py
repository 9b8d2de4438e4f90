"""Goal: tables of version 8 are made and written as Hudi 1.0 and 1.1 know them, and stay at version 8.

Method: a new table says what Hudi 1.0 looks for; Java's tables of version 8 are copied, written and
read back, and not a byte of their ``hoodie.properties`` changes. What version 8 lacks is refused.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int32()), ("ts", pa.int64())])
FAST = {"hoodie.mainstem.fsync": "false"}


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


@pytest.mark.supports("Tables and layouts", "table version 8 (write)")
def test_a_table_of_version_8_says_what_hudi_1_0_looks_for(tmp_path: Path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        table_version=8, properties=FAST,
    )  # fmt: skip
    found = table.properties
    assert found["hoodie.table.version"] == found["hoodie.table.initial.version"] == "8"
    assert found["hoodie.table.precombine.field"] == found["hoodie.table.ordering.fields"] == "ts"
    assert found["hoodie.compaction.payload.class"].endswith("DefaultHoodieRecordPayload")
    assert found["hoodie.record.merge.strategy.id"] == "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
    assert found["hoodie.write.auto.upgrade"] == "false"
    assert "hoodie.table.format" not in found
    table.upsert(rows(("a", "x", 1, 5), ("b", "y", 2, 5)))
    table.upsert(rows(("a", "x", 3, 4), ("b", "y", 4, 6)))
    shown = mainstem.open_table(tmp_path / "t").scan(columns=["id", "n"]).to_arrow().sort_by("id")
    assert shown.to_pylist() == [{"id": "a", "n": 1}, {"id": "b", "n": 4}]


def test_without_ordering_version_8_is_commit_time(tmp_path: Path) -> None:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=1, table_version=8, properties=FAST
    )
    found = table.properties
    assert found["hoodie.compaction.payload.class"].endswith("OverwriteWithLatestAvroPayload")
    assert found["hoodie.record.merge.strategy.id"].startswith("ce9acb64")
    assert "hoodie.table.precombine.field" not in found


@pytest.mark.parametrize("name", ["basic_mor_by_1_0_2", "merge_event_v8.logs", "nbcc_two_writers_v8.crossed"])
def test_java_tables_of_version_8_are_written_and_never_upgraded(name: str, tmp_path: Path) -> None:
    java = json.loads((GOLDEN / f"{name}.json").read_text())
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    base = next(tmp_path.rglob(".hoodie")).parent
    before = (base / ".hoodie" / "hoodie.properties").read_bytes()
    options = {
        "hoodie.bucket.index.num.buckets": java["writer_options"]["hoodie.bucket.index.num.buckets"], **FAST
    }
    if java["table_config"].get("hoodie.table.timeline.timezone") != "UTC":
        options["hoodie.mainstem.timeline.zone"] = "UTC"
    table = mainstem.open_table(base, options)
    seen = table.scan().to_arrow()
    user = [c for c in seen.column_names if not c.startswith("_hoodie_") or c == "_hoodie_is_deleted"]
    (order,) = table.config.ordering
    place = user.index(order)
    again = seen.select(user)
    field = again.schema.field(order)
    raised = pa.array([value + 1_000_000 for value in again[order].to_pylist()], field.type)
    table.upsert(again.set_column(place, field, raised))
    after = mainstem.open_table(base).scan().to_arrow()
    assert sorted(after["_hoodie_record_key"].to_pylist()) == sorted(seen["_hoodie_record_key"].to_pylist())
    assert sorted(after[order].to_pylist()) == sorted(raised.to_pylist())
    assert (base / ".hoodie" / "hoodie.properties").read_bytes() == before


def test_an_option_for_an_older_version_is_a_contradiction(tmp_path: Path) -> None:
    mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", buckets=1)
    table = mainstem.open_table(tmp_path / "t", {"hoodie.write.table.version": "8"})
    with pytest.raises(mainstem.Invalid, match=r"table\.version='8' contradicts"):
        table.upsert(rows(("a", "x", 1, 5)))
