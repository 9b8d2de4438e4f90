"""Goal: a writer that stays open knows the newest schema, whoever changed it, and decodes little for that.

Method: two handles of one table take turns; the store counts what is read.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.timeline import commit_metadata
from tests.storage.counted_calls import counted_table

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32()), ("ts", pa.int64())])


def rows(v: int, **more: pa.Array) -> pa.Table:
    table = pa.table({"k": ["a"], "v": pa.array([v], pa.int32()), "ts": [v]})
    for name, column in more.items():
        table = table.append_column(name, column)
    return table


def made(path: Path) -> mainstem.Table:
    return mainstem.create_table(
        str(path), SCHEMA, record_key=["k"], ordering=["ts"], buckets=1,
        properties={"hoodie.mainstem.services": "off"},
    )  # fmt: skip


def test_a_writer_among_others_with_the_same_schema_decodes_no_commit_of_theirs(
    tmp_path: Path, monkeypatch
) -> None:
    def noted(data, **where):
        decoded.append(where)
        return decode(data, **where)

    decoded: list[object] = []
    decode = commit_metadata.decode_commit
    other = made(tmp_path / "t")
    table, _ = counted_table(other, {"hoodie.mainstem.services": "off"})
    other.upsert(rows(1))
    table.upsert(rows(2))
    for module in ("mainstem.readers.planning.table_state", "mainstem.writers.transaction_schema"):
        monkeypatch.setattr(f"{module}.decode_commit", noted)
    for v in range(3, 9, 2):
        other.upsert(rows(v))
        table.upsert(rows(v + 1))
    assert not decoded
    assert table.scan().to_arrow()["v"].to_pylist() == [8]


@pytest.mark.disk("on a store a writer looks once, when it commits: it does not know the column before that")
def test_a_column_that_another_writer_has_just_added_is_kept(tmp_path: Path) -> None:
    other = made(tmp_path / "t")
    table, _ = counted_table(other, {"hoodie.mainstem.services": "off"})
    table.upsert(rows(1))
    other.upsert(rows(2, city=pa.array(["rome"])))
    with pytest.raises(Invalid, match="columns missing: 'city'"):
        table.upsert(rows(3))
    table.upsert(rows(4, city=pa.array(["oslo"])))
    assert other.scan().to_arrow().select(["v", "city"]).to_pylist() == [{"v": 4, "city": "oslo"}]
