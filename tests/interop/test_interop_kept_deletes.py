"""Goal: the deletes that our compactions keep are Hudi's own: Java reads, compacts and writes beside them.

Method: tables that hold every history of three writes are compacted by mainstem and read by Java; and Java
writes late rows to a table with a metadata table, looks at its past and its changes, compacts and cleans it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from tests.model.compacted_tables import BY_SQL, KINDS, Histories, Kind
from tests.model.compaction_model import PARTIAL_EVENT
from tests.services.test_kept_deletes import kept, kept_files, schema

pytestmark = pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")


@pytest.mark.parametrize("kind", [k for k in (*KINDS, BY_SQL) if k.keep], ids=lambda kind: kind.name)
def test_java_reads_what_we_read_in_every_history_whoever_compacts_next(
    java: JavaHudi, path: str, kind: Kind
):
    histories = Histories(kind, 2 if kind.mode == PARTIAL_EVENT or kind.sql else 3, late=True)
    options = nbcc_options("cuts", record_key=["id"], ordering=kind.ordering, partition_by=["cut"], buckets=1)
    table = kind.make(path, exclusive=False)
    histories.write(table, table.schedule_compaction, table.run_compaction)
    wanted = histories.wanted(compacted=True, keep=kind.keep)
    assert wanted != histories.wanted(compacted=True)
    assert histories.found(java.read(path)) == wanted
    java.compact(path, options)
    assert histories.found(java.read(path)) == wanted
    assert histories.found(table.scan().to_arrow()) == wanted


def test_java_writes_late_rows_and_goes_on_with_every_service(java: JavaHudi, path: str):
    properties = {"hoodie.metadata.enable": "true", "hoodie.time.generator.max_expected_clock_skew_ms": 1}
    table = mainstem.create_table(
        path, schema(), record_key="id", ordering="ts", buckets=1, name="t", properties=properties
    )
    extra = {"hoodie.metadata.enable": "true"}
    options = nbcc_options("t", record_key=["id"], ordering=["ts"], buckets=1, extra=extra)

    def rows(*listed: tuple[str, int, str | None]) -> pa.Table:
        values = [{"id": k, "ts": ts, "value": v, "_hoodie_is_deleted": v is None} for k, ts, v in listed]
        return pa.Table.from_pylist(values, schema=schema())

    def shown(found: pa.Table) -> dict[str, str]:
        return dict(zip(found["id"].to_pylist(), found["value"].to_pylist(), strict=True))

    table.upsert(rows(("b", 1, "b"), ("k", 4, "first"), ("m", 4, "first")))
    table.upsert(rows(("k", 5, None), ("m", 5, None)))
    table.compact()
    assert kept(table) == {"k": 5, "m": 5}
    mark = next(i for i in reversed(table.timeline()) if i.action == "commit")
    for place in (java.read(path), java.read_by_default(path), java.read_optimized(path)):
        assert shown(place) == {"b": "b"}
    java.write(path, rows(("k", 4, "late"), ("c", 1, "c")), options)
    java.write(path, rows(("m", 5, "as new")), options)
    wanted = {"b": "b", "c": "c", "m": "as new"}
    for found in (java.read(path), java.read_by_default(path), table.scan().to_arrow()):
        assert shown(found) == wanted
    assert shown(java.read_as_of(path, mark.requested)) == {"b": "b"}
    after = mark.completion or ""
    ours = shown(table.changes(after=after).to_arrow())
    assert shown(java.changes(path, after)) == ours == {"k": "late", "c": "c", "m": "as new"}
    everything = shown(table.changes(after="000").to_arrow())
    assert shown(java.changes(path, "000")) == everything
    table.compact()
    assert kept(table) == {"k": 5}
    report = table.validate_metadata()
    assert report is not None and not report.differences
    assert shown(java.read_by_default(path)) == wanted
    # Java takes them in and forgets them, and cleans the files.
    java.write(path, rows(("d", 1, "d"), ("k", 3, "later still")), options)
    wanted["d"] = "d"
    java.compact(path, options)
    assert kept(table) == {} and shown(java.read_by_default(path)) == wanted == shown(table.scan().to_arrow())
    first, second = kept_files(table)
    java.clean(path, {**options, "hoodie.clean.commits.retained": "1"})
    assert kept_files(table) == [second] and not (Path(path) / first).exists()
    assert shown(java.read_by_default(path)) == wanted == shown(table.scan().to_arrow())
    report = table.validate_metadata()
    assert report is not None and not report.differences


def test_java_rolls_back_a_compaction_of_ours_that_died_and_executes_its_plan(
    java: JavaHudi, path: str, monkeypatch: pytest.MonkeyPatch
):
    from mainstem.services import compaction

    properties = {"hoodie.time.generator.max_expected_clock_skew_ms": 1}
    table = mainstem.create_table(
        path, schema(), record_key="id", ordering="ts", buckets=1, name="t", properties=properties
    )
    options = nbcc_options("t", record_key=["id"], ordering=["ts"], buckets=1)
    listed = [("b", 1, "b", False), ("k", 4, "first", False)]
    for found in (listed, [("k", 5, None, True)]):
        columns = list(zip(*found, strict=True))
        table.upsert(pa.table(dict(zip(schema().names, columns, strict=True)), schema=schema()))
    planned = table.schedule_compaction()
    assert planned
    with monkeypatch.context() as patched:
        patched.setattr(compaction.Execution, "complete", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            table.run_compaction()
    assert len(kept_files(table)) == 1
    java.run_compaction(path, options, planned)
    assert [i.requested for i in table.timeline() if i.action == "commit"] == [planned]
    assert java.read(path)["id"].to_pylist() == ["b"] == table.scan().to_arrow()["id"].to_pylist()
    assert kept_files(table) == []
