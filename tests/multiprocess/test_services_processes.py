"""Goal: processes that run services may be stopped, killed and started in any number, and no writer waits.

Method: real `mainstem services` processes; one stops itself with SIGSTOP right before a storage call in the
middle of a service, while this process goes on committing and takes the service over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.lsm_archive.reader import Archive
from mainstem.storage.local import LocalStorage

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
OPTIONS = {
    "hoodie.mainstem.fsync": "false",
    "hoodie.client.heartbeat.interval_in_ms": "300",
    "hoodie.compact.inline.max.delta.commits": "3",
    "hoodie.log.compaction.blocks.threshold": "3",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
}
# Of processes that must not be taken for dead on a busy machine.
LIVING = {**OPTIONS, "hoodie.client.heartbeat.interval_in_ms": "60000"}
CLAIM_S = 1.5  # after that the claim of a process that shows no sign of life has expired
STOPS = """
import os, re, signal, sys, time
from mainstem.cli.main import main
from mainstem.storage.local import LocalStorage
method, pattern = sys.argv[1:3]
real, stopped = getattr(LocalStorage, method), []
def stopping(self, *paths, **how):
    if not stopped and re.search(pattern, paths[-1]):
        stopped.append(paths)
        print("stopping", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.1)  # this thread may run on for a moment
    return real(self, *paths, **how)
setattr(LocalStorage, method, stopping)
sys.exit(main(sys.argv[3:]))
"""
MIDDLE = {
    "compact": ("link", r"^(?!\.hoodie).*parquet$"),
    "clean": ("delete", r"^(?!\.hoodie)"),
    "archive": ("link", r"history/.*parquet$"),
    "log-compact": ("link", r"^\.(?!hoodie).*\.log\."),
}
RESTORING = ("delete", r"^(?!\.hoodie/)")


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    """Compaction, clean and archive are due."""
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=2,
        properties={"hoodie.mainstem.exclusive": True, **OPTIONS},
    )  # fmt: skip
    commit(made, 0, 4)
    made.compact()
    commit(made, 4, 4)
    return mainstem.open_table(made.path, OPTIONS)


def commit(table: mainstem.Table, first: int, times: int) -> None:
    for ts in range(first, first + times):
        rows = pa.table({"id": [f"k{k}" for k in range(8)], "ts": [ts] * 8}, SCHEMA)
        assert table.upsert(rows).status == "committed"


def content(table: mainstem.Table) -> list[tuple[str, int]]:
    found = mainstem.open_table(table.path).scan(columns=["id", "ts"]).to_arrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def compactions(table: mainstem.Table) -> list[str]:
    """Those on the active timeline and in the archive."""
    names = {i.requested for i in table.timeline() if i.action == "commit" and i.is_completed}
    archive = Archive.load(LocalStorage(table.path))
    return sorted(names | {i.requested for i in archive.instants() if i.action == "commit"})


@contextmanager
def services(
    table: mainstem.Table, *more: str, stops: tuple[str, ...] = (), given: dict[str, str] = OPTIONS
) -> Iterator[subprocess.Popen]:
    with command("services", table.path, *more, stops=stops, given=given) as process:
        yield process


@contextmanager
def command(
    name: str, *more: str, stops: tuple[str, ...] = (), given: dict[str, str] = OPTIONS, first: str = ""
) -> Iterator[subprocess.Popen]:
    options = [part for key, value in given.items() for part in ("-o", f"{key}={value}")]
    start = ["-c", first + STOPS, *stops] if stops else ["-m", "mainstem"]
    process = subprocess.Popen(
        [sys.executable, *start, name, *more, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def taken_over(table: mainstem.Table, service: str) -> object:
    """What a round of ours does once the claim of the stopped process has expired."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        (run,) = table.run_services(service)
        if run.results:
            return run.results[0]
        time.sleep(0.1)
    raise AssertionError(f"nobody could take over {service}")


@pytest.mark.supports("Services", "services in processes of their own (`mainstem services`), several at once")
@pytest.mark.parametrize("service", MIDDLE)
def test_writers_go_on_while_a_services_process_stands_still_and_another_takes_over(table, service):
    with services(table, "--every", "50ms", "--only", service, stops=MIDDLE[service]) as stopped:
        assert stopped.stdout.readline() == "stopping\n"
        os.waitpid(stopped.pid, os.WUNTRACED)
        commit(table, 8, 3)
        assert taken_over(table, service)
        commit(table, 11, 2)
        stopped.send_signal(signal.SIGCONT)
        stopped.send_signal(signal.SIGTERM)
        stopped.communicate(timeout=120)
        assert stopped.returncode == 0
    assert content(table) == [(f"k{k}", 12) for k in range(8)]
    assert all(run.error is None for run in table.run_services(if_due=False))
    assert content(table) == [(f"k{k}", 12) for k in range(8)]


def test_a_services_process_is_killed_in_the_middle_and_another_one_finishes(table):
    with services(table, "--once", stops=MIDDLE["compact"]) as killed:
        assert killed.stdout.readline() == "stopping\n"
        killed.kill()
    time.sleep(CLAIM_S)
    with services(table, "--once") as other:
        said, complaints = other.communicate(timeout=120)
    assert other.returncode == 0, complaints
    assert "compact: compaction" in said and "clean: " in said and "instants archived" in said
    assert content(table) == [(f"k{k}", 7) for k in range(8)]


