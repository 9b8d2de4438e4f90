"""Goal: a run of all checks passes over a failure once only, tells it, and never one that may be a loss.

Method: `.ci/run` with a `make` of ours that notes failures as `--outcomes` does, and that option itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAKE = """#!/usr/bin/env bash
echo "$@" >>"$CALLS"
notes=${!#}; notes=${notes#ARGS=--outcomes }
case "$2" in
test | ui | engines | versions | stores | interop) mkdir -p "$notes"; touch "$notes/ended-1" ;;
esac
case "$2" in
stores) touch "$notes/ended-"{2,3,4} ;;
test) touch "$notes/ended-"{2,3,4,5,6}; eval "$FAILS" ;;
again) [ "$(cat "${notes#ARGS=@}")" != broken ] ;;
chaos) [ -z "${CHAOS:-}" ] ;;
lint) [ -z "${LINT:-}" ] ;;
docs) [ -z "${DOCS:-}" ] ;;
esac
"""
PARTS = ["lint", "docs", "test", "ui", "engines", "versions", "stores", "interop", "chaos"]
ONE = 'echo one >>"$notes/again"; exit 2'


def run(tmp_path: Path, fails: str, **more: str) -> tuple[bool, str, list[str]]:
    """Whether all checks passed, what was said, and what `make` was asked for."""
    make, calls = tmp_path / "make", tmp_path / "calls"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {
        **os.environ, **more, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(calls), "FAILS": fails,
    }  # fmt: skip
    done = subprocess.run([ROOT / ".ci/run"], capture_output=True, text=True, env=environment, timeout=120)
    asked = [line.split()[1] for line in calls.read_text().splitlines()]
    return done.returncode == 0, done.stdout, [part for part in asked if part != "servers"]  # built meanwhile


def test_what_fails_once_and_passes_alone_is_told_at_the_end(tmp_path):
    passed, said, calls = run(tmp_path, 'echo one >>"$notes/again"; echo two >>"$notes/again"; exit 2')
    assert passed and calls == [*PARTS[:3], "again", "again", *PARTS[3:]]
    assert "== make test: FAILED ONCE, runs again alone:  one" in said
    told = [f"== FAILED ONCE, PASSED ALONE: test: {name}" for name in ("one", "two")]
    assert said.splitlines()[-3:-1] == told


@pytest.mark.parametrize(
    "fails",
    [
        'echo broken >>"$notes/again"; exit 2',
        'for n in 1 2 3 4; do echo $n >>"$notes/again"; done; exit 2',
        'echo loss >>"$notes/final"; ' + ONE,
        'touch "$notes/running-7"; ' + ONE,
        'rm "$notes/ended-2"; ' + ONE,
        'rm "$notes/ended-2"',
        "exit 2",
    ],
    ids=[
        "fails again",
        "too many",
        "a loss",
        "a run that broke down",
        "a run that never began",
        "a run that nobody missed",
        "no test at all",
    ],
)
def test_everything_else_fails_the_run(tmp_path, fails):
    passed, said, calls = run(tmp_path, fails)
    assert not passed and "== failed: test " in said
    assert calls[-4:] == ["versions", "stores", "interop", "chaos"], "all checks are run"


def test_chaos_is_never_repeated(tmp_path):
    passed, said, calls = run(tmp_path, "true", CHAOS="fails")
    assert not passed and "== failed: chaos " in said and calls == PARTS


def test_a_site_with_a_warning_fails_the_run_and_all_checks_are_run(tmp_path):
    passed, said, calls = run(tmp_path, "true", DOCS="fails")
    assert not passed and "== failed: docs " in said and calls == PARTS


def test_untidy_code_and_wrong_types_fail_the_run_and_all_checks_are_run(tmp_path):
    passed, said, calls = run(tmp_path, "true", LINT="fails")
    assert not passed and "== failed: lint " in said and calls == PARTS


def test_failures_are_noted_by_what_another_run_would_say_of_them(tmp_path):
    tests, notes = tmp_path / "tests", tmp_path / "notes"
    (tests / "crash").mkdir(parents=True)
    for name in ("conftest.py", "samples.py", "suite_store.py"):
        (tests / name).write_text((ROOT / "tests" / name).read_text())
    (tests / "test_one.py").write_text("def test_bad(): assert 0\ndef test_good(): pass\n")
    (tests / "crash" / "test_two.py").write_text(
        "import os\ndef test_lost(): assert 0\ndef test_dies(): os._exit(9)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", ROOT / "pyproject.toml", "--outcomes", notes]
    command += ["--rootdir", tmp_path, "-p", "no:cacheprovider", tests]
    alone = [*command, "-n", "1"]
    assert subprocess.run(alone, cwd=tmp_path, capture_output=True, timeout=120).returncode == 1
    noted = {path.name.partition("-")[0]: path.read_text().splitlines() for path in notes.iterdir()}
    assert noted == {
        "again": ["tests/test_one.py::test_bad"],
        "final": ["tests/crash/test_two.py::test_lost", "tests/crash/test_two.py::test_dies"],
        "ended": [],
    }
    empty = [*command, "-k", "absent"]
    assert subprocess.run(empty, cwd=tmp_path, capture_output=True, timeout=120).returncode == 5
    assert [path.name.partition("-")[0] for path in notes.glob("running-*")] == ["running"]
