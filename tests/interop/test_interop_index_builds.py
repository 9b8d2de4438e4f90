"""Goal: Java reads through indexes that mainstem built beside writers, goes on with the table, and drops
none.

Method: ``files`` and ``column_stats`` are built while a transaction is open that commits in the middle of
it. Java reads with the metadata table and data skipping, and without; then both write in turn.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from compare import assert_same
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.indexing.initial_rows import InitialRows

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64())])
THROUGH = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
OPTIONS = nbcc_options(
    "built", record_key=["id"], ordering=["ts"], buckets=2,
    extra={"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "false"},
)  # fmt: skip


def rows_of(ids: range, ts: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"{i} at {ts}" for i in ids], "ts": [ts] * len(ids)}, SCHEMA)


@pytest.mark.supports("Indexes", "builds: listed, built, rebuilt and dropped while writers run")
def test_java_reads_through_indexes_that_were_built_beside_writers_and_goes_on(
    java: JavaHudi, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2, name="built")
    table.upsert(rows_of(range(20), 100))
    table.compact()
    table.upsert(rows_of(range(8), 110))
    early = table.begin()
    early.write(rows_of(range(4, 30), 120))
    of_listing = InitialRows.of_listing

    def slow(self: InitialRows) -> pa.Table:
        if self.spec.partition == "column_stats":
            early.commit()
        return of_listing(self)

    monkeypatch.setattr(InitialRows, "of_listing", slow)
    table.create_index("column_stats")

    def check() -> None:
        opened = mainstem.open_table(path)
        assert opened.validate_metadata().ok, opened.validate_metadata().differences
        ours = opened.scan().to_arrow()
        assert_same(java.read(path, THROUGH), ours, ["id"])
        assert_same(java.read(path), ours, ["id"])

    check()
    for turn in range(2):
        java.write(path, rows_of(range(turn, turn + 8), 200 + turn), OPTIONS)
        mainstem.open_table(path).upsert(rows_of(range(turn + 4, turn + 30), 210 + turn))
        check()
    states = {index.name: index.state for index in mainstem.open_table(path).indexes()}
    assert states == {"files": "ready", "column_stats": "ready"}
    mainstem.open_table(path).drop_index("column_stats")
    check()
