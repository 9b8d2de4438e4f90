"""Goal: ``table.doctor()`` and ``mainstem doctor`` name what is wrong with a table, and nothing else.

Method: one thing is broken at a time, as users break it, and looked for by its name; tables that Java wrote
have no findings but those that their names tell. Old tables are seen with a clock that is ahead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from bad_input.common import edit_properties, golden

import mainstem
from mainstem.cli.main import main

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
HOUR_MS = 3_600_000
Made = Callable[..., mainstem.Table]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a table with three commits."""

    def make(**options: object) -> mainstem.Table:
        table = mainstem.create_table(
            tmp_path / "t", SCHEMA, record_key="id", ordering="n", buckets=2,
            properties={"hoodie.mainstem.fsync": False, **options},
        )  # fmt: skip
        for number in range(3):
            table.upsert({"id": ["a", "b", "c"], "n": [number] * 3})
        return table

    return make


def later(table: mainstem.Table, **options: object) -> mainstem.Table:
    """The same, opened an hour later."""
    return mainstem.open_table(table.path, {"hoodie.mainstem.clock.offset_ms": HOUR_MS, **options})


def found(table: mainstem.Table, *, notes: bool = False, fix: bool = False) -> dict[str, list[str]]:
    """Name of each finding -> severity, text, evidence and command of each."""
    named: dict[str, list[str]] = {}
    for one in table.doctor(fix=fix):
        if notes or one.severity != "note":
            named.setdefault(f"{one.severity}: {one.check}", []).append(str(one))
    return named


def files(table: mainstem.Table) -> dict[Path, tuple[bytes, int]]:
    """Content and time of every file."""
    there = (path for path in Path(table.path).rglob("*") if path.is_file())
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in there}


def log_files(table: mainstem.Table) -> list[Path]:
    return sorted(Path(table.path).glob(".*.log.*"))


def test_a_table_in_order_has_no_findings_and_is_not_touched(made: Made) -> None:
    table = made()
    before = files(table)
    assert found(later(table)) == {}
    assert files(table) == before


@pytest.mark.supports("Services", "what is wrong with a table (doctor)")
def test_a_write_whose_process_died_is_told_and_rolled_back(made: Made) -> None:
    table = made()
    script = (
        "import os, sys, mainstem\n"
        "one = mainstem.open_table(sys.argv[1]).begin('upsert')\n"
        "one.write({'id': ['z'], 'n': [9]})\n"
        "print(one.instant, flush=True)\n"
        "os._exit(1)"
    )
    ran = subprocess.run([sys.executable, "-c", script, table.path], capture_output=True, text=True)
    died = ran.stdout.strip()
    assert found(table) == {}, "its heartbeat is young"
    (told,) = found(later(table))["warning: unfinished write"]
    assert died in told and f"do: mainstem rollback {table.path}" in told
    # The store tells a time that rollbacks go by.
    os.utime(Path(table.path, ".hoodie/.heartbeat", died), (1, 1))
    assert found(later(table), fix=True) == {}
    assert [i.requested for i in table.timeline() if not i.is_completed] == []


def test_a_plan_that_nobody_executes_is_told_and_executed(made: Made) -> None:
    table = made()
    planned = table.schedule_compaction()
    assert found(table) == {}, "who executes it may be about to begin"
    (told,) = found(later(table))["warning: plan that nobody executes"]
    assert str(planned) in told and f"do: mainstem compact {table.path}" in told
    assert found(later(table), fix=True) == {}
    assert all(one.base_file for one in table.file_slices() if one.latest)


def test_a_file_that_a_commit_needs_and_that_is_gone_is_an_error(made: Made) -> None:
    table = made()
    lost = log_files(table)[0]
    lost.unlink()
    (told,) = found(table)["error: lost file"]
    assert lost.name in told


def test_a_file_that_nothing_names_is_told(made: Made) -> None:
    table = made()
    there = log_files(table)[0]
    requested = table.timeline()[0].requested
    left = there.with_name(there.name.replace(requested, f"{int(requested) + 1}"))
    left.write_bytes(there.read_bytes())
    (told,) = found(table)["warning: file that nothing names"]
    assert left.name in told and f"bytes {left.stat().st_size}" in told


