"""Goal: Java reads a table that was given more or fewer buckets, with and without its metadata table, and
writes on by the new number.

Method: Java and mainstem write in turn, mainstem resizes, and Java reads by default, optimized, as of earlier
moments and incrementally. Then it upserts keys, with the new number in its options, with none, and with the
old one, which it refuses.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from java_hudi import JavaFailed, JavaHudi, nbcc_options

import mainstem

pytestmark = pytest.mark.supports("Services", "resize: another number of buckets beside writers")

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string()), ("day", pa.string())])
KEY = {"record_key": ["id"], "ordering": ["ts"], "partition_by": ["day"]}


def rows(low: int, high: int, ts: int) -> pa.Table:
    made = [{"id": f"k{i}", "ts": ts, "v": f"v{ts}", "day": f"d{i % 2}"} for i in range(low, high)]
    return pa.Table.from_pylist(made, schema=SCHEMA)


def shown(found: pa.Table) -> dict[str, int]:
    keys = found["id"].to_pylist()
    assert len(set(keys)) == len(keys), "a key is there twice"
    return dict(zip(keys, found["ts"].to_pylist(), strict=True))


@pytest.mark.parametrize("metadata", [False, True], ids=["folders", "metadata table"])
def test_java_reads_a_resized_table_and_writes_on(java: JavaHudi, path: str, metadata: bool) -> None:
    properties = {"hoodie.time.generator.max_expected_clock_skew_ms": 1}
    table = mainstem.create_table(
        path, SCHEMA, **KEY, buckets=4, name="t", properties=properties
    )
    extra = {"hoodie.metadata.enable": str(metadata).lower()}
    if metadata:
        for kind in ("files", "column_stats"):
            table.create_index(kind)

    def options(buckets: int) -> dict[str, str]:
        return nbcc_options("t", **KEY, buckets=buckets, extra=extra)

    table.upsert(rows(0, 40, 1))
    java.write(path, rows(30, 60, 2), options(4))
    before = table.timeline()[-1]
    wanted = {f"k{i}": 1 if i < 30 else 2 for i in range(60)}
    for ts, buckets in ((10, 8), (20, 3)):
        table.resize(buckets)
        after = max(i.completion or "" for i in table.timeline())
        for found in (java.read(path), java.read_by_default(path), java.read_optimized(path)):
            assert shown(found) == wanted
        assert shown(table.scan().to_arrow()) == wanted
        written = rows(50, 70, ts)
        java.write(path, written, options(buckets))
        table.upsert(rows(65, 75, ts + 5))
        changed = {f"k{i}": ts if i < 65 else ts + 5 for i in range(50, 75)}
        wanted |= changed
        for found in (java.read(path), java.read_by_default(path), table.scan().to_arrow()):
            assert shown(found) == wanted
        assert shown(java.changes(path, after)) == shown(table.changes(after=after).to_arrow()) == changed
    everything = shown(table.changes(after="000").to_arrow())
    assert shown(java.changes(path, "000")) == everything == wanted
    earlier = {f"k{i}": 1 if i < 30 else 2 for i in range(60)}
    assert shown(java.read_as_of(path, before.requested)) == earlier
    if metadata:
        report = table.validate_metadata()
        assert report is not None and not report.differences
    java.compact(path, options(3))
    assert shown(java.read_by_default(path)) == wanted == shown(table.scan().to_arrow())


def test_java_refuses_the_old_number_and_takes_the_new_one_from_the_table(java: JavaHudi, path: str) -> None:
    table = mainstem.create_table(path, SCHEMA, **KEY, buckets=4, name="t")
    table.upsert(rows(0, 40, 1))
    table.resize(8)
    options = nbcc_options("t", **KEY, buckets=4)
    with pytest.raises(JavaFailed, match="Config conflict"):
        java.write(path, rows(0, 40, 2), options)
    del options["hoodie.bucket.index.num.buckets"]
    java.write(path, rows(0, 40, 3), options)
    wanted = {f"k{i}": 3 for i in range(40)}
    assert shown(java.read_by_default(path)) == wanted == shown(table.scan().to_arrow())
