"""Goal: no micro-batch is lost or doubled, whatever happens to the driver.

Method: real driver processes (with their JVM) are killed with SIGKILL between our commit and
Spark's, or run twice on one checkpoint at the same time; then the table's instants and rows are
counted. One driver has a stream of every way of writing: all of them are at that point when it is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
import mainstem
from tests.spark.conftest import ROOT, until
from tests.spark.driver import ROWS
from tests.spark.test_sink import _guards, _orphans

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


REPLAYED = {
    "write_stream": ["already_committed"],
    "source": ["saved", "saved"],
    "write_batch": ["already_committed", "committed"],
}


def _start(**task: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(ROOT / "tests/spark/driver.py"), json.dumps(task)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip


def _events(driver: subprocess.Popen[str], *, killed: bool = False) -> list[dict]:
    out, err = driver.communicate(timeout=600)
    events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    assert killed or (events and events[-1].get("ended")), f"{events}\n{err[-3000:]}"
    return events


@dataclass
class Story:
    """What a driver with a stream per way did until it was killed, and the one that followed it.

    ``noted``: ways whose last batch Spark had noted when the driver died; ``committed``: the guards of each
    way's instants at that moment.
    """

    folder: Path
    status: int
    before: list[dict]
    noted: set[str]
    committed: dict[str, list[list]]
    after: list[dict]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("killed")
    task = {"folder": str(folder), "ways": list(REPLAYED)}
    driver = _start(**task, kill_after={way: [1, 0] for way in REPLAYED})
    before = _events(driver, killed=True)
    noted = {way for way in REPLAYED if (folder / way / "c/commits/1").exists()}
    committed = {way: _guards(folder / way / "t") for way in REPLAYED}
    after = _events(_start(**task, stop_after=2))
    return Story(folder, driver.returncode, before, noted, committed, after)


def _check_rows(table: Path, writes: int) -> None:
    """Every batch up to the newest committed one is there, whole, in one instant per write."""
    guards = [tuple(g) for g in _guards(table)]
    doubled = [guard for guard, count in Counter(guards).items() if count > 1]
    assert not doubled, f"committed twice: {doubled}"
    batches = max(batch for batch, _ in guards) + 1
    whole = [b for b in range(batches) if all((b, n) in guards for n in range(writes))]
    assert len(whole) >= batches - 1, guards  # the last may have been stopped between two writes
    keys = set(mainstem.open_table(table).scan(columns=["id"]).to_arrow()["id"].to_pylist())
    for batch, number in guards:
        first = batch * ROWS + number * 1_000_000
        assert set(range(first, first + ROWS)) <= keys, (batch, number)
    assert len(keys) == len(guards) * ROWS
    assert not _orphans(table)


@pytest.mark.parametrize("way", REPLAYED)
def test_a_driver_killed_between_our_commit_and_sparks_replays_without_loss_or_doubles(
    story: Story, way: str
) -> None:
    assert story.status == -9
    before, after = ([e for e in events if e.get("way") == way] for events in (story.before, story.after))
    assert (before[-1]["batch"], before[-1]["write"]) == (1, 0) and way not in story.noted

    assert after[-1]["ended"] and after[-1]["error"] is None
    assert [e["status"] for e in after if e.get("batch") == 1] == REPLAYED[way]
    table = story.folder / way / "t"
    assert _guards(table)[: len(story.committed[way])] == story.committed[way]
    _check_rows(table, 1 if way == "write_stream" else 2)


@pytest.mark.parametrize("way", ["write_batch"])
def test_two_live_drivers_on_one_checkpoint_commit_every_write_once(tmp_path: Path, way: str) -> None:
    meet = tmp_path / "meet"
    meet.mkdir()
    task = {"folder": str(tmp_path), "ways": [way], "meet": str(meet)}
    drivers = [_start(**task)]
    # The second one finds batch 0 planned and not committed, and replays it beside the first.
    until(lambda: any(meet.iterdir()) or drivers[0].poll() is not None, "the first driver")
    drivers.append(_start(**task))
    events = [_events(driver) for driver in drivers]
    statuses = Counter(e["status"] for found in events for e in found if e.get("batch") == 0)
    assert len(list(meet.iterdir())) == 2, "the drivers never met in batch 0"
    # One of the two made each of the batch's writes, the other found it made.
    assert statuses["committed"] == 2, events
    assert any(found[-1]["error"] for found in events), "Spark let two drivers live side by side"
    _check_rows(tmp_path / way / "t", 2)