def test_options_that_contradict_each_other_are_an_error(made: Made) -> None:
    table = made()
    edit_properties(Path(table.path), hoodie__keep__min__commits="5", hoodie__keep__max__commits="4")
    (told,) = found(table)["error: options"]
    assert "hoodie.keep.max.commits" in told


def test_a_lock_that_is_not_the_writers_lock_is_told(made: Made) -> None:
    table = made()
    Path(table.path, ".hoodie/.mainstem/lock-identity").write_text("zookeeper:zk1/locks/t")
    (told,) = found(table)["warning: lock"]
    assert "zookeeper:zk1/locks/t" in told and "filesystem:" in told


def test_an_exclusive_table_that_java_wrote_is_told(tmp_path: Path) -> None:
    path = golden("basic_mor", tmp_path)
    assert found(mainstem.open_table(path)) == {}
    edit_properties(path, hoodie__mainstem__exclusive="true")
    (told,) = found(mainstem.open_table(path))["warning: exclusive table with other engines"]
    assert "another engine" in told


def test_a_writer_whose_clock_is_ahead_is_named(made: Made) -> None:
    table = made()
    named = {"hoodie.mainstem.clock.offset_ms": 30_000, "hoodie.mainstem.writer.name": "late-one"}
    ahead = mainstem.open_table(table.path, named)
    for number in range(3):
        ahead.upsert({"id": ["a"], "n": [10 + number]})
    told = found(table)
    assert "30 s" in told["warning: instant in the future"][0]
    assert [("late-one" in one) for one in told["warning: clock"]] == [True]


def test_a_damaged_timeline_is_told_and_the_rest_is_looked_at(made: Made) -> None:
    table = made()
    done = max(Path(table.path, ".hoodie/timeline").glob("*_*.deltacommit"))
    done.write_bytes(done.read_bytes()[:40])
    edit_properties(Path(table.path), hoodie__keep__min__commits="50")
    told = found(table)
    assert any(done.name in one for one in told["error: files"])
    assert "error: options" in told


def test_what_is_due_is_a_note_until_it_is_ten_times_due(made: Made) -> None:
    table = made(**{"hoodie.compact.inline.max.delta.commits": 2})
    told = found(table, notes=True)["note: compaction due"]
    assert f"do: mainstem services {table.path} --once" in told[0]
    for number in range(18):
        table.upsert({"id": ["a"], "n": [number]})
    assert "warning: compaction due" in found(table)


# Of every kind of trouble one, and tables in which nothing is wrong though much is going on.
JAVA = {
    "all_types": [], "archive_lsm": [], "clean_mor_mdt": [], "flink_nbcc2": [], "bucket_consistent": [],
    "nbcc_two_writers_v8.crossed": [], "savepoint_restore.restored": [], "v10_lsm_tree_event": [],
    "async_index.inflight": ["warning: plan that nobody executes"],
    "clustering_mor.scheduled": ["warning: plan that nobody executes"],
    "nbcc_two_writers.pending": ["warning: plan that nobody executes"],
    "corrupt_tail_cut10": ["error: lost file"],
    "corrupt_zero_log": ["warning: file that nothing names"],
    "orphan_resurrected": ["warning: file that nothing names"],
    "mdt_all.secondary": ["warning: index out of use"],
}  # fmt: skip


@pytest.mark.parametrize("name", JAVA)
def test_tables_of_java_have_the_findings_that_they_are_made_for(name: str, tmp_path: Path) -> None:
    assert list(found(mainstem.open_table(golden(name, tmp_path)))) == JAVA[name]


def test_the_command_tells_findings_as_text_and_as_json(
    made: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    table = made()
    assert main(["doctor", table.path]) == 0
    out = capsys.readouterr().out
    assert "note: crossing write" in out and out.endswith("no findings, 4 notes\n")
    log_files(table)[0].unlink()
    assert main(["doctor", "--json", "--quiet", table.path]) == 1
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert set(told) == {"severity", "check", "text", "evidence", "command", "fixable"}
    assert (told["severity"], told["check"]) == ("error", "lost file")
