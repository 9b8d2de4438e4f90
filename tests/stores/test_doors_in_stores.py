"""Goal: the command line, DuckDB and Polars work with a table that lives in a bucket.

Method: MinIO; one table with base and log files, created and tended by ``mainstem`` processes' own code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow.compute as pc
import pytest

from mainstem.cli.main import main
from tests.servers.object_stores import Minio, StoreServer
from tests.stores.table_life import batch, content, create, open_there


@pytest.fixture(scope="module")
def server() -> Iterator[StoreServer]:
    with Minio() as running:
        running.make_bucket("bucket")
        table = create(running, "bucket", "t")
        table.upsert(batch(range(20), 1))
        table.compact()
        table.upsert(batch(range(15, 30), 2))
        yield running


def said(capsys: pytest.CaptureFixture[str], server: StoreServer, *arguments: str) -> list[dict]:
    options = [part for key, value in server.options().items() for part in ("-o", f"{key}={value}")]
    assert main([*arguments, *options]) == 0, capsys.readouterr().err
    out = capsys.readouterr()
    assert server.options()["fs.s3a.secret.key"] not in out.out + out.err
    return [json.loads(line) for line in out.out.splitlines() if line.startswith("{")]


@pytest.mark.supports("Stores", "S3: command line")
def test_the_command_line_reads_and_tends_it(server: StoreServer, capsys) -> None:
    url = "s3://bucket/t"
    assert len(said(capsys, server, "scan", "--json", url)) == 30
    before = len(said(capsys, server, "timeline", "--json", url))
    for command in ("compact", "clean", "rollback", "services"):
        more = ("--once",) if command == "services" else ()
        said(capsys, server, command, url, *more)
    assert len(said(capsys, server, "timeline", "--json", url)) > before
    assert said(capsys, server, "slices", "--json", url)
    assert len(content(open_there(server, "bucket", "t"))) == 30


@pytest.mark.supports("Stores", "S3: DuckDB, Polars and Arrow (read)")
def test_duckdb_asks_its_dataset(server: StoreServer) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.register("rows", open_there(server, "bucket", "t").dataset())
    query = "SELECT ts, count(*) FROM rows WHERE id <> 'k3' GROUP BY ts ORDER BY ts"
    found = connection.execute(query).fetchall()
    assert found == [(1, 14), (2, 15)]


def test_polars_asks_its_dataset(server: StoreServer) -> None:
    polars = pytest.importorskip("polars")
    rows = polars.scan_pyarrow_dataset(open_there(server, "bucket", "t").dataset())
    assert rows.filter(polars.col("ts") == 2).select("id").collect().height == 15


def test_arrow_filters_its_dataset(server: StoreServer) -> None:
    found = open_there(server, "bucket", "t").dataset().to_table(filter=pc.field("id") == "k17")
    assert found["ts"].to_pylist() == [2]
