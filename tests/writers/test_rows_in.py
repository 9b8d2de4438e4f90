"""Goal: rows of every kind that docs/rows.md lists arrive as they were given, streams batch by batch and
whole or not at all; what cannot be taken is refused with column, row and way out.

Method: the same rows are given to tables of their own as each kind, and read back.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem.errors import Invalid
from mainstem.writers import rows_in

EXPECTED = {f"k{i}": f"v{i}" for i in range(10)}


def table_of_ten() -> pa.Table:
    return rows(range(10), ts=1)


class Stream:
    """What a library hands out that knows nothing of pyarrow."""

    def __init__(self, table: pa.Table, most: int = 3) -> None:
        self._batches = table.to_batches(max_chunksize=most)
        self._schema = table.schema

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches)
        return reader.__arrow_c_stream__(requested_schema)


class Array:
    """As ``Stream``, for a single batch."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def of_dataset(folder: Path) -> ds.Dataset:
    place = folder / "files"
    ds.write_dataset(table_of_ten(), place, format="parquet", max_rows_per_file=4, max_rows_per_group=4)
    return ds.dataset(place)


KINDS: dict[str, Callable[[Path], Any]] = {
    "table": lambda _: table_of_ten(),
    "record batch": lambda _: table_of_ten().to_batches()[0],
    "columns by name": lambda _: table_of_ten().to_pydict(),
    "reader": lambda _: pa.RecordBatchReader.from_batches(SCHEMA, table_of_ten().to_batches(max_chunksize=3)),
    "dataset": of_dataset,
    "scanner": lambda folder: of_dataset(folder).scanner(batch_size=3),
    "arrow stream": lambda _: Stream(table_of_ten()),
    "arrow array": lambda _: Array(table_of_ten().to_batches()[0]),
    "pandas": lambda _: table_of_ten().to_pandas(),
    "polars": lambda _: pl.from_arrow(table_of_ten()),
    "duckdb": lambda _: duckdb.from_arrow(table_of_ten()),
    "list of dicts": lambda _: table_of_ten().to_pylist(),
    "tuple of dicts": lambda _: tuple(table_of_ten().to_pylist()),
    "iterator of dicts": lambda _: iter(table_of_ten().to_pylist()),
    "list of batches": lambda _: table_of_ten().to_batches(max_chunksize=3),
    "generator of tables": lambda _: (rows([i], ts=1) for i in range(10)),
    "generator of frames": lambda _: (pl.from_arrow(rows([i], ts=1)) for i in range(10)),
    "generator of streams": lambda _: (Stream(rows([i, i + 1], ts=1), 1) for i in range(0, 10, 2)),
    "lists of dicts in turn": lambda _: ([row] for row in table_of_ten().to_pylist()),
    "mixed": lambda _: [rows(range(4), ts=1), *rows(range(4, 6), ts=1).to_pylist(),
                        rows(range(6, 10), ts=1).to_pandas()],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.supports("Writing", "rows from pandas, Polars, DuckDB, Arrow streams, dicts and iterators")
def test_rows_of_every_kind_arrive(kind, make_table, tmp_path):
    for number, operation in enumerate(("upsert", "insert", "bulk_insert", "insert_overwrite")):
        table = make_table(f"t{number}")
        outcome = getattr(table, operation)(KINDS[kind](tmp_path / str(number)))
        assert (outcome.status, outcome.rows) == ("committed", 10)
        assert content(table) == EXPECTED, operation
        assert len(table.timeline()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_transaction_takes_every_kind_too(kind, make_table, tmp_path):
    table = make_table()
    with table.begin() as txn:
        assert txn.write(rows([10], ts=1)) == 1
        assert txn.write(KINDS[kind](tmp_path)) == 10
        assert txn.commit().rows == 11
    assert content(table) == EXPECTED | {"k10": "v10"}


@pytest.mark.parametrize("kind", ["pandas", "polars", "duckdb", "list of dicts", "generator of tables"])
def test_keys_to_delete_come_as_any_kind(kind, make_table, tmp_path):
    table = make_table()
    table.upsert(rows(range(12), ts=5))
    assert table.delete(KINDS[kind](tmp_path)).rows == 10
    assert set(content(table)) == {"k10", "k11"}


NOTHING = {
    "list": [],
    "generator": iter(()),
    "batches without rows": [SCHEMA.empty_table()] * 3,
    "pandas": SCHEMA.empty_table().to_pandas(),
    "polars": pl.from_arrow(SCHEMA.empty_table()),
    "stream": Stream(SCHEMA.empty_table()),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_no_rows_are_no_commit(kind, make_table):
    table = make_table()
    assert table.upsert(NOTHING[kind]).status == "empty"
    assert table.timeline() == []


# -- schemas -------------------------------------------------------------------------------------------

TYPES = pa.schema([
    ("id", pa.string()), ("n", pa.int32()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
    ("price", pa.decimal128(10, 2)), ("tags", pa.list_(pa.string())), ("raw", pa.binary()),
    ("ok", pa.bool_()), ("place", pa.struct([("x", pa.float64())])),
])  # fmt: skip
TYPED = [
    {
        "id": key, "n": 7, "day": datetime.date(2026, 1, 2),
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.UTC), "price": decimal.Decimal("1.50"),
        "tags": ["x", None], "raw": b"\0\1", "ok": True, "place": {"x": 0.5},
    }
    for key in ("a", "b")
]  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [TYPED, iter(TYPED), pl.DataFrame(TYPED), pd.DataFrame(TYPED), [pl.DataFrame(TYPED[:1]), TYPED[1]]],
    ids=["dicts", "iterator", "polars", "pandas", "both"],
)
def test_values_of_every_type_are_fitted_to_the_table(given, tmp_path):
    table = mainstem.create_table(tmp_path / "t", TYPES, record_key="id", buckets=1)
    assert table.upsert(given).rows == 2
    assert table.scan(columns=TYPES.names).to_arrow().sort_by("id").to_pylist() == TYPED
    assert table.schema == TYPES


def test_categories_of_frames_are_texts(make_table):
    for number, frame in enumerate((
        table_of_ten().to_pandas().astype({"value": "category", "city": "category"}),
        pl.from_arrow(table_of_ten()).cast({"value": pl.Categorical, "city": pl.Enum(["a", "b"])}),
    )):  # fmt: skip
        table = make_table(f"t{number}")
        table.upsert(frame)
        assert content(table) == EXPECTED


def test_a_frames_index_is_written_only_where_the_table_has_it(make_table):
    table = make_table()
    frame = table_of_ten().to_pandas()
    table.upsert(frame.iloc[3:5])  # numbers without a name
    table.upsert(frame.iloc[5:7].rename_axis("line"))  # a name that the table does not have
    table.upsert(frame.iloc[7:8].set_index("id"))
    table.upsert(frame.iloc[8:9].set_index(["city", "id"]))
    table.upsert(frame.iloc[9:].set_index("id", drop=False))  # as a column, too
    assert content(table) == {f"k{i}": f"v{i}" for i in range(3, 10)}
    assert table.schema.names == SCHEMA.names


def test_nan_of_pandas_is_null_and_that_of_others_stays(tmp_path):
    schema = pa.schema([("id", pa.string()), ("x", pa.float64())])
    for name, kind in (("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("columns", dict)):
        table = mainstem.create_table(tmp_path / name, schema, record_key="id", buckets=1)
        table.upsert(kind({"id": ["a"], "x": [float("nan")]}))
        found = table.scan(columns=["x"]).to_arrow()["x"].to_pylist()[0]
        assert (found is None) == (name == "pandas")


def test_a_key_that_some_dicts_lack_is_null_there(make_table, monkeypatch):
    monkeypatch.setattr(rows_in, "DICTS_AT_ONCE", 2)
    given = rows(range(6), ts=1).to_pylist()
    for number in (1, 2, 3, 5):
        del given[number]["value"]
    for name, way in (("list", list), ("generator", iter)):
        table = make_table(name)
        table.upsert(way(given))
        assert content(table) == {"k0": "v0", "k4": "v4", "k1": None, "k2": None, "k3": None, "k5": None}


def test_a_key_that_no_dict_has_is_missing_and_one_that_the_table_lacks_is_added(make_table):
    table = make_table()
    bare = [{"id": "k1", "city": "a", "ts": 1}]
    with pytest.raises(Invalid, match="columns missing: 'value'"):
        table.upsert(bare)
    with pytest.raises(Invalid, match="does not have: 'valeu'; columns missing: 'value'"):
        table.upsert([{**bare[0], "valeu": "x"}])
    table.upsert([{**bare[0], "value": "x", "more": 1}, {**bare[0], "id": "k2", "value": "y", "more": 1.5}])
    assert table.schema.field("more").type == pa.float64()


def test_a_stream_may_bring_columns_and_wider_numbers_on_its_way(make_table):
    table = make_table()
    first, second, third = rows([1], ts=1), rows([2], ts=1), rows([3], ts=1)
    outcome = table.upsert(iter([
        first,
        second.append_column("more", pa.array([1], pa.int32())),
        third.append_column("more", pa.array([0.5])),
    ]))  # fmt: skip
    assert outcome.rows == 3
    found = table.scan(columns=["id", "more"]).to_arrow().sort_by("id")
    assert found["more"].to_pylist() == [None, 1.0, 0.5]


def test_vectors_come_in_frames_and_dicts(tmp_path):
    schema = pa.schema([("id", pa.string())])
    vectors = [[1.0, 2.0], [3.0, 4.0]]
    of_lists = pl.DataFrame({"id": ["a", "b"], "v": vectors})
    given = {
        "polars": of_lists,
        "polars array": of_lists.cast({"v": pl.Array(pl.Float32, 2)}),
        "pandas": pd.DataFrame({"id": ["a", "b"], "v": [np.array(v) for v in vectors]}),
        "dicts": [{"id": "a", "v": vectors[0]}, {"id": "b", "v": np.array(vectors[1])}],
    }  # fmt: skip
    for name, some in given.items():
        table = mainstem.create_table(
            tmp_path / name, schema, record_key="id", buckets=1, vectors={"v": "VECTOR(2)"}
        )
        table.upsert(some)
        assert table.scan(columns=["id", "v"]).to_arrow().sort_by("id")["v"].to_pylist() == vectors


# -- streams -------------------------------------------------------------------------------------------


def test_of_rows_with_one_key_the_tables_rules_take_one_wherever_batches_end(make_table, monkeypatch):
    given = [rows([1], ts=2, value="greatest"), rows([1], ts=1, value="late"), rows([1], ts=2, value="last")]
    for most in (1, 2, 100):
        monkeypatch.setattr(rows_in, "GATHERED_ROWS", most)
        for operation in ("upsert", "bulk_insert"):
            by_time = make_table(f"event-{operation}-{most}")
            getattr(by_time, operation)(iter(given))
            assert content(by_time) == {"k1": "last1"}
            by_commit = make_table(f"commit-{operation}-{most}", ordering=())
            getattr(by_commit, operation)(iter(given[:2]))
            assert content(by_commit) == {"k1": "late1"}


def test_a_row_after_its_deletion_in_an_earlier_batch_stays(tmp_path):
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    gone, back = (
        rows([1], ts=1, value=value).append_column("_hoodie_is_deleted", pa.array([flag]))
        for value, flag in (("gone", True), ("back", False))
    )
    for name, batches, left in (
        ("in two batches", [gone, back], {"k1": "back1"}),
        ("in one", [pa.concat_tables([gone, back])], {}),
        ("the other way round", [back, gone], {}),
    ):
        table = mainstem.create_table(
            tmp_path / name, schema, record_key="id", partition_by="city", buckets=1
        )
        table.upsert(iter(batches))
        assert content(table) == left, name


def test_small_batches_are_written_together_and_large_ones_in_pieces(make_table, monkeypatch):
    from mainstem.writers.append import BucketAppender

    sizes: list[int] = []
    write = BucketAppender.write
    monkeypatch.setattr(BucketAppender, "write", lambda self, t: sizes.append(t.num_rows) or write(self, t))
    monkeypatch.setattr(rows_in, "GATHERED_ROWS", 8)
    make_table("small").upsert(rows([i], ts=1) for i in range(20))
    assert sizes == [8, 8, 4]
    sizes.clear()
    make_table("large").upsert(iter([rows(range(20), ts=1), rows(range(20, 22), ts=1)]))
    assert sizes == [8, 8, 6]


def test_a_source_that_fails_halfway_leaves_nothing_and_its_error_is_its_own(make_table, monkeypatch):
    monkeypatch.setattr(rows_in, "GATHERED_ROWS", 2)
    table = make_table()
    table.upsert(rows([0], ts=1))
    for error in (OSError("the queue is gone"), KeyError("offset"), ValueError("no JSON")):

        class Source:
            def __init__(self, error: Exception, after: int) -> None:
                self.error, self.left = error, after

            def __iter__(self) -> Source:
                return self

            def __next__(self) -> pa.Table:
                if not self.left:
                    raise self.error
                self.left -= 1
                return rows([self.left + 1], ts=1)

        for after in (0, 1, 5):
            with pytest.raises(type(error)) as caught:
                table.upsert(Source(error, after))
            assert caught.value is error
            assert content(table) == {"k0": "v0"}
            assert all(i.is_completed for i in table.timeline())


def test_a_stream_of_which_a_batch_is_refused_can_only_be_aborted(make_table, monkeypatch):
    monkeypatch.setattr(rows_in, "GATHERED_ROWS", 2)
    table = make_table()
    wrong = rows([4, 5, 6], ts=1).set_column(2, "ts", pa.array(["1", "x", "3"]))
    with table.begin() as txn:
        with pytest.raises(Invalid, match=r"'ts', row 1, of type string.*begins with row 4 of the stream"):
            txn.write(iter([rows(range(4), ts=1), wrong]))
        for call in (txn.commit, lambda: txn.write(rows([9], ts=1))):
            with pytest.raises(Invalid, match="abort"):
                call()
    assert content(table) == {}


def test_a_stream_that_is_refused_at_its_first_batch_does_not_spoil_the_transaction(make_table):
    table = make_table()
    with table.begin() as txn:
        txn.write(rows([1], ts=1))
        with pytest.raises(Invalid, match="'ts'"):
            txn.write(iter([rows([2], ts=1).drop_columns(["ts"])]))
        with pytest.raises(Invalid, match="a polars LazyFrame"):
            txn.write(pl.LazyFrame({"id": ["a"]}))
        txn.write(rows([3], ts=1))
        assert txn.commit().rows == 2
    assert set(content(table)) == {"k1", "k3"}


def test_a_source_cannot_use_the_transaction_that_reads_it(make_table):
    table = make_table()
    with table.begin() as txn:

        def source() -> Iterator[pa.Table]:
            yield rows([1], ts=1)
            txn.commit()
            yield rows([2], ts=1)

        with pytest.raises(Invalid, match=r"write\(\) of this transaction is running"):
            txn.write(source())
    assert content(table) == {}


@pytest.mark.disk("the page writes to a folder")
def test_the_page_of_rows_says_what_happens(tmp_path, capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "rows.md").read_text(encoding="utf-8")
    steps = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec("".join(steps), {"folder": str(tmp_path)})
    said = [line.partition("# ")[2] for code in steps for line in code.splitlines() if "print(" in line]
    assert capsys.readouterr().out.splitlines() == said


# -- refusals ------------------------------------------------------------------------------------------


async def _batches():
    yield rows([1], ts=1)


REFUSED = {
    "lazy frame": (pl.LazyFrame({"id": ["a"]}), "LazyFrame.*frame.collect()"),
    "async generator": (_batches(), "async_generator.*event loop"),
    "values": ([1, 2], "item 0 .* a int, expected"),
    "dict of another kind": ([{1: "a"}], "row 0 has the key 1"),
    "empty dict": ([{}], "row 0 has no column"),
    "texts and numbers": (
        [{"id": "a", "ts": 1}, {"id": "b", "ts": 2}, {"id": "c", "ts": "3"}],
        r"column 'ts', row 2: '3' \(str\)",
    ),
    "stream of values": (pa.chunked_array([[1, 2]]), "ChunkedArray"),
    "array of values": (Array(pa.array([1, 2])), "no columns"),  # type: ignore[arg-type]
    "numbers as names": (pd.DataFrame([[1, 2]]), "column 0: names of columns are texts"),
    "objects": (pd.DataFrame({"id": [object()]}), "pandas frame cannot"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_holds_no_rows_is_refused_with_a_way_out(name, make_table):
    given, words = REFUSED[name]
    table = make_table()
    with pytest.raises(Invalid, match=words) as caught:
        table.upsert(given)
    assert "\n" not in str(caught.value)
    assert str(table.path) in str(caught.value)
    assert table.timeline() == []


def test_a_value_that_does_not_fit_is_told_by_column_and_row(make_table):
    table = make_table()
    good = [{"id": f"k{i}", "city": "a", "ts": i, "value": "v"} for i in range(1000)]
    for wrong, words in (
        ({"ts": 0.5}, "column 'ts' of type double .* cannot hold .first in row 700"),
        ({"id": None}, "'id'.* row 700"),
        ({"ts": None}, "'ts' is null .* row 700"),
    ):
        bad = [{**row, **(wrong if number == 700 else {})} for number, row in enumerate(good)]
        with pytest.raises(Invalid, match=words):
            table.upsert(bad)
        with pytest.raises(Invalid, match=words):
            table.upsert(pl.DataFrame(bad, infer_schema_length=None))
    texts = pl.DataFrame(good).with_columns(pl.col("ts").cast(pl.String))
    texts[321, "ts"] = "many"
    with pytest.raises(Invalid, match=r"column 'ts', row 321, of type large_string does not fit .* int64"):
        table.upsert(texts)
