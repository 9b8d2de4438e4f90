"""Goal: the SQL demo's check takes a table only if it holds, once, every row that its commits wrote.

Method: small tables written without Flink; the SQL itself runs in the tests of ``mainstem.flink``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from demos.nbcc_sql import CheckFailed, check, compare
from demos.timeline_picture import Span, read_picture

SCHEMA = pa.schema({"uuid": pa.string(), "age": pa.int32()})


def _rows(*uuids: str) -> pa.Table:
    return pa.table({"uuid": list(uuids), "age": [1] * len(uuids)}, schema=SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two commits, of two rows and of one."""
    asked = {"hoodie.mainstem.exclusive": True, "hoodie.metadata.enable": True}
    table = mainstem.create_table(
        tmp_path / "t1", SCHEMA, record_key="uuid", buckets=2, properties=asked
    )
    table.upsert(_rows("a", "b"))
    table.upsert(_rows("c"))
    return tmp_path / "t1"


def _spans(path: Path) -> list[Span]:
    return list(read_picture(path).spans)


def test_a_table_that_holds_what_its_commits_wrote_passes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(path)
    assert "3 rows of 2 commits, every one there once" in capsys.readouterr().out
    assert path.with_name("timeline.svg").exists()


def test_a_commit_that_says_more_rows_than_are_there_is_named(path: Path) -> None:
    first, second = _spans(path)
    with pytest.raises(CheckFailed, match=rf"1 commits .* {second.instant}: 1 of 2"):
        compare(path, [first, replace(second, rows=2)])


def test_rows_that_no_commit_tells_of_are_found(path: Path) -> None:
    first, second = _spans(path)
    with pytest.raises(CheckFailed, match=rf"{second.instant}: 1 of 0"):
        compare(path, [first])


def test_a_transaction_that_did_not_end_in_a_commit_fails_the_check(path: Path) -> None:
    mainstem.open_table(path).begin().write(_rows("d"))
    with pytest.raises(CheckFailed, match="1 transactions did not end in a commit"):
        check(path)
