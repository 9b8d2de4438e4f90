"""Goal: a partition value may be any text; what its folder cannot hold is refused, and no row is lost in it.

Partitions within one another are made here as an older release, or Java, made them.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("v", pa.int64())])
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def made(path: Path, **properties: object) -> mainstem.Table:
    given = {"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False, **properties}
    return mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="part", buckets=1, properties=given
    )


def rows(*cells: tuple[int, str | None, int]) -> pa.Table:
    return pa.table([list(c) for c in zip(*cells, strict=True)], schema=SCHEMA)


def found(table: mainstem.Table) -> list[tuple]:
    read = table.scan(columns=["id", "part", "v"]).to_arrow().to_pylist()
    return sorted((row["id"], row["part"], row["v"]) for row in read)


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a"), ("a", "a/b/c")])
def test_a_partition_within_another_one_is_refused_and_nothing_is_written(
    tmp_path: Path, first: str, second: str
) -> None:
    table = made(tmp_path)
    table.upsert(rows((1, first, 1)))
    with table.begin() as transaction:
        with pytest.raises(Invalid, match="one folder would lie in the other"):
            transaction.write(rows((2, "z", 2), (3, second, 3)))
        transaction.write(rows((4, "z", 4)))
        transaction.commit()
    assert found(table) == [(1, first, 1), (4, "z", 4)]


def test_partitions_beside_one_another_in_one_folder_are_taken(tmp_path: Path) -> None:
    table = made(tmp_path)
    given = [(1, "a/b", 1), (2, "a/c", 2), (3, "ab", 3), (4, "a/bc", 4)]
    for row in given:
        table.upsert(rows(row))
    assert found(table) == given


def test_encoded_values_with_slashes_lie_beside_one_another(tmp_path: Path) -> None:
    table = made(tmp_path, **{"hoodie.datasource.write.partitionpath.urlencode": True})
    given = [(1, "a", 1), (2, "a/b", 2), (3, "a%2Fb", 3), (4, "../a", 4), (5, "..a", 5)]
    table.upsert(rows(*given))
    assert found(table) == given


@pytest.mark.parametrize("indexed", [False, True])
def test_rows_in_partitions_within_one_another_that_others_made_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
) -> None:
    monkeypatch.setattr("mainstem.writers.append.nested", lambda storage, partition: None)
    table = made(tmp_path, **{"hoodie.metadata.enable": indexed})
    given = [(1, "a", 1), (2, "a/b", 2), (3, "a/b/c", 3)]
    for row in given:
        table.upsert(rows(row))
    assert found(table) == given
    table.compact()
    assert found(mainstem.open_table(tmp_path, {"hoodie.metadata.enable": False})) == given
    assert sorted({s.partition for s in table.file_slices()}) == ["a", "a/b", "a/b/c"]


def test_the_last_row_of_a_key_in_a_batch_wins_whichever_way_its_partition_is_missing(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows((1, "", 1), (1, DEFAULT, 2), (1, None, 3)))
    assert found(table) == [(1, None, 3)]


@pytest.mark.parametrize("value", ["x" * 256, "é" * 128, "g" * 5000, "a/" + "b" * 256])
def test_a_folder_name_that_is_too_long_is_refused_and_the_transaction_goes_on(
    tmp_path: Path, value: str
) -> None:
    table = made(tmp_path)
    with table.begin() as transaction:
        transaction.write(rows((1, "a" * 255, 1)))
        with pytest.raises(Invalid, match="file systems take 255"):
            transaction.write(rows((2, "z", 2), (3, value, 3)))
        transaction.commit()
    assert found(table) == [(1, "a" * 255, 1)]
