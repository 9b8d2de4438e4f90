"""Goal: rows come out of the command as people read them, or exactly, as files hold them.

Method: one table with every kind of awkward value; tables are compared as text, files read back with
pyarrow and the csv module.
"""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.cli.main import REFUSED, main
from mainstem.cli.row_output import display_width, write_rows
from tests.golden_tables.tables import unpack

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("price", pa.float64()), ("n", pa.int64()), ("day", pa.date32()),
        ("raw", pa.binary()), ("tags", pa.list_(pa.string())), ("cost", pa.decimal128(6, 2)),
    ]
)  # fmt: skip
ROWS = [
    {"id": "a", "price": 1.5, "n": 7, "day": 0, "raw": b"\x00\xff", "tags": ["x", None], "cost": 12},
    {"id": 'q"uo,te\nd', "price": None, "n": -1234, "day": None, "raw": None, "tags": None, "cost": None},
    {"id": "", "price": float("nan"), "n": None, "day": 1, "raw": b"", "tags": [], "cost": 0},
    {"id": "東京\x1b[2J" + 80 * "l", "price": -0.25, "n": 2**60, "day": 2, "raw": b"", "tags": [], "cost": 1},
]  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows") / "t"
    schema = pa.schema([("key", pa.int32()), *SCHEMA])
    table = mainstem.create_table(
        folder, schema, record_key="key", buckets=1, properties={"hoodie.mainstem.fsync": False}
    )
    rows = [{"key": at, **row} for at, row in enumerate(ROWS)]
    table.upsert(pa.Table.from_pylist(rows, schema))
    return folder


@pytest.fixture
def run(capsys):
    def ran(*arguments: object) -> str:
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out

    return ran


@pytest.fixture
def refused(capsys):
    def ran(*arguments: object) -> str:
        assert main([str(a) for a in arguments]) == REFUSED
        return capsys.readouterr().err

    return ran


def test_a_table_is_aligned_cut_and_counted(run, path: Path) -> None:
    text = run("scan", path, "--columns", "id,n,price", "--limit", "3")
    head, *lines, end = text.splitlines()
    assert head.split() == ["id", "n", "price"]
    assert end == "(3 rows; there are more, --limit 0 shows all)"
    assert [line.split()[-2:] for line in lines] == [["7", "1.5"], ["-1234", "-"], ["-", "nan"]]
    assert len({len(line) for line in [head, *lines]}) == 1  # numbers end in one column
    whole = run("scan", path, "--columns", "id,n").splitlines()
    assert whole[-1] == "(4 rows)"
    long = whole[-2]
    assert "東京[2Jlll" in long and "..." in long and long.isprintable()
    assert {display_width(line) for line in whole[:-1]} == {display_width(long)}
    assert run("scan", path, "--columns", "id", "--where", "n = 7").endswith("(1 row)\n")


def test_csv_holds_every_value(run, path: Path) -> None:
    names = "id,price,n,day,raw,tags,cost"
    found = list(csv.DictReader(io.StringIO(run("scan", path, "--columns", names, "--format", "csv"))))
    assert [row["id"] for row in found] == [row["id"] for row in ROWS]
    first, second, third, _ = found
    assert (first["day"], first["raw"], first["tags"]) == ("1970-01-01", "00ff", '["x", null]')
    assert (first["cost"], first["price"]) == ("12.00", "1.5")
    assert second["price"] == second["day"] == second["tags"] == ""
    assert (third["raw"], third["tags"]) == ("", "[]")
    raw = run("scan", path, "--columns", "id,price", "--format", "csv", "--where", "n is null")
    assert raw.splitlines()[1:] == ['"",nan']  # an empty text is not a null


def test_json_lines_and_parquet_go_to_new_files_only(run, refused, path: Path, tmp_path: Path) -> None:
    lines, columns = tmp_path / "rows.json", tmp_path / "rows.parquet"
    assert run("scan", path, "--format", "json", "--output", lines) == ""
    assert [json.loads(line)["id"] for line in lines.read_text().splitlines()] == [r["id"] for r in ROWS]
    run("scan", path, "--format", "parquet", "--output", columns, "--limit", "2")
    read = pq.read_table(columns)
    assert read.schema == mainstem.open_table(path).scan().schema
    assert read.column("n").to_pylist() == [7, -1234]
    assert "exists already" in refused("scan", path, "--format", "csv", "--output", lines)
    assert "needs --output" in refused("scan", path, "--format", "parquet")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.json", "rows.parquet"]


def test_a_failed_export_leaves_no_file(path: Path, tmp_path: Path) -> None:
    def batches():
        yield pa.record_batch({"id": ["a"]})
        raise mainstem.Unavailable("gone")

    schema = pa.schema([("id", pa.string())])
    with pytest.raises(mainstem.Unavailable):
        write_rows(batches(), schema, "csv", 0, io.StringIO(), str(tmp_path / "rows.csv"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "keys"),
    [
        (["n >= 0"], [0, 3]),
        (["n>=0", "price < 0"], [3]),
        (["price is null"], [1]),
        (["price IS NOT NULL", "day = 1970-01-02"], [2]),
        (["id = 'a'"], [0]),
        (["id != a", "cost <> 1.00"], [2]),
    ],
)
def test_conditions_choose_rows(run, path: Path, where, keys) -> None:
    given = [part for text in where for part in ("--where", text)]
    text = run("scan", path, "--columns", "key", "--format", "json", *given)
    assert [json.loads(line)["key"] for line in text.splitlines()] == keys


@pytest.mark.parametrize(
    ("where", "text"),
    [("n", "expected COLUMN OP VALUE"), ("m = 1", "no column 'm'"), ("n = many", "does not read as int64")],
)
def test_a_condition_that_cannot_be_read_is_refused(refused, path: Path, where, text) -> None:
    assert text in refused("scan", path, "--where", where)


def test_changes_are_printed_with_deletes_or_as_change_data(run, tmp_path: Path) -> None:
    path = unpack("cdc_mor_op_key_only", tmp_path)
    table = mainstem.open_table(path)
    instants = [i for i in table.timeline() if i.completion]
    after, until = instants[1].completion, instants[2].completion
    window = ("--after", after, "--until", until)
    found = run("changes", path, *window, "--deletes", "--columns", "id,_change_type", "--format", "json")
    assert [json.loads(line) for line in found.splitlines()] == [
        {"id": 2, "_change_type": "delete"},
        {"id": 1, "_change_type": "delete"},
    ]
    data = run("changes", path, *window, "--cdc", "--format", "csv", "--where", "op = d")
    assert len(list(csv.DictReader(io.StringIO(data)))) == 2
    assert run("changes", path, *window, "--count") == "0\n"
    assert run("scan", path, "--as-of-completion", until, "--count") == "17\n"


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_memory_does_not_grow_with_the_rows(form: str) -> None:
    batch = pa.record_batch({"id": [f"k{n:09d}" for n in range(1_000)]})

    class Counted(io.TextIOBase):
        size = 0

        def write(self, text: str) -> int:
            self.size += len(text)
            return len(text)

    def peak(batches: int) -> int:
        out = Counted()
        tracemalloc.start()
        count = write_rows((batch for _ in range(batches)), batch.schema, form, 0, out, None)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert count == 1_000 * batches and out.size > 10_000 * batches
        return found

    assert peak(8) < 1.3 * peak(2) + 100_000
