"""Goal: each file of a folder is in the table once, whoever takes it and however often it is looked at.

Method: real files and tables; two processes are two calls, one of which is held up at its commit.
"""

from __future__ import annotations

import glob
import io
import json
import os
import socket
import time

import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.catalogs.sync_after_commit import SyncWarning
from mainstem.cli.main import main
from mainstem.errors import Invalid, NotSynchronised, Unavailable
from mainstem.ingestion.ingester import Pace

SCHEMA = "id bigint, city string"


def put(folder, name, rows, form="json"):
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    if form == "json":
        hidden.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    elif form == "csv":
        pv.write_csv(pa.Table.from_pylist(rows), hidden)
    else:
        pq.write_table(pa.Table.from_pylist(rows), hidden)
    hidden.rename(folder / name)


def cities(*numbers, city="a"):
    return [{"id": n, "city": city} for n in numbers]


def take(folder, table, pattern="*", **options):
    given = {"record_key": "id", "buckets": 1, "schema": SCHEMA, "once": True, **options}
    return mainstem.ingest(table, files=f"{folder}/{pattern}", **given)


def content(table):
    found = mainstem.open_table(table).scan(columns=["id", "city"]).to_arrow()
    return dict(zip(found["id"].to_pylist(), found["city"].to_pylist(), strict=True))


@pytest.mark.supports("Writing", "files of a folder, each once")
def test_trouble_that_lasts_for_days_is_met_by_a_try_every_ten_seconds() -> None:
    error = Unavailable("away")
    assert [Pace().pause_s(tries, error) for tries in (1, 2, 7, 5_000)] == [0.2, 0.4, 10.0, 10.0]
    with pytest.raises(Unavailable, match="away"):
        Pace(tries=10).pause_s(11, error)


def test_a_file_that_a_listing_missed_is_not_taken_again(tmp_path, monkeypatch) -> None:
    put(tmp_path / "in", "a.json", cities(1, city="old"))
    assert take(tmp_path / "in", tmp_path / "t") == 1
    listed = glob.glob
    with monkeypatch.context() as patch:
        patch.setattr(glob, "glob", lambda *a, **k: [p for p in listed(*a, **k) if "a.json" not in p])
        put(tmp_path / "in", "b.json", cities(1, city="new"))
        assert take(tmp_path / "in", tmp_path / "t") == 1
    assert take(tmp_path / "in", tmp_path / "t") == 0
    assert content(tmp_path / "t") == {1: "new"}


