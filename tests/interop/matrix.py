"""The whole interop matrix, or a part of it, and the table of its last result in docs/interop.md.

    python -m tests.interop.matrix --all               every cell; goes on where it was stopped
    python -m tests.interop.matrix --all --fresh       from the beginning
    python -m tests.interop.matrix --only "hive-style, deletes"     cells whose name contains the text

After every table its results are appended to build/interop-matrix.jsonl. When the last cell of
`--all` has its result, docs/interop.md is written and the file removed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from java_hudi import QUICK_JVM, ROOT, JavaHudi
from matrix_cells import (
    CHECK_TEXTS,
    CHECKS,
    ZOOKEEPER,
    Cell,
    Kind,
    all_cells,
    all_kinds,
    missing_in_hudi,
)
from matrix_checks import Result, run_kind, zookeeper_options

from tests.servers.zookeeper import ZooKeeperServer

STATE = ROOT / "build" / "interop-matrix.jsonl"
PAGE = ROOT / "docs" / "interop.md"
BEGIN, END = "<!-- matrix: begin -->", "<!-- matrix: end -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked for; 1 if a cell differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="every cell, resumed where it was stopped")
    which.add_argument("--only", metavar="TEXT", help="cells whose name contains the text")
    parser.add_argument("--fresh", action="store_true", help="forget the results of a stopped run")
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        cells = [cell for cell in all_cells() if chosen.only in str(cell)]
        if not cells:
            parser.error(f"no cell is called {chosen.only!r}; one is {all_cells()[0]}")
        return int(sum(bool(_told(result).problem) for result in run(cells)) > 0)
    if chosen.fresh:
        STATE.unlink(missing_ok=True)
    results = finish()
    write_page(results, _revisions())
    STATE.unlink()
    failed = [result for result in results if result.problem]
    print(f"{len(results)} cells, {len(failed)} of them differ; the table is in {PAGE.relative_to(ROOT)}")
    return int(bool(failed))


def run(cells: Iterable[Cell]) -> Iterator[Result]:
    """Results of cells, table by table, by one Java worker and at most one ZooKeeper."""
    checks: dict[Kind, list[str]] = {}
    for cell in cells:
        checks.setdefault(cell.kind, []).append(cell.check)
    with ExitStack() as stack:
        java = stack.enter_context(JavaHudi(memory="1g", jvm=QUICK_JVM))
        zookeeper = None
        if any(ZOOKEEPER in wanted for wanted in checks.values()):
            zookeeper = zookeeper_options(stack.enter_context(ZooKeeperServer()).connect_string)
        for kind, wanted in checks.items():
            with tempfile.TemporaryDirectory(prefix="interop-matrix-") as folder:
                yield from run_kind(java, kind, wanted, Path(folder), zookeeper)


def finish() -> list[Result]:
    """Runs the cells that have no result yet; gives the results of all, in the matrix's order."""
    STATE.parent.mkdir(exist_ok=True)
    known = {Cell(r.kind, r.check): r for r in _loaded()}
    todo = [cell for cell in all_cells() if cell not in known]
    print(f"{len(all_cells())} cells, {len(known)} of them done before", flush=True)
    if todo:
        with STATE.open("a", encoding="utf-8") as file:
            for result in run(todo):
                known[Cell(result.kind, result.check)] = _told(result)
                file.write(json.dumps({"revision": _revision(), **asdict(result)}) + "\n")
                file.flush()
    return [known[cell] for cell in all_cells()]


def _loaded() -> Iterator[Result]:
    if STATE.exists():
        for line in STATE.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            del record["revision"]
            yield Result(**{**record, "kind": Kind(**record["kind"])})


def _revisions() -> list[str]:
    """Of the results so far; more than one where the code changed while a run was stopped."""
    lines = STATE.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)["revision"] for line in lines))


def _told(result: Result) -> Result:
    crossed = "" if result.overlaps is None else f", {result.overlaps} overlapping pairs"
    state = f"DIFFERS\n{result.problem}" if result.problem else "equal"
    print(
        f"{Cell(result.kind, result.check)}: {result.rows} rows in {result.queries} queries"
        f" ({result.base_rows} base, {result.log_rows} log{crossed}), {result.seconds} s: {state}",
        flush=True,
    )
    return result


# ---------------------------------------------------------------- the page


def write_page(results: Sequence[Result], revisions: Sequence[str]) -> None:
    """Replaces the generated part of docs/interop.md."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{page(results, revisions)}\n{END}{after}", encoding="utf-8")


def page(results: Sequence[Result], revisions: Sequence[str]) -> str:
    """The numbers, the table of all cells, the combinations that are no cells."""
    by_cell = {Cell(r.kind, r.check): r for r in results}
    failed = [r for r in results if r.problem]
    crossed = sum(r.overlaps or 0 for r in results)
    lines = [
        f"Last run of the whole matrix: {dt.datetime.now(dt.UTC):%Y-%m-%d}, revision {', '.join(revisions)}:"
        f" {len(results)} cells, {len(failed)} of them differ; {sum(r.queries for r in results)} queries"
        f" with {sum(r.rows for r in results)} expected rows, each compared with Java's answer and with"
        f" ours; {crossed} pairs of a Java transaction and one of ours that overlapped in time.",
        "",
        *(f"- *{check}*: {CHECK_TEXTS[check]}" for check in CHECKS),
        "",
        f"| layout | merge | version | log blocks | {' | '.join(CHECKS)} |",
        f"|---|---|---|---|{'---|' * len(CHECKS)}",
    ]
    for kind in all_kinds():
        if not missing_in_hudi(kind):
            texts = _cells(kind, by_cell)
            named = (kind.layout, kind.merge, str(kind.version), kind.blocks)
            lines.append(f"| {' | '.join((*named, *texts))} |")
    for merge, version, reason in _missing():
        none = ["" for _ in CHECKS[1:]]
        lines.append(f"| every | {merge} | {version} | both | {' | '.join([f'no cells: {reason}', *none])} |")
    if failed:
        lines += ["", "What differs:", ""]
        lines += [f"- {Cell(r.kind, r.check)}: {r.problem.splitlines()[0]}" for r in failed]
    return "\n".join(lines)


def _missing() -> list[tuple[str, int, str]]:
    """Merge kinds and versions that do not go together in Hudi, with the reason."""
    found = {(kind.merge, kind.version, missing_in_hudi(kind)) for kind in all_kinds()}
    return sorted((merge, version, reason) for merge, version, reason in found if reason)


def _cells(kind: Kind, results: Mapping[Cell, Result]) -> list[str]:
    texts = []
    for check in CHECKS:
        result = results[Cell(kind, check)]
        text = "**differs**" if result.problem else f"{result.rows} rows"
        if result.overlaps is not None and not result.problem:
            text += f", {result.overlaps} overlaps"
        texts.append(text)
    return texts


def _revision() -> str:
    shown = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return shown.stdout.strip() or "unknown"


if __name__ == "__main__":
    raise SystemExit(main())
