"""Goal: `explain_row` tells what a vector index has of a row, and where a search would answer otherwise.

Method: rows are indexed, then changed, deleted, compacted and added; each stand is explained. A search beside
shows that what is told is true.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.vectors.search import row_entries

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.list_(pa.float32(), 4))])


def vector(number: int) -> list[float]:
    return [float(x) for x in np.random.default_rng(number).random(4, dtype=np.float32)]


def row(key: str, ts: int, value: list[float] | None) -> dict:
    return {"id": [key], "ts": [ts], "v": [value]}


@pytest.fixture
def table(tmp_path) -> mainstem.Table:
    made = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1)
    for number, key in enumerate(("a", "b", "c")):
        made.upsert(row(key, 1, vector(number)))
    made.create_index("vector", ["v"], name="nearest")
    return made


def entries(table: mainstem.Table, key: str) -> list:
    return [entry for entry in table.explain_row(key).indexes if entry.index == "nearest"]


def test_the_place_of_a_vector_in_its_index_is_told(table) -> None:
    (entry,) = entries(table, "b")
    assert entry.agrees and entry.what == "has the row's vector"
    (winner,) = table.explain_row("b").winners
    assert entry.entry["file_id"] == winner.file_id and entry.entry["commit_time"] == winner.commit_time
    assert (entry.entry["version"], entry.entry["cluster"]) == (1, 0)
    assert "index nearest: has the row's vector {" in str(table.explain_row("b"))
    assert not entries(table, "nowhere")
    assert not table.explain_row("b", as_of=winner.instant).indexes


def test_a_vector_that_changed_since_is_told_and_a_refresh_brings_it(table) -> None:
    table.upsert(row("b", 2, vector(7)))
    (entry,) = entries(table, "b")
    assert entry.agrees and "log files came since" in entry.what
    table.compact()
    (entry,) = entries(table, "b")
    assert entry.agrees and "another one now" in entry.what
    assert table.search("v", vector(7), k=1)["id"].to_pylist() == ["b"]
    table.refresh_index("nearest")
    (entry,) = entries(table, "b")
    assert (entry.what, entry.entry["version"]) == ("has the row's vector", 2)


def test_a_row_that_the_index_does_not_have_yet_is_found_beside_it(table) -> None:
    table.upsert(row("new", 1, vector(9)))
    (entry,) = entries(table, "new")
    assert entry.agrees and "find beside it" in entry.what
    assert table.search("v", vector(9), k=1)["id"].to_pylist() == ["new"]
    table.upsert(row("none", 1, None))
    assert not entries(table, "none")


def test_an_index_that_lacks_a_row_of_a_slice_which_it_covers_differs(table, monkeypatch) -> None:
    monkeypatch.setattr(row_entries, "_places", lambda *_: iter(()))
    (entry,) = entries(table, "b")
    assert not entry.agrees and "index nearest DIFFERS: lacks the row" in str(table.explain_row("b"))


@pytest.mark.disk("its files are damaged as files")
def test_a_damaged_file_of_an_index_is_told_and_the_row_is_too(table, tmp_path) -> None:
    (keys,) = [file for file in (tmp_path / "t").rglob("version=*/*") if "keys" in file.name]
    keys.write_bytes(keys.read_bytes()[:-1] + b"?")
    told = table.explain_row("b")
    assert told.rows.num_rows == 1 and not told.indexes
    assert "checksum does not fit" in str(told)


def test_how_much_an_index_covers_is_told_without_its_vectors(table) -> None:
    assert table.vectors.coverage("nearest").share == 1
    for number, key in enumerate(("d", "e")):
        table.upsert(row(key, 2, vector(number + 20)))
    told = table.vectors.coverage("nearest")
    assert (told.version, told.rows, told.share) == (1, 3, 0) and told.slices == {"log files added": 1}
    table.compact()
    assert table.vectors.coverage("nearest").slices == {"compared": 1}
    table.refresh_index("nearest")
    told = table.vectors.coverage("nearest")
    assert (told.version, told.rows, told.slices) == (2, 5, {"unchanged": 1})
    with pytest.raises(mainstem.Invalid, match="no vector index is called 'other'"):
        table.vectors.coverage("other")
