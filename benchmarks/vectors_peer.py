"""What runs in processes of its own for ``benchmarks.vectors``: LanceDB's searches, and writers of either.

Writers do what a job does that embeds texts again: upserts of some hundred or some thousand rows, with keys
from all of a table that holds many times as many. Each writer opens the table like any process. LanceDB
syncs no file (seen with strace), so ours is measured without syncs, too. Neither compacts.

Our index is built in one, too, so that its memory can be told.

Argument: a JSON object ("what": search, index, make or write; "folder", "system", "keys"; of writers "rows",
"fsync", "number", "seconds").
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import FOLDER, together

DIMENSION, WRITERS = 128, 4
# Different batches of one writer, made before the race and written in turn.
_BATCHES = 16
_LANCE_EFFORTS = ((0, 0), (50, 5), (100, 10), (200, 10), (400, 20))


def batch(vectors: np.ndarray, ts: int, keys: np.ndarray | None = None) -> pa.Table:
    """Rows of these vectors, keys by their numbers."""
    numbers = np.arange(len(vectors)) if keys is None else keys
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    made = [[f"k{number:08d}" for number in numbers.tolist()], np.full(len(vectors), ts, np.int64), lists]
    return pa.table(made, names=["id", "ts", "v"])


def race(python: str, spec: dict, rows: int, fsync: bool, seconds: float) -> tuple[float, int]:
    """Four writers upsert batches into a copy of the table that a process made by this spec: rows per second
    of all together, and how many commits were refused."""
    made = Path(spec["folder"])
    copy = shutil.copytree(made, made.parent / "copy")
    try:
        work = {"what": "write", "folder": str(copy), "rows": rows, "fsync": fsync, "seconds": seconds}
        specs = [{**spec, **work, "number": number} for number in range(WRITERS)]
        patience = seconds + 120
        told = together.run("vectors_peer", specs, name=spec["system"], patience_s=patience, python=python)
        return sum(one["rows"] for one in told) / seconds, sum(one["conflicts"] for one in told)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def alone(python: str, spec: dict) -> None:
    """One piece of work in a process of its own."""
    command = [python, "-W", "ignore", "-m", "benchmarks.vectors_peer", json.dumps(spec)]
    subprocess.run(command, cwd=FOLDER.parent, check=True, stdout=sys.stderr)


def _make(system: str, folder: Path, keys: int) -> None:
    first = batch(np.random.default_rng(1).random((keys, DIMENSION), dtype=np.float32), 0)
    if system == "lance":
        import lancedb

        lancedb.connect(folder).create_table("t", first).create_scalar_index("id")
        return
    import mainstem

    table = mainstem.create_table(
        folder / "t", first.schema, record_key="id", ordering="ts", buckets=4,
        vectors={"v": f"VECTOR({DIMENSION})"},
    )  # fmt: skip
    table.bulk_insert(first)
    if system == "indexed":
        table.create_index("vector", ["v"], options={"metric": "l2"})


def _index(folder: Path) -> None:
    """Seconds that the first version takes, and bytes of memory beside those of before."""
    import usearch.index  # noqa: F401

    import mainstem
    import mainstem.vectors.search.searching

    table = mainstem.open_table(folder / "t")
    table.scan(filter=pc.field("id") == "k00000000", columns=["id"]).to_arrow()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, began = _peak(), time.perf_counter()
    table.create_index("vector", ["v"], options={"metric": "l2", "clusters": "4"})
    np.save(folder / "built.npy", np.array([time.perf_counter() - began, _peak() - before]))


def _peak() -> int:
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def _write(spec: dict, folder: Path) -> dict[str, int]:
    number, size, present = spec["number"], spec["rows"], spec["keys"]
    chance = np.random.default_rng(number)

    def made(rows: int) -> pa.Table:
        keys = chance.choice(present, rows, replace=False)
        return batch(chance.random((rows, DIMENSION), dtype=np.float32), 0, keys)

    batches = [made(size) for _ in range(_BATCHES)]
    writer = _BEGUN[spec["system"]](folder, spec["fsync"])
    writer(made(50))  # imports and first touches are not part of the race
    rows = conflicts = turn = 0
    end = together.wait_for_the_start() + spec["seconds"]
    while time.monotonic() < end:
        turn += 1
        times = pa.array(np.full(size, turn * WRITERS + number, np.int64))
        if not writer(batches[turn % _BATCHES].set_column(1, "ts", times)):
            conflicts += 1
        elif time.monotonic() <= end:
            rows += size
    return {"rows": rows, "conflicts": conflicts}


def _own_writer(folder: Path, fsync: bool):
    import mainstem

    table = mainstem.open_table(folder / "t", {"hoodie.mainstem.fsync": fsync})

    def write(made: pa.Table) -> bool:
        table.upsert(made)
        return True

    return write


def _lance_writer(folder: Path, fsync: bool):
    import lancedb

    table = lancedb.connect(folder).open_table("t")

    def write(made: pa.Table) -> bool:
        try:
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(made)
        except Exception:  # what it raises for a conflict differs from release to release
            table.checkout_latest()
            return False
        return True

    return write


_BEGUN = {"plain": _own_writer, "indexed": _own_writer, "lance": _lance_writer}


def _search(folder: Path) -> None:
    import lancedb

    stored, queries, exact = (np.load(folder / f"{name}.npy") for name in ("stored", "queries", "exact"))
    table = lancedb.connect(folder / "lance").create_table("t", batch(stored, 0))
    table.create_index(metric="l2", vector_column_name="v", index_type="IVF_HNSW_SQ")
    settings: dict[str, int] = {}

    def near(asked) -> pa.Table:
        found = table.search(asked, vector_column_name="v").select(["id", "_distance"]).limit(10)
        for name, value in settings.items():
            found = getattr(found, name)(value)
        return found.to_arrow()

    for ef, refine in _LANCE_EFFORTS:  # its defaults first
        settings = {} if not ef else {"ef": ef, "refine_factor": refine}
        answer = near(list(queries))
        order = np.argsort(answer["query_index"].to_numpy(), kind="stable")
        found = np.array([int(key[1:]) for key in answer["id"].to_pylist()])[order].reshape(-1, 10)
        recall = np.mean([len(set(one) & set(true)) / 10 for one, true in zip(found, exact, strict=True)])
        if recall >= 0.95:
            break
    began = time.perf_counter()
    for query in queries[:200]:
        near(query)
    single = 200 / (time.perf_counter() - began)
    began = time.perf_counter()
    near(list(queries))
    many = len(queries) / (time.perf_counter() - began)
    np.save(folder / "told.npy", np.array([single, many, recall]))


def main(spec: dict) -> None:
    folder = Path(spec["folder"])
    if spec["what"] == "search":
        _search(folder)
    elif spec["what"] == "index":
        _index(folder)
    elif spec["what"] == "make":
        _make(spec["system"], folder, spec["keys"])
    else:
        print(json.dumps(_write(spec, folder)), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
