"""The whole interop matrix, or a part of it, and the tables of its last results in docs/interop.md.

    python -m tests.interop.matrix --all               every cell; goes on where it was stopped
    python -m tests.interop.matrix --all --fresh       from the beginning
    python -m tests.interop.matrix --all --store s3a   every cell of a store: local, s3a or hdfs
    python -m tests.interop.matrix --pairs             of each store a pairwise cover of its cells
    python -m tests.interop.matrix --only "s3a, hive-style, deletes"   cells whose name contains the text
    python -m tests.interop.matrix --page --store s3a  the table of what was run so far

After every table its results are appended to build/interop-matrix.jsonl. When the last cell of
`--all` or `--pairs` has its result, the tables of its stores are written into docs/interop.md, and
results of stores whose cells are all done are forgotten.
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

from java_hudi import ROOT
from matrix_cells import (
    CHECK_TEXTS,
    CHECKS,
    HDFS,
    LOCAL,
    S3A,
    STORES,
    ZOOKEEPER,
    Cell,
    Kind,
    all_cells,
    all_kinds,
    missing_in_hudi,
    pairwise_cover,
)
from matrix_checks import Result, run_kind, zookeeper_options
from matrix_stores import Places, missing_here

from tests.servers.zookeeper import ZooKeeperServer

STATE = ROOT / "build" / "interop-matrix.jsonl"
PAGE = ROOT / "docs" / "interop.md"
TITLES = {LOCAL: "On a local disk", S3A: "On S3 (MinIO, `s3a://`)", HDFS: "On HDFS"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what was asked for; 1 if a cell differs, 2 if a store is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--all", action="store_true", help="every cell, resumed where it was stopped")
    which.add_argument("--pairs", action="store_true", help="a pairwise cover of each store, resumed")
    which.add_argument("--only", metavar="TEXT", help="cells whose name contains the text")
    which.add_argument("--page", action="store_true", help="write the tables of what was run so far")
    parser.add_argument("--store", action="append", choices=STORES, help="cells of this store; default: all")
    parser.add_argument("--fresh", action="store_true", help="forget the results of a stopped run")
    chosen = parser.parse_args(arguments)
    stores = chosen.store or list(STORES)
    cells = [cell for cell in all_cells(stores) if chosen.only is None or chosen.only in str(cell)]
    if not cells:
        parser.error(f"no cell is called {chosen.only!r}; one is {all_cells()[0]}")
    if chosen.page:
        return write_pages(stores)
    for store in {cell.kind.store for cell in cells}:
        if reason := missing_here(store):
            print(f"{store}: {reason}; or leave it out by --store", file=sys.stderr)
            return 2
    if chosen.only is not None:
        return int(sum(bool(result.problem) for result in recorded(cells)) > 0)
    if chosen.fresh:
        STATE.unlink(missing_ok=True)
    if chosen.pairs:
        cells = [cell for store in stores for cell in pairwise_cover(all_cells([store]))]
    known = _loaded()
    todo = [cell for cell in cells if cell not in known]
    print(f"{len(cells)} cells, {len(cells) - len(todo)} of them done before", flush=True)
    for _ in recorded(todo):
        pass
    return write_pages(stores)


def write_pages(stores: Sequence[str]) -> int:
    """The tables of these stores; 1 if a cell of theirs differs."""
    failed = 0
    for store in stores:
        results = {cell: record for cell, record in _loaded().items() if cell.kind.store == store}
        if results:
            write_page(store, results)
            failed += sum(bool(result.problem) for result, _ in results.values())
            _forget_if_whole(store)
    print(f"{failed} cells differ; the tables are in {PAGE.relative_to(ROOT)}")
    return int(bool(failed))


def run(cells: Iterable[Cell]) -> Iterator[Result]:
    """Results of cells, table by table, by one Java worker for each way to reach tables, one ZooKeeper."""
    checks: dict[Kind, list[str]] = {}
    for cell in cells:
        checks.setdefault(cell.kind, []).append(cell.check)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interop-matrix-"))
        places = stack.enter_context(Places(Path(folder)))
        zookeeper = None
        if any(ZOOKEEPER in wanted for wanted in checks.values()):
            zookeeper = zookeeper_options(stack.enter_context(ZooKeeperServer()).connect_string)
        for kind, wanted in checks.items():
            yield from run_kind(places.fresh(kind.store), kind, wanted, zookeeper)


def recorded(cells: Sequence[Cell]) -> Iterator[Result]:
    """Runs cells, tells and keeps their results."""
    STATE.parent.mkdir(exist_ok=True)
    with STATE.open("a", encoding="utf-8") as file:
        for result in run(cells):
            file.write(json.dumps({"revision": _revision(), **asdict(_told(result))}) + "\n")
            file.flush()
            yield result


Results = Mapping[Cell, tuple[Result, str]]
"""Of each cell its result, and the revision of the code that gave it."""


def _loaded() -> dict[Cell, tuple[Result, str]]:
    found = {}
    for line in STATE.read_text(encoding="utf-8").splitlines() if STATE.exists() else ():
        record = json.loads(line)
        revision = record.pop("revision")
        result = Result(**{**record, "kind": Kind(**record["kind"])})
        found[Cell(result.kind, result.check)] = result, revision
    return found


def _forget_if_whole(store: str) -> None:
    """What is done is done; what is not whole may be gone on with."""
    if set(all_cells([store])) <= _loaded().keys():
        lines = STATE.read_text(encoding="utf-8").splitlines(keepends=True)
        STATE.write_text(
            "".join(line for line in lines if json.loads(line)["kind"]["store"] != store), encoding="utf-8"
        )


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


def write_page(store: str, results: Results) -> None:
    """Replaces the generated part of docs/interop.md that is about a store."""
    begin, end = f"<!-- matrix {store}: begin -->", f"<!-- matrix {store}: end -->"
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(begin)[0], text.split(end)[1]
    PAGE.write_text(f"{before}{begin}\n{page(store, results)}\n{end}{after}", encoding="utf-8")


def page(store: str, by_cell: Results) -> str:
    """The numbers, the table of a store's cells, the combinations that are no cells."""
    results = [result for result, _ in by_cell.values()]
    revisions = list(dict.fromkeys(revision for _, revision in by_cell.values()))
    failed = [r for r in results if r.problem]
    crossed = sum(r.overlaps or 0 for r in results)
    every = all_cells([store])
    some = f"{len(results)} of {len(every)} cells (empty: not run)"
    whole = "every cell" if len(results) == len(every) else some
    lines = [
        f"## {TITLES[store]}",
        "",
        f"Last run: {dt.datetime.now(dt.UTC):%Y-%m-%d}, revision {', '.join(revisions)}: {whole},"
        f" {len(failed)} of them differ; {sum(r.queries for r in results)} queries"
        f" with {sum(r.rows for r in results)} expected rows, each compared with Java's answer and with"
        f" ours; {crossed} pairs of a Java transaction and one of ours that overlapped in time.",
        "",
        *(f"- *{check}*: {CHECK_TEXTS[check]}" for check in CHECKS),
        "",
        f"| layout | merge | version | log blocks | {' | '.join(CHECKS)} |",
        f"|---|---|---|---|{'---|' * len(CHECKS)}",
    ]
    for kind in dict.fromkeys(cell.kind for cell in every if cell in by_cell):
        named = (kind.layout, kind.merge, str(kind.version), kind.blocks)
        lines.append(f"| {' | '.join((*named, *_cells(kind, by_cell)))} |")
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


def _cells(kind: Kind, results: Results) -> list[str]:
    """Texts of a table's row; empty where a cell was not run."""
    texts = []
    for check in CHECKS:
        if (found := results.get(Cell(kind, check))) is None:
            texts.append("")
            continue
        result, _ = found
        text = "**differs**" if result.problem else f"{result.rows} rows"
        if result.overlaps is not None and not result.problem:
            text += f", {result.overlaps} overlaps"
        texts.append(text)
    return texts


def _revision() -> str:
    shown = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude", "*"], cwd=ROOT, capture_output=True, text=True
    )
    return shown.stdout.strip() or "unknown"


if __name__ == "__main__":
    raise SystemExit(main())
