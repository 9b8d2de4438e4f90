"""Goal: `mainstem services` runs rounds as it was told, says what they did, and fails by exit code.

Method: ``main`` is called with arguments and its output read back; what signals do to real processes is
tested in tests/multiprocess.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli import rounds
from mainstem.cli.main import REFUSED, TRY_AGAIN, USAGE, main
from mainstem.errors import Unavailable
from mainstem.services import compaction
from mainstem.services.service_switches import SERVICES

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
EVERY_2 = ("-o", "hoodie.compact.inline.max.delta.commits=2")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two commits."""
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="n", buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip
    for n in range(2):
        table.upsert(pa.table({"id": ["a"], "n": [n]}, SCHEMA))
    return tmp_path / "t"


@pytest.fixture
def run(capsys):
    def ran(*arguments: object) -> tuple[int, str, str]:
        code = main(["services", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return ran


def test_one_round_tells_of_every_service(run, path: Path) -> None:
    code, out, err = run(path, "--once")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "rollback: nothing to do",
        "log-compact: left out (hoodie.log.compaction.enable=false)",
        "compact: nothing to do",
        "clean: nothing to do",
        "metadata: nothing to do",
        "archive: nothing to do",
        "vectors: nothing to do",
    ]
    code, out, _ = run(path, "--once", "--json", "--only", "compact,clean", *EVERY_2)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0 and [f["service"] for f in found] == ["compact", "clean"]
    assert found[0]["results"][0]["rows"] == 1 and found[1]["results"] == []


@pytest.mark.parametrize(
    "time, seconds", [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1.5h", 5400), ("7", 7)]
)
def test_lengths_of_time_have_units(time: str, seconds: float) -> None:
    assert rounds.seconds(time) == seconds


def test_wrong_arguments_are_refused_before_anything_runs(run, path: Path) -> None:
    assert run(path, "--every", "soon")[0] == USAGE
    assert run(path, "--every", "0")[0] == REFUSED
    assert run(path, "--once", "--every", "1s")[0] == USAGE
    code, _, err = run(path, "--only", "everything")
    assert code == REFUSED and f"there are {', '.join(SERVICES)}" in err
    assert run(path.parent / "nothing")[0] == REFUSED


def test_a_failure_of_a_single_round_is_the_commands_and_of_one_of_many_a_warning(
    run, path: Path, monkeypatch
) -> None:
    def fails(*args: object, **how: object) -> None:
        raise Unavailable("the disk is away")

    monkeypatch.setattr(compaction, "schedule", fails)
    code, out, err = run(path, "--once")
    assert code == TRY_AGAIN and "the disk is away" in err
    assert "compact: failed: the disk is away" in out and "archive: nothing to do" in out

    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: self.set())
    code, out, err = run(path, "--every", "1h")
    assert code == 0
    assert "mainstem: warning: the disk is away" in err and out.startswith("compact: failed")
