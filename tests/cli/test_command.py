"""Goal: the command ``mainstem`` shows what a table is, as text and as JSON, and fails in one line.

Method: ``main`` is called with arguments and its output read back; once the real command runs in a
process of its own (``python -m mainstem``).
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import INTERRUPTED, REFUSED, TRY_AGAIN, USAGE, main, plain

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two commits, three rows, partitioned by city."""
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="n", partition_by="city", buckets=2,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip
    table.upsert(pa.table({"id": ["a", "b"], "city": ["rome", "oslo"], "n": [1, 2]}, schema=SCHEMA))
    table.upsert(pa.table({"id": ["a", "c"], "city": ["rome", "rome"], "n": [3, 4]}, schema=SCHEMA))
    return tmp_path / "t"


@pytest.fixture
def run(capsys):
    """Run the command; returns exit code, standard output, standard error."""

    def ran(*arguments: object) -> tuple[int, str, str]:
        code = main([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ran


def _objects(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def test_timeline_lists_instants_with_both_times(run, path: Path) -> None:
    code, out, err = run("timeline", path, "--json")
    assert (code, err) == (0, "")
    found = _objects(out)
    assert [set(i) for i in found] == [{"requested", "completion", "action", "state"}] * 2
    assert [(i["action"], i["state"]) for i in found] == [("deltacommit", "completed")] * 2
    shown = mainstem.open_table(path).timeline()
    assert [(i["requested"], i["completion"]) for i in found] == [
        (i.requested, i.completion) for i in shown
    ]
    code, out, _ = run("timeline", path)
    assert code == 0
    assert out.splitlines()[0].split() == ["requested", "completion", "action", "state"]
    assert shown[0].requested in out and shown[1].completion in out


def test_timeline_can_show_only_what_is_pending(run, path: Path) -> None:
    assert run("timeline", path, "--pending", "--json")[1] == ""
    with mainstem.open_table(path).begin() as txn:
        found = _objects(run("timeline", path, "--pending", "--json")[1])
        assert [(i["requested"], i["completion"], i["state"]) for i in found] == [
            (txn.instant, None, "inflight")
        ]


def test_slices_show_every_log_file_of_every_file_group(run, path: Path) -> None:
    found = _objects(run("slices", path, "--json")[1])
    on_disk = {p.name for p in path.glob("*/.*.log.*")}
    assert {name for s in found for name in s["log_files"]} == on_disk
    assert {s["partition"] for s in found} == {"rome", "oslo"}
    assert all(s["latest"] and not s["pending"] and s["base_file"] is None for s in found)
    text = run("slices", path, "--latest")[1]
    assert len(text.splitlines()) == len(found) + 1


def test_scan_prints_rows_of_a_snapshot(run, path: Path) -> None:
    code, out, _ = run("scan", path, "--json", "--columns", "id,n")
    assert code == 0
    assert sorted(_objects(out), key=lambda r: r["id"]) == [
        {"id": "a", "n": 3}, {"id": "b", "n": 2}, {"id": "c", "n": 4},
    ]  # fmt: skip
    text = run("scan", path, "--columns", "n,id")[1].splitlines()
    assert text[0].split() == ["n", "id"] and len(text) == 5 and text[4] == "(3 rows)"
    assert "_hoodie_record_key" in run("scan", path)[1].splitlines()[0]


def test_scan_limits_counts_and_travels_in_time(run, path: Path) -> None:
    assert len(_objects(run("scan", path, "--json", "--limit", 1)[1])) == 1
    assert len(_objects(run("scan", path, "--json", "--limit", 0)[1])) == 3
    assert run("scan", path, "--count")[1] == "3\n"
    assert _objects(run("scan", path, "--count", "--json")[1]) == [{"rows": 3}]
    first = mainstem.open_table(path).timeline()[0].requested
    rows = _objects(run("scan", path, "--json", "--columns", "id,n", "--as-of", first)[1])
    assert sorted((r["id"], r["n"]) for r in rows) == [("a", 1), ("b", 2)]
    assert run("scan", path, "--count", "--mode", "read_optimized")[1] == "0\n"


def test_more_rows_than_the_sample_for_the_widths_are_all_printed(run, path: Path) -> None:
    count = 2_500
    ids = [f"k{i}" for i in range(count)]
    batch = pa.table({"id": ids, "city": ["bern"] * count, "n": range(count)}, schema=SCHEMA)
    mainstem.open_table(path).upsert(batch)
    lines = run("scan", path, "--limit", 0, "--columns", "id")[1].splitlines()
    assert set(lines[1:-1]) == {*ids, "a", "b", "c"} and len(lines) == count + 5


def test_values_that_json_does_not_know_are_written_as_text(run, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
            ("price", pa.decimal128(6, 2)), ("raw", pa.binary()), ("ratio", pa.float64()),
            ("tags", pa.list_(pa.string())),
        ]
    )  # fmt: skip
    table = mainstem.create_table(tmp_path / "x", schema, record_key="id", buckets=1)
    table.upsert(
        pa.Table.from_pylist(
            [{"id": "a", "at": 0, "day": 1, "price": 12, "raw": b"\x00\xff",
              "ratio": float("nan"), "tags": ["x", None]}],
            schema,
        )
    )  # fmt: skip
    row = _objects(run("scan", tmp_path / "x", "--json")[1])[0]
    assert row["at"].startswith("1970-01-01T00:00:00") and row["day"] == "1970-01-02"
    assert (row["price"], row["raw"], row["ratio"]) == ("12.00", "00ff", "nan")
    assert row["tags"] == ["x", None]


def test_properties_are_printed_as_they_stand(run, path: Path) -> None:
    found = _objects(run("properties", path, "--json")[1])
    assert found == [dict(sorted(mainstem.open_table(path).properties.items()))]
    assert "hoodie.table.version=9" in run("properties", path)[1].splitlines()


@pytest.mark.filterwarnings("default::mainstem.MixedWritersWarning")
def test_rollback_removes_what_a_dead_writer_left_and_says_so(run, path: Path) -> None:
    dead = "20260101000000000"
    timeline = path / ".hoodie" / "timeline"
    (timeline / f"{dead}.deltacommit.requested").touch()
    (timeline / f"{dead}.deltacommit.inflight").write_bytes(b"Obj\x01" + b"foreign " * 50)
    orphan = path / "rome" / f".00000000-0000-0000-0000-000000000000-0_{dead}.log.1_0-1-0"
    orphan.write_bytes(b"half a block")
    _, out, err = run("rollback", path, "--json")
    assert err.startswith("mainstem: warning: ") and err.count("\n") == 1  # a foreign inflight file
    found = _objects(out)
    assert [(r["instant"], r["action"], r["files"]) for r in found] == [(dead, "deltacommit", 1)]
    assert not orphan.exists()
    assert run("rollback", path)[1] == "nothing to roll back\n"
    assert run("scan", path, "--count")[1] == "3\n"


def test_compact_merges_the_logs_and_says_what_it_did(run, path: Path) -> None:
    assert run("compact", path, "--if-due")[1] == "nothing to compact\n"
    text = run("compact", path)[1]
    assert re.fullmatch(r"compaction \d{17}: \d+ log files merged into \d+ base files, 3 rows\n", text)
    assert run("compact", path, "--json")[1] == ""
    assert run("scan", path, "--mode", "read_optimized", "--count")[1] == "3\n"


def test_clean_removes_old_slices_and_says_what_it_did(run, path: Path) -> None:
    table = mainstem.open_table(path)
    for _ in range(2):
        table.upsert(table.scan(columns=[f.name for f in table.schema]).to_arrow())
        table.compact()
    kept = ("-o", "hoodie.clean.commits.retained=1")
    assert run("clean", path)[1] == "nothing to clean\n"
    (found,) = _objects(run("clean", path, "--json", *kept)[1])
    assert found["files"] == found["deleted"] > 0 and found["requested"] < found["completion"]
    table.upsert(table.scan(columns=[f.name for f in table.schema]).to_arrow())
    text = run("clean", path, "--if-due", *kept)[1]
    assert re.fullmatch(r"clean \d{17}: \d+ files removed, everything since \d{17} is kept\n", text)
    assert run("clean", path, "--if-due", *kept)[1] == "nothing to clean\n"
    assert run("scan", path, "--count")[1] == "3\n"


@pytest.mark.parametrize("arguments", [("rollback", "--instant", ""), ("savepoint", "--delete", "")])
def test_an_empty_instant_is_no_way_to_name_none(run, path: Path, arguments) -> None:
    command, *rest = arguments
    code, out, err = run(command, path, *rest)
    assert (code, out) == (REFUSED, "") and "names no instant" in err
    assert not mainstem.open_table(path).savepoints()


def _answers(monkeypatch: pytest.MonkeyPatch, text: str, *, terminal: bool) -> None:
    given = io.StringIO(text)
    monkeypatch.setattr(given, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stdin", given)


def test_partitions_are_deleted_and_the_table_is_truncated(run, path: Path) -> None:
    code, out, err = run("delete-partition", path, "rome", "--yes")
    assert (code, err) == (0, "") and re.fullmatch(r"rome is empty since \d{17}\n", out)
    assert [row["id"] for row in _objects(run("scan", path, "--json", "--columns", "id")[1])] == ["b"]
    found = _objects(run("truncate", path, "--yes", "--json")[1])
    assert [one["status"] for one in found] == ["committed"] and found[0]["files"] > 0
    assert run("scan", path, "--count")[1] == "0\n"
    code, out, err = run("delete-partition", path, "rome", "paris", "--yes")
    assert code == REFUSED and "'paris'" in err


@pytest.mark.parametrize("command", [("truncate",), ("delete-partition", "rome", "oslo")])
def test_rows_are_deleted_only_if_somebody_says_yes(run, path: Path, monkeypatch, command) -> None:
    name, *rest = command
    _answers(monkeypatch, "y\n", terminal=False)
    code, out, err = run(name, path, *rest)
    assert (code, out) == (REFUSED, "") and "--yes" in err
    for answer in ("n\n", "\n", ""):
        _answers(monkeypatch, answer, terminal=True)
        code, out, err = run(name, path, *rest)
        assert code == REFUSED and str(path) in err and "nothing was changed" in err
    assert run("scan", path, "--count")[1] == "3\n"
    _answers(monkeypatch, "y\n", terminal=True)
    assert run(name, path, *rest)[0] == 0
    assert run("scan", path, "--count")[1] == "0\n"


def test_rollback_leaves_a_living_writer_alone(run, path: Path) -> None:
    with mainstem.open_table(path).begin() as txn:
        assert run("rollback", path, "--json")[1] == ""
        txn.write(pa.table({"id": ["z"], "city": ["rome"], "n": [9]}, schema=SCHEMA))
        assert txn.commit().status == "committed"


def test_an_error_is_one_line_with_what_where_and_what_to_do(run, tmp_path: Path) -> None:
    code, out, err = run("timeline", tmp_path / "nowhere")
    assert (code, out) == (REFUSED, "")
    assert err.startswith("mainstem: error: no Hudi table at ") and err.count("\n") == 1
    assert str(tmp_path / "nowhere") in err and "create_table" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "needle"),
    [
        (("scan", "--columns", "nope"), "nope"),
        (("scan", "--as-of", "soon"), "as_of"),
        (("rollback", "-o", "hoodie.mainstem.fsync=maybe"), "maybe"),
        (("rollback", "-o", "hoodie.mainstem.nonsense=1"), "hoodie.mainstem.nonsense"),
    ],
)
def test_what_is_refused_is_named(run, path: Path, arguments, needle) -> None:
    code, _, err = run(arguments[0], path, *arguments[1:])
    assert code == REFUSED and needle in err and err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (), ("dance",), ("scan",), ("scan", "x", "--limit", "many"),
        ("scan", "x", "--mode", "fast"),
        ("scan", "x", "-o", "novalue"), ("scan", "x", "--columns", ","),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_a_usage_error(run, arguments) -> None:
    code, out, err = run(*arguments)
    assert code == USAGE and out == "" and "usage:" in err


def test_storage_that_is_away_is_worth_another_try(run, path: Path) -> None:
    (path / ".hoodie" / "lock").touch()
    options = [
        "-o", "hoodie.write.lock.wait_time_ms=10",
        "-o", "hoodie.write.lock.client.num_retries=1",
        "-o", "hoodie.write.lock.client.wait_time_ms_between_retry=10",
    ]  # fmt: skip
    timeline = path / ".hoodie" / "timeline"
    (timeline / "20260101000000000.deltacommit.requested").touch()
    code, _, err = run("rollback", path, *options)
    assert code == TRY_AGAIN and "lock" in err and err.count("\n") == 1


def test_an_interrupted_command_ends_without_a_traceback(run, path: Path, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mainstem, "open_table", interrupted)
    code, _, err = run("timeline", path)
    assert (code, err) == (INTERRUPTED, "mainstem: error: interrupted\n")


def test_control_characters_cannot_reach_the_terminal(run, path: Path) -> None:
    nasty = "x\x1b[2J\x1b]0;pwned\x07\u202eabc\u2028\x9b31m\ny\x7f"
    batch = pa.table({"id": [nasty], "city": ["rome"], "n": [1]}, schema=SCHEMA)
    mainstem.open_table(path).upsert(batch)
    out = run("scan", path, "--columns", "id")[1]
    assert all(c.isprintable() for line in out.splitlines() for c in line)
    assert "x[2J]0;pwnedabc31m y" in out and len(out.splitlines()) == 6
    found = _objects(run("scan", path, "--columns", "id", "--json")[1])
    assert nasty in {r["id"] for r in found}, "JSON keeps the value"
    assert run("scan", path, "--columns", "id", "--json")[1].replace("\n", "").isprintable()
    code, _, err = run("timeline", "/nowhere/\x1b[31mred\u202e")
    assert code == REFUSED and err[:-1].isprintable() and "[31mred" in err


def test_plain_keeps_ordinary_text_of_any_language() -> None:
    assert plain("Zürich 東京 🛫") == "Zürich 東京 🛫"
    assert plain("a\tb\r\nc") == "a b  c"


def test_the_module_runs_as_a_command_and_survives_a_closed_pipe(path: Path) -> None:
    command = [sys.executable, "-m", "mainstem", "scan", str(path), "--count"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
    with subprocess.Popen(
        [sys.executable, "-m", "mainstem", "scan", str(path), "--limit", "0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as piped:  # fmt: skip
        piped.stdout.close()
        assert piped.stderr.read() == "" and piped.wait(60) == 0
    help_text = subprocess.run(
        [sys.executable, "-m", "mainstem", "--help"], capture_output=True, text=True, timeout=60
    )
    assert help_text.returncode == 0
    for name in ("timeline", "slices", "scan", "changes", "properties", "rollback", "compact"):
        assert name in help_text.stdout
