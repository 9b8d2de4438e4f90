"""What a commit to a table with a metadata table costs on average, its own services included.

Medians (``metadata_commits``) leave services out, which run beside one commit in ten or more. Here a process
of its own upserts batches of 100 rows into one table, by default options and synced, and counts what each
commit took and the processor time of all of it, the thread of services to its end included. Kinds of tables
take turns, since other work on the machine makes processor time dearer; of each kind the cheapest run counts.
What no engine can do without is made bare (``bare_metadata``): the processor time of encoding the same rows
into the same files, with services off, is added to that of a table without metadata. Where the rows come from
(statistics, places of keys) and the metadata table's own services cost nothing there.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa

import mainstem
from benchmarks import FOLDER, Row, asked, bare_metadata, row, work_folder
from mainstem.options.services import ENABLED
from mainstem.services.beside_commits import FRUITLESS_MS

ROWS, BUCKETS, WARM = 100, 8, 5
#: kinds of metadata tables, and the share of speed that a commit is to keep
KINDS = {"none": 0.0, "files": 0.9, "files and column statistics": 0.75, "three indexes": 0.5}
_BARE = "bare: "


def run(reduced: bool) -> list[Row]:
    """Rows of the suite ``metadata`` about means."""
    commits, repeats = (60, 1) if reduced else (200, 3)
    kinds = [*KINDS, *(_BARE + kind for kind in KINDS)]
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    folder = work_folder("metadata_means")
    try:
        for turn in range(repeats):
            for number, kind in enumerate(kinds):
                path = folder / f"{turn}-{number}"
                said = subprocess.run(
                    [sys.executable, "-m", __name__, str(path), kind, str(commits)], cwd=FOLDER.parent,
                    check=True, stdout=subprocess.PIPE, text=True,
                )  # fmt: skip
                runs[kind].append(json.loads(said.stdout.splitlines()[-1]))
    finally:
        shutil.rmtree(folder)
    best = {kind: {name: min(one[name] for one in some) for name in some[0]} for kind, some in runs.items()}
    found, plain = [], best["none"]
    for kind, least in KINDS.items():
        if not least:
            continue
        ours = best[kind]
        bare = plain["processor"] + best[_BARE + kind]["processor"] - best[_BARE + "none"]["processor"]
        reach = plain["processor"] / bare
        found.append(
            row(
                f"upserts of {ROWS} rows per second of processor time on average, metadata table with {kind}",
                1000 / ours["processor"], "commits/s", against="no metadata table",
                baseline=1000 / plain["processor"], target=asked(least, reach),
                note=f"{ours['processor']:.1f} ms a commit with all services, {plain['processor']:.1f} ms"
                f" without, bound {reach:.2f}x: {bare:.1f} ms without and the same files made bare;"
                f" by the clock {ours['mean']:.1f} ms on average, {ours['median']:.1f} ms at the median,"
                f" without {plain['mean']:.1f} and {plain['median']:.1f}",
            )
        )  # fmt: skip
    return found


def measured(path: Path, kind: str, commits: int) -> dict[str, float]:
    """Milliseconds a commit: ``processor`` time, ``mean`` and ``median`` by the clock."""
    bare = kind.removeprefix(_BARE)
    services = {ENABLED: str(bare == kind).lower()}
    made(path, bare)
    table = mainstem.open_table(path, services)
    batches = [rows(number) for number in range(commits + WARM)]
    for batch in batches[:WARM]:
        table.upsert(batch)
    _services_ended()
    time.sleep(FRUITLESS_MS / 1000)  # so long a first look that found nothing to do keeps services away
    if bare not in (kind, "none"):
        pattern = bare_metadata.Pattern.of_newest(path, encodes=True)
        made(path.with_name(f"{path.name}-bare"), "none")
        table, give = bare_metadata.opened(path.with_name(f"{path.name}-bare"), services)
        give(pattern)
        table.upsert(batches[0])
    taken, began = [], time.process_time()
    for batch in batches[WARM:]:
        before = time.perf_counter()
        table.upsert(batch)
        taken.append(1000 * (time.perf_counter() - before))
    _services_ended()
    processor = 1000 * (time.process_time() - began) / commits
    return {"processor": processor, "mean": statistics.mean(taken), "median": statistics.median(taken)}


def _services_ended() -> None:
    for thread in threading.enumerate():
        if thread.name == "mainstem-services":
            thread.join()


def made(path: Path, kind: str) -> mainstem.Table:
    """A table with one of ``KINDS``."""
    table = mainstem.create_table(
        path, rows(0).schema, record_key="id", ordering="ts", buckets=BUCKETS,
        properties={"hoodie.metadata.enable": kind != "none"},
    )  # fmt: skip
    if kind not in ("none", "files"):
        table.create_index("column_stats")
    if kind == "three indexes":
        table.create_index("record_index")
        table.create_index("secondary_index", ["text"])
    return table


def rows(turn: int) -> pa.Table:
    """The batch number ``turn``: new keys."""
    ids = range(turn * ROWS, (turn + 1) * ROWS)
    columns = {"id": [f"key-{i:012d}" for i in ids], "ts": [turn] * ROWS}
    columns |= {"amount": [i / 7 for i in ids], "text": [f"some text of row {i}" for i in ids]}
    return pa.table(columns)


if __name__ == "__main__":
    print(json.dumps(measured(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
