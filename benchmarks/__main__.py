"""``python -m benchmarks``: runs every suite, prints one table, writes
``benchmarks/results/latest.*``.

``--full`` measures longer; ``--only SUITE`` picks suites; the exit code is 1 when a target is
missed. Each suite runs in a process of its own, so that one that fails, or a peer that is missing,
costs only its own rows.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import FOLDER, Missing, Row, row
from benchmarks.report import finish, markdown, table

# Java first: others are compared with its figures.
SUITES = (
    "java_peer", "codec", "upsert", "concurrency", "locks", "spark_sink", "read", "updates", "merge",
    "spark_read", "compaction", "version_10", "clustering", "placing", "growth", "services", "archive",
    "hfile", "metadata", "index_reads", "index_build", "index_java", "index_peers", "vectors", "store_reads",
    "store_writes", "store_commits", "flink", "ingest",
)  # fmt: skip
_SUITE_TIMEOUT_S = 2400


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="longer runs and more repeats")
    parser.add_argument("--only", action="append", choices=SUITES, help="a suite; may be repeated")
    parser.add_argument("--suite", choices=SUITES, help=argparse.SUPPRESS)
    parser.add_argument("--json", help=argparse.SUPPRESS)
    return parser.parse_args()


def _run_suite(name: str, reduced: bool) -> list[Row]:
    """In this process; a missing peer becomes one row."""
    try:
        return importlib.import_module(f"benchmarks.{name}").run(reduced)
    except Missing as missing:
        return [row(name, None, "", note=str(missing))]


def _in_own_process(name: str, full: bool) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--suite", name]
        command += ["--json", str(out)] + (["--full"] if full else [])
        try:
            done = subprocess.run(
                command, cwd=FOLDER.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                text=True, timeout=_SUITE_TIMEOUT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return [{**row(name, None, "", note="did not end in time"), "ok": False}]
        if done.returncode != 0 or not out.exists():
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            return [{**row(name, None, "", note=f"failed: {last[:300]}"), "ok": False}]
        return json.loads(out.read_text())


def main() -> int:
    """Run, print, write; 1 when a target is missed or a suite failed."""
    arguments = _arguments()
    if arguments.suite:
        try:
            rows = _run_suite(arguments.suite, not arguments.full)
        except Exception:
            traceback.print_exc()
            return 1
        Path(arguments.json).write_text(json.dumps(rows))
        return 0
    began = time.monotonic()
    rows: list[Row] = []
    for name in arguments.only or SUITES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        at = time.monotonic()
        rows += [{**r, "suite": name} for r in _in_own_process(name, arguments.full)]
        print(f"{name}: {time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
    rows = finish(rows)
    facts = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "mode": "full" if arguments.full else "reduced",
        "suites": list(arguments.only or SUITES),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - began),
    }
    print(table(rows))
    results = FOLDER / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.json").write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    (results / "latest.md").write_text(markdown(rows, facts))
    missed = [r["work"] for r in rows if r["ok"] is False]
    print(f"{len(missed)} target(s) missed" if missed else "all targets met", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