def test_a_catalog_that_is_away_ends_no_ingestion(tmp_path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        sync = {
            "hoodie.datasource.hive_sync.enable": "true", "hoodie.datasource.hive_sync.table": "t",
            "hoodie.datasource.hive_sync.metastore.uris": f"thrift://127.0.0.1:{nobody.getsockname()[1]}",
        }  # fmt: skip
        for n in (1, 2):
            put(tmp_path / "in", f"{n}.json", cities(n))
            with pytest.warns(SyncWarning, match="next commit tries again"):
                assert take(tmp_path / "in", tmp_path / "t", properties=sync) == 1
        put(tmp_path / "in", "3.json", cities(3))
        strict = {**sync, "hoodie.datasource.hive_sync.ignore_exceptions": "false"}
        with pytest.raises(NotSynchronised):
            take(tmp_path / "in", tmp_path / "t", properties=strict)
    assert take(tmp_path / "in", tmp_path / "t") == 0  # the commit of the third stands
    assert content(tmp_path / "t") == {1: "a", 2: "a", 3: "a"}


def test_files_of_every_kind_are_taken_once(tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    put(folder, "1.json", cities(1, 2))
    put(folder, "2.csv", cities(3, 4), "csv")
    put(folder, "3.parquet", cities(5, 6), "parquet")
    (folder / "_later.json").write_text("not yet")
    assert take(folder, table) == 6
    assert take(folder, table) == 0
    put(folder, "0.jsonl", cities(2, 7, city="b"))
    os.utime(folder / "0.jsonl", (1, 1))  # older than all: it is taken by its name
    assert take(folder, table) == 2
    assert content(table) == {1: "a", 2: "b", 3: "a", 4: "a", 5: "a", 6: "a", 7: "b"}


def test_a_file_that_grew_is_refused_and_one_that_came_back_is_taken_again(tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    put(folder, "1.json", cities(1))
    put(folder, "2.json", cities(2))
    take(folder, table)
    put(folder, "1.json", cities(1, 3))
    with pytest.raises(Invalid, match="taken once"):
        take(folder, table)
    (folder / "1.json").unlink()
    put(folder, "3.json", cities(4))
    assert take(folder, table) == 1  # forgets the one that is gone
    put(folder, "1.json", cities(1, 3))
    assert take(folder, table) == 2
    assert sorted(content(table)) == [1, 2, 3, 4]


def test_a_bad_line_ends_it_or_is_kept_with_file_and_line(tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    put(folder, "1.json", [*cities(1), "", '{"id": ', *cities(2), {"city": "x"}])
    put(folder, "2.parquet", [], "json")
    with pytest.raises(Invalid, match=r"1\.json, line 3: "):
        take(folder, table)
    assert not table.exists()
    assert take(folder, table, on_error="dead-letter") == 2
    assert content(table) == {1: "a", 2: "a"}
    dead = mainstem.open_table(f"{table}_dead_letters").scan().to_arrow().to_pylist()
    found = sorted((row["partition"], row["offset"]) for row in dead)
    assert found == [("1.json", 2), ("1.json", 4), ("2.parquet", -1)]
    assert take(folder, table, on_error="dead-letter") == 0


def test_commits_hold_as_many_files_as_their_bytes_allow(tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    for n in range(4):
        put(folder, f"{n}.json", cities(n))
    told = []
    take(folder, table, bytes=50, on_progress=told.append)
    assert [len(progress.positions) for progress in told] == [2, 2]
    assert sorted(content(table)) == [0, 1, 2, 3] and told[-1].behind == 0


def test_of_two_processes_one_takes_a_file(tmp_path, monkeypatch):
    folder, table = tmp_path / "in", tmp_path / "t"
    put(folder, "1.json", cities(1))
    take(folder, table)
    put(folder, "2.json", cities(2))
    from mainstem.ingestion.target_table import TargetTable

    write, told = TargetTable.write_parts, []

    def late(self, *arguments, **more):
        monkeypatch.setattr(TargetTable, "write_parts", write)
        assert take(folder, table) == 1
        return write(self, *arguments, **more)

    monkeypatch.setattr(TargetTable, "write_parts", late)
    assert take(folder, table, on_progress=told.append) == 0 and not told
    assert content(table) == {1: "a", 2: "a"}


def test_the_command_takes_files_and_tells_what_it_did(tmp_path, capsys):
    put(tmp_path / "in", "1.json", cities(1, 2))
    arguments = ["ingest", str(tmp_path / "t"), "--files", f"{tmp_path}/in/*.json", "--record-key", "id",
                 "--buckets", "1", "--once", "--json"]  # fmt: skip
    assert main(arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["rows"] == 2 and said["behind"] == 0
    assert main([*arguments[:2], "--once"]) == 1
    assert "--kafka, --topic" in capsys.readouterr().err


def test_it_goes_on_until_it_is_told_to_stop(tmp_path):
    folder, table, began = tmp_path / "in", tmp_path / "t", time.monotonic()
    put(folder, "1.json", cities(1))

    def stopping():
        if table.exists() and not (folder / "2.json").exists():
            put(folder, "2.json", cities(2))
        return time.monotonic() > began + 30 or (table.exists() and len(told) == 2)

    told = []
    assert take(folder, table, once=False, every_s=0.1, stopping=stopping, on_progress=told.append) == 2


def test_a_terminal_is_shown_a_bar_of_rows_instead_of_lines(tmp_path, monkeypatch):
    told: list[tuple[str, int, int]] = []

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    put(tmp_path / "in", "a.json", cities(1, 2))
    monkeypatch.setattr("mainstem.cli.ingest.bar_of_terminal", lambda: lambda *step: told.append(step))
    monkeypatch.setattr("sys.stdout", out := Terminal())
    arguments = ["--files", f"{tmp_path}/in/*", "--record-key", "id", "--ordering", "id", "--once"]
    assert main(["ingest", str(tmp_path / "t"), *arguments]) == 0
    assert told[-1][1:] == (2, 2) and out.getvalue() == ""


def test_files_of_one_commit_may_know_different_fields_of_an_object(tmp_path):
    folder, table = tmp_path / "in", tmp_path / "t"
    put(folder, "1.json", [{"id": 1, "city": "a", "at": {"x": 1}}])
    assert take(folder, table) == 1
    put(folder, "2.json", [{"id": 2, "city": "a", "at": {"x": 2, "y": 3}, "new": {"a": 1}}])
    put(folder, "3.json", [{"id": 3, "city": "a", "at": {"x": 4}, "new": {"b": 2}}])
    assert take(folder, table) == 2
    found = mainstem.open_table(table).scan(columns=["id", "at", "new"]).to_arrow().sort_by("id")
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (1, {"x": 1, "y": None}, None),
        (2, {"x": 2, "y": 3}, {"a": 1, "b": None}),
        (3, {"x": 4, "y": None}, {"a": None, "b": 2}),
    ]
