"""Goal: on MinIO that is killed and stopped, behind a network that cuts and loses, nothing is lost or
doubled, and readers see whole commits only; and the checks are able to find what goes wrong there.

Method: ``make chaos-store`` in small: two writers without a lock, services, a reader, some faults of the
pack. Then a writer that breaks a promise, and readings that no committed state gives.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.bucket import Bucket
from tests.chaos.checks import check
from tests.chaos.harness import PYTHON, READERS, Harness
from tests.chaos.python_writer import SPOILED
from tests.chaos.reader import wrong_in
from tests.chaos.rows import as_tuples, rows

SESSION_S = 2.0
pytestmark = [pytest.mark.timeout(600), pytest.mark.nothing_lost, pytest.mark.slow]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []
    with closing(Bucket("none", seed=1)) as bucket:

        def make(**more: object) -> Harness:
            given = {"seed": 1, "session_s": SESSION_S, "writers": PYTHON, "bucket": bucket, **more}
            started.append(Harness(None, tmp_path, **given))
            return started[-1]

        yield make
        for run in started:
            run.close()


def test_a_store_that_fails_in_every_way_loses_and_doubles_nothing(start, record_property) -> None:
    run = start(readers=READERS)
    run.run(30, pause=(0.05, 0.4), least_batches=4)
    score = check(run)
    print("\n" + "\n".join(score.lines()))
    record_property("score", score.lines())
    assert score.wrong == []
    # It did happen, or the test says nothing.
    assert score.faults and score.requests.total() > 20 and score.commits["python"] >= 8


def test_the_checks_find_a_batch_that_was_told_and_not_written_in_a_store(start) -> None:
    run = start(sabotage={"python-0": "lost"}, services=())
    run.run(0, rounds=0, least_batches=SPOILED + 2)
    found = "\n".join(check(run).wrong)
    assert "('python-0', 3, 0) was told as committed and is not on the timeline" in found
    assert re.search(r"mainstem: \d+ rows missing, for instance s0-1", found)


def test_a_reader_finds_what_no_committed_state_shows() -> None:
    whole, size, seen = as_tuples(rows(0, 0, 80)), {"0": 40}, {}
    newest = {row[0]: row for row in whole}
    shown = [max((r for r in whole if r[0] == key), key=lambda r: r[2]) for key in newest]
    assert wrong_in(shown, seen, size) == []
    assert wrong_in(shown + shown[:1], dict(seen), size) == [f"{shown[0][0]} twice"]
    torn = [row for row in shown if row[0] != "s0-3"]
    assert wrong_in(torn, dict(seen), size) == ["s0-3 is gone", "9 of 10 own rows of batch 0 of source 0"]
    older = [(*row[:2], row[2] - 1, *row[3:]) if row[0] == "k0" else row for row in shown]
    assert wrong_in(older, dict(seen), size) == ["k0 went back"]
