"""The archive: commits while instants are archived, and look-ups in very large archives.

Commits: two writers in processes of their own on one table, a third process that archives all the time;
the latency of the last tenth of the commits is compared with that of the first. Look-ups: an archive of
millions of instants, whose files the archiver's own writer made, ten of them, as merged levels leave them.
Hudi publishes 3.4 s for loading 10 million completion times (RFC-53, LSM timeline).
"""

from __future__ import annotations

import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import mainstem
from benchmarks import FOLDER, Row, bound, data, row, work_folder
from mainstem.lsm_archive.manifest import encode_manifest
from mainstem.lsm_archive.names import VERSION_FILE, ArchiveFile, data_name, manifest_name
from mainstem.lsm_archive.reader import Archive
from mainstem.lsm_archive.writer import SCHEMA, write_data_file
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage

COMMITS = 10_000  # the first tenth of them is the measure
INSTANTS = (1_000_000, 10_000_000)
WRITERS, FILES, BATCH = 2, 10, 50_000
HUDI_SECONDS = 3.4  # for 10 million
_OPTIONS = {"hoodie.mainstem.exclusive": "true", "hoodie.keep.min.commits": "20"}
_WRITER = """
import json, sys, time
import mainstem
from benchmarks import data
table = mainstem.open_table(sys.argv[1])
batch, taken = data.repeated(10, version=int(sys.argv[2])), []
for _ in range(int(sys.argv[3])):
    began = time.monotonic()
    table.upsert(batch)
    taken.append((time.monotonic(), time.monotonic() - began))
print(json.dumps(taken))
"""
_ARCHIVER = """
import sys, time
import mainstem
table = mainstem.open_table(sys.argv[1], {"hoodie.keep.min.commits": "20"})
while True:
    table.archive(if_due=True)
    time.sleep(0.02)
"""
_LOOK_UP = """
import re, sys
from mainstem.lsm_archive.reader import Archive
from mainstem.storage.local import LocalStorage
for wanted in sys.argv[2:]:
    assert Archive.load(LocalStorage(sys.argv[1])).is_archived(wanted)
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""


def run(reduced: bool) -> list[Row]:
    """Rows of the table; the reduced run has fewer commits and the smaller archive."""
    folder = work_folder("archive")
    try:
        rows = _commits(folder / "commits", COMMITS // 8 if reduced else COMMITS)
        peaks = {}
        for count in INSTANTS[:1] if reduced else INSTANTS:
            rows += _look_ups(made(folder / str(count), count), count)
            peaks[count] = _peak(folder / str(count))
        peaks[10_000] = _peak(made(folder / "small", 10_000))
        grown = (max(peaks.values()) - peaks[10_000]) / 1024
        text = f"memory that look-ups take more with {max(peaks):,} archived instants than with 10,000"
        return [*rows, bound(text, grown, "MiB", most=16)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- commits -----------------------------------------------------------------------------------------


def _commits(path: Path, count: int) -> list[Row]:
    mainstem.create_table(
        path, data.SCHEMA, record_key=data.KEY, ordering=data.ORDERING, buckets=1, properties=_OPTIONS
    )
    archiver = subprocess.Popen([sys.executable, "-c", _ARCHIVER, str(path)], cwd=FOLDER.parent)
    try:
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", _WRITER, str(path), str(number), str(count // WRITERS)],
                cwd=FOLDER.parent,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(WRITERS)
        ]
        taken = sorted(tuple(pair) for w in writers for pair in json.loads(w.communicate()[0]))
    finally:
        archiver.kill()
        archiver.wait()
    part = len(taken) // 10
    # What starting the processes cost is in the first commits of each.
    first = [seconds for _, seconds in taken[2 * WRITERS : part + 2 * WRITERS]]
    last = [seconds for _, seconds in taken[-part:]]
    active = len(mainstem.open_table(path).timeline())
    note = f"{active} instants on the active timeline after {len(taken):,} commits"
    return [
        row(
            f"contended commits while instants are archived, the last {part:,} of {len(taken):,}",
            1 / statistics.median(last), "commits/s of one writer", against=f"the first {part:,}",
            baseline=1 / statistics.median(first), target=1 / 1.2, note=note,
        )
    ]  # fmt: skip


# -- look-ups ----------------------------------------------------------------------------------------


def _times(first: int, count: int) -> pa.Array:
    """Instant times, one a second."""
    moments = np.datetime64("2020-01-01T00:00:00.000") + 1000 * np.arange(first, first + count)
    text = pc.strftime(pa.array(moments, pa.timestamp("ms")), format="%Y%m%d%H%M%S")
    return pc.replace_substring(text, ".", "")


def _batches(first: int, count: int) -> Iterator[pa.Table]:
    for at in range(first, first + count, BATCH):
        number = min(BATCH, first + count - at)
        requested, completed = _times(at, number), _times(at + 2, number)
        blobs = [f"commit metadata of {time} ".encode() * 4 for time in requested.to_pylist()]
        columns = [requested, completed, pa.array(["deltacommit"] * number), pa.array(blobs)]
        columns += [pa.nulls(number, pa.binary()), pa.array([1] * number, pa.int32())]
        yield pa.table(columns, schema=SCHEMA)


def made(base: Path, count: int) -> Path:
    """A folder with an archive of so many instants."""
    storage = LocalStorage(str(base), sync=False)
    files = []
    for number in range(FILES):
        first, each = number * count // FILES, count // FILES
        ends = _times(first, 1)[0].as_py(), _times(first + each - 1, 1)[0].as_py()
        name = data_name(*ends, 5)
        sink = storage.upload(f"{paths.HISTORY}/{name}")
        write_data_file(_batches(first, each), sink)
        sink.close(durable=False)
        files.append(ArchiveFile(name, *ends, 5, sink.size))
    storage.put_new(f"{paths.HISTORY}/{manifest_name(1)}", encode_manifest(files), durable=False)
    storage.put_new(f"{paths.HISTORY}/{VERSION_FILE}", b"1", durable=False)
    return base


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _open(base: Path) -> Archive:
    archive = Archive.load(LocalStorage(str(base)))
    assert archive.manifest.files
    return archive


def _look_ups(base: Path, count: int) -> list[Row]:
    asked = [_times(n, 1)[0].as_py() for n in random.Random(0).sample(range(count), 300)]
    archive = _open(base)
    single = [1000 * _seconds(lambda t=t: archive.completion_time(t)) for t in asked]
    middle = count // 2
    ends = [_times(n, 1)[0].as_py() for n in (middle, middle + count // 100)]
    ranges = [1000 * _seconds(lambda: _open(base).completed(*ends)) for _ in range(5)]
    assert _open(base).completed(*ends).num_rows == count // 100
    whole = min(_seconds(lambda: _open(base).times()) for _ in range(3))
    blob = [1000 * _seconds(lambda t=t: archive.metadata(t)) for t in asked[:20]]
    text = f"archive of {count:,} instants:"
    rows = [
        bound(f"{text} open", 1000 * _seconds(lambda: _open(base)), "ms", most=5),
        bound(f"{text} one completion time, median of 300", statistics.median(single), "ms", most=5),
        row(f"{text} metadata of one instant", statistics.median(blob), "ms"),
        bound(f"{text} a range of 1 %", statistics.median(ranges), "ms", most=50),
    ]
    if count < max(INSTANTS):
        return [*rows, row(f"{text} all times", whole, "s")]
    rows.append(bound(f"{text} all times", whole, "s", most=1.5))
    published = row(
        f"{text} all times per second", count / whole, "1/s", against="Hudi's published figure",
        baseline=count / HUDI_SECONDS,
    )  # fmt: skip
    return [*rows, published]


def _peak(base: Path) -> int:
    """Peak memory in KiB of a process that asks for some completion times, as writers do."""
    names = [f.first for f in _open(base).manifest.files]
    command = [sys.executable, "-c", _LOOK_UP, str(base), *names]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER.parent).stdout)
