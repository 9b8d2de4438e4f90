"""Goal: no partition value makes a folder that a reader, Java's or ours, misreads or cannot list.

Method: values that Java 1.2.0 was seen to misread (a colon, a bare "a=b") and values that leave the
table or are no path are refused by name before anything is written; url-encoded, the same values are
written and read back.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64())])
VALUES = ["a:b", "a=b", "a\\b", "a\nb", "..", "a/../b", "/a", "a//b", "a/", ".hoodie", "/".join("x" * 200)]


def table_of(path: Path, **properties: str) -> mainstem.Table:
    return mainstem.create_table(
        path,
        SCHEMA,
        record_key="id",
        ordering="ts",
        partition_by="city",
        buckets=1,
        properties={f"hoodie.datasource.write.{k}": v for k, v in properties.items()},
    )


def row_of(value: str) -> pa.Table:
    return pa.table({"id": [1], "city": [value], "ts": [1]}, schema=SCHEMA)


@pytest.mark.parametrize("value", VALUES)
def test_a_value_that_is_no_safe_folder_is_refused_and_nothing_is_written(tmp_path: Path, value: str) -> None:
    table = table_of(tmp_path / "t")
    with pytest.raises(mainstem.Invalid, match=r"city.*urlencode=true"):
        table.upsert(row_of(value))
    assert not [i for i in table.timeline() if i.completion]
    assert table.scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("value", [v for v in VALUES if v not in ("..", ".hoodie") and len(v) < 255])
def test_url_encoded_the_same_value_is_written_and_read_back(tmp_path: Path, value: str) -> None:
    table = table_of(tmp_path / "t", **{"partitionpath.urlencode": "true"})
    table.upsert(row_of(value))
    assert table.scan(columns=["city"]).to_arrow()["city"].to_pylist() == [value]


def test_hive_style_folders_may_hold_an_equals_sign(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", hive_style_partitioning="true")
    table.upsert(row_of("a=b"))
    assert table.scan(columns=["city"]).to_arrow()["city"].to_pylist() == ["a=b"]
