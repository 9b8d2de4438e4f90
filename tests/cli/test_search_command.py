"""Goal: the command makes, refreshes and asks vector indexes, and prints the nearest rows.

Method: one small table; what is printed is compared with what ``Table.search`` finds.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.cli.main import DONE, REFUSED, USAGE, main


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("search") / "t"
    vectors = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    rows = pa.table(
        {
            "id": [f"k{number}" for number in range(60)],
            "price": np.arange(60.0),
            "near": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 3),
        }
    )
    table = mainstem.create_table(
        folder, rows.schema, record_key="id", buckets=1, properties={"hoodie.mainstem.fsync": False}
    )
    table.upsert(rows)
    return folder


@pytest.fixture
def run(capsys):
    def ran(*arguments: object, code: int = DONE) -> str:
        assert main([str(a) for a in arguments]) == code
        captured = capsys.readouterr()
        return captured.out if code == DONE else captured.err

    return ran


@pytest.mark.supports("Vectors", "search and index: by the command `mainstem`")
def test_an_index_is_made_and_the_nearest_rows_are_printed(path: Path, run) -> None:
    made = run("index", "create", path, "vector", "--columns", "near", "--name", "v", "--set", "engine=flat")
    assert "60 vectors" in made
    assert "v: vector on near, ready" in run("index", "list", path)
    assert "nothing to do" in run("index", "refresh", path, "v")
    options = ("-k", 4, "--metric", "l2", "--where", "price < 30")
    printed = run("search", path, "near", "--vector", "1,-0.5,2", *options, "--columns", "id", "--json")
    found = [json.loads(line) for line in printed.splitlines()]
    table = mainstem.open_table(path)
    wanted = table.search(
        "near", [1, -0.5, 2], 4, metric="l2", filter=pc.field("price") < 30, columns=["id"]
    )
    assert found == wanted.to_pylist()
    assert "(4 rows)" in run("search", path, "near", "--vector", "1,-0.5,2", *options)
    assert "index v, version 1" in run("search", path, "near", "--vector", "1,-0.5,2", "--explain")
    said = run("search", path, "near", "--vector", "1,2,3", "--explain", "--exact", "--json")
    assert json.loads(said)["exact"]


def test_rows_like_another_one_begin_with_it(path: Path, run) -> None:
    printed = run("search", path, "near", "--like", "k7", "-k", 2, "--columns", "id", "--json")
    assert json.loads(printed.splitlines()[0])["id"] == "k7"
    assert "no such record key" in run("search", path, "near", "--like", "k99", code=REFUSED)


def test_what_cannot_be_searched_is_told(path: Path, run) -> None:
    assert "3 values" in run("search", path, "near", "--vector", "1,2", code=REFUSED)
    assert "expected numbers" in run("search", path, "near", "--vector", "1,x", code=REFUSED)
    assert "unknown vector engine" in run(
        "index", "create", path, "vector", "--columns", "near", "--set", "engine=annoy", code=REFUSED
    )
    run("search", path, "near", code=USAGE)