def test_a_log_compaction_is_killed_in_the_middle_and_another_process_finishes_it(table):
    with services(table, "--once", "--only", "log-compact", stops=MIDDLE["log-compact"]) as killed:
        assert killed.stdout.readline() == "stopping\n"
        killed.kill()
    commit(table, 8, 2)
    time.sleep(CLAIM_S)
    with services(table, "--once", "--only", "log-compact") as other:
        said, complaints = other.communicate(timeout=120)
    assert other.returncode == 0, complaints
    assert "log-compact: log compaction" in said
    assert content(table) == [(f"k{k}", 9) for k in range(8)]
    assert all(run.error is None for run in table.run_services(if_due=False))
    assert content(table) == [(f"k{k}", 9) for k in range(8)]


@pytest.mark.supports("Services", "resize: another number of buckets beside writers")
def test_a_resizer_that_stands_still_in_its_last_round_holds_writers_up_until_it_counts_as_dead(table):
    closed = "from mainstem.services import resizing\nresizing._OPEN_ROUNDS = 0\n"
    files = ("upload", r"^(?!\.hoodie).*parquet$")
    with command("resize", table.path, "--buckets", "5", stops=files, first=closed) as stopped:
        assert stopped.stdout.readline() == "stopping\n"
        os.waitpid(stopped.pid, os.WUNTRACED)
        commit(table, 8, 3)
        assert content(table) == [(f"k{k}", 10) for k in range(8)]
        stopped.send_signal(signal.SIGCONT)
        _, complaints = stopped.communicate(timeout=120)
        assert stopped.returncode != 0 and "rolled" in complaints
    assert content(table) == [(f"k{k}", 10) for k in range(8)]
    with command("resize", table.path, "--buckets", "5", given=LIVING) as other:
        said, complaints = other.communicate(timeout=120)
    assert "2 buckets became 5, 8 rows" in said, complaints
    commit(table, 11, 2)
    assert content(table) == [(f"k{k}", 12) for k in range(8)]
    assert all(run.error is None for run in table.run_services(if_due=False))


@pytest.fixture
def saved(table: mainstem.Table) -> str:
    """The instant of a savepoint, with commits after it."""
    instant = table.savepoint().instant
    commit(table, 8, 3)
    return instant


def test_a_restore_that_stands_still_is_finished_by_another_and_harmless_when_it_wakes_up(table, saved):
    with command("restore", table.path, saved, stops=RESTORING) as stopped:
        assert stopped.stdout.readline() == "stopping\n"
        os.waitpid(stopped.pid, os.WUNTRACED)
        with pytest.raises(mainstem.Unsupported, match=r"a restore \(\d+\) is pending"):
            commit(table, 11, 1)
        assert content(table) == [(f"k{k}", 7) for k in range(8)]
        time.sleep(CLAIM_S)
        assert table.restore().completion is not None
        commit(table, 20, 2)
        stopped.send_signal(signal.SIGCONT)
        stopped.communicate(timeout=120)
    assert content(table) == [(f"k{k}", 21) for k in range(8)]
    assert all(run.error is None for run in table.run_services(if_due=False))
    commit(table, 22, 1)
    assert content(table) == [(f"k{k}", 22) for k in range(8)]


def test_a_restore_that_is_killed_is_finished_by_the_next_process(table, saved):
    with command("restore", table.path, saved, stops=RESTORING) as killed:
        assert killed.stdout.readline() == "stopping\n"
        killed.kill()
    with pytest.raises(mainstem.Unsupported, match=r"a restore \(\d+\) is pending"):
        commit(table, 11, 1)
    time.sleep(CLAIM_S)
    with command("restore", table.path) as other:
        _, complaints = other.communicate(timeout=120)
    assert other.returncode == 0, complaints
    assert content(table) == [(f"k{k}", 7) for k in range(8)]
    commit(table, 11, 2)
    assert content(table) == [(f"k{k}", 12) for k in range(8)]


def test_two_services_processes_beside_a_writer_execute_each_plan_once(table):
    table = mainstem.open_table(table.path, LIVING)
    with (
        services(table, "--every", "20ms", given=LIVING) as one,
        services(table, "--every", "20ms", given=LIVING) as two,
    ):
        said: list[str] = []
        first, end = 8, time.monotonic() + 150
        while len(compactions(table)) < 5:  # as fast as the two can follow
            commit(table, first, 2)
            first += 2
            time.sleep(0.05)
            assert time.monotonic() < end, "the processes do nothing"
        for process in (one, two):
            process.send_signal(signal.SIGTERM)
        for process in (one, two):
            out, complaints = process.communicate(timeout=120)
            # One may not have listened yet.
            assert process.returncode in (0, -signal.SIGTERM), complaints
            said += out.splitlines()
            assert "warning" not in complaints
    compacted = [line.split()[2] for line in said if line.startswith("compact: compaction")]
    assert len(compacted) == len(set(compacted)) >= 4
    assert content(table) == [(f"k{k}", first - 1) for k in range(8)]
