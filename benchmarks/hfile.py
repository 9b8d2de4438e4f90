"""HFiles of record-index entries, in memory: write, read all, look up one key.

Measured against Java Hudi's own writer and reader on the same entries in the same run.

The values are those of a record index: Avro records with a partition, a file id and a time. Both sides start
and end with keys and values in memory, ours as Arrow arrays, Java's as lists; a look-up opens the file anew.
Java is warm: the first times are thrown away.
"""

from __future__ import annotations

import shutil
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from benchmarks import Missing, Row, asked, java_hudi, row, work_folder
from mainstem.formats.avro_columns import encode_records
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.hfile import open_hfile
from mainstem.formats.hfile_write import write_hfile
from mainstem.storage.local import LocalStorage
from mainstem.storage.side_by_side import side_by_side

_BUNDLE = "hudi-spark3.5-bundle_2.12-1.2.0.jar"
_SEEKS = 60
_WARM = 2
_SIDE_BY_SIDE = partial(side_by_side, LocalStorage("."))  # on all cores, as tables do; Java uses one


def entries(count: int) -> tuple[pa.Array, pa.Array]:
    """``count`` keys like ``trip-000000042`` and their record-index records, about 75 bytes each."""
    chance = np.random.default_rng(5)
    files = chance.integers(0, 256, count)
    nulls = {f"m{i}": pa.nulls(count, pa.string()) for i in range(5)}
    table = pa.table(
        {
            **nulls,
            "type": pa.array(np.full(count, 5, np.int32)),
            "partition": pa.array([f"city={i}" for i in range(16)]).take(pa.array(files % 16)),
            "high": pa.array(chance.integers(-(2**63), 2**63 - 1, 256)).take(pa.array(files)),
            "low": pa.array(chance.integers(-(2**63), 2**63 - 1, 256)).take(pa.array(files)),
            "index": pa.array(np.zeros(count, np.int32)),
            "file": pa.array([""] * 1).take(pa.array(np.zeros(count, np.int64))),
            "instant": pa.array(1_772_922_372_542 + files.astype(np.int64)),
        }
    )
    text = arrow_to_avro(table.schema, table_name="t", meta_fields=False)
    framed = b"".join(bytes(part) for part in encode_records(table, text))
    return pa.array([f"trip-{i:09d}" for i in range(count)]), _unframed(framed, count)


def _unframed(framed: bytes, count: int) -> pa.Array:
    from mainstem.formats.record_starts import framed_starts

    starts = framed_starts(memoryview(framed), count)
    places = np.append(np.stack([starts[:-1], starts[:-1] + 4], axis=1).reshape(-1), starts[-1])
    cells = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(places.astype(np.int32)), pa.py_buffer(framed)]
    )
    return cells.take(pa.array(np.arange(1, 2 * count, 2)))


def run(reduced: bool) -> list[Row]:
    """One million entries; the reduced run repeats less."""
    count, times = 1_000_000, 3 if reduced else 7
    keys, values = entries(count)
    data = write_hfile(keys, values, schema_text="{}", base_file=True)
    wanted = [key.as_py() for key in keys.take(pa.array(_places(count)))]
    ours = {
        "write": _seconds(
            lambda: write_hfile(keys, values, schema_text="{}", base_file=True, run=_SIDE_BY_SIDE), times
        ),
        "read": _seconds(lambda: open_hfile(data, path="f", run=_SIDE_BY_SIDE).rows(), times),
        "seek": [_seconds(lambda key=key: _seek(data, key), 1)[0] for key in wanted],
    }
    bare = statistics.median(_seconds(lambda: _inflated(data), _SEEKS))
    theirs = _java(data, times + _WARM, wanted)
    note = f"{len(data) / count:.1f} bytes per entry, Java {theirs.pop('size')[-1] / count:.1f}"
    medians = {what: (statistics.median(ours[what]), statistics.median(theirs[what])) for what in ours}
    seek, java = medians["seek"]
    return [
        _against(f"write {count:,} entries of an HFile", count, *medians["write"], note),
        _against(f"read {count:,} entries of an HFile", count, *medians["read"]),
        _against(f"look up one key of {count:,} in an HFile, opened anew", 1, seek, java,
                 f"{1000 * seek:.1f} ms, Java {1000 * java:.1f} ms; bound: inflating its block alone"
                 f" takes {1000 * bare:.1f} ms", asked(1.0, java / bare)),
    ]  # fmt: skip


def _places(count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(3).choice(count, _SEEKS, replace=False))


def _seek(data: bytes, key: str) -> None:
    if open_hfile(data, path="f").lookup(pa.array([key]))[0].to_pylist() != [key.encode()]:
        raise RuntimeError(f"{key} was not found")


def _inflated(data: bytes) -> bytes:
    """The first block, as a look-up that knows everything else would do it."""
    header = 33
    (stored,) = struct.unpack_from(">i", data, 8)
    return isal_zlib.decompressobj(wbits=31).decompress(memoryview(data)[header : header + stored])


def _seconds(work: Callable[[], object], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return seconds


def _against(
    work: str, count: int, ours: float, theirs: float, note: str = "", target: float = 1.0
) -> Row:
    unit = "entries/s" if count > 1 else "look-ups/s"
    return row(work, count / ours, unit, against="Java Hudi's HFile writer and reader",
               baseline=count / theirs, target=target, note=note)  # fmt: skip


def _java(data: bytes, times: int, wanted: Sequence[str]) -> dict[str, list[float]]:
    folder = work_folder("hfile")
    try:
        file = folder / "entries.hfile"
        file.write_bytes(data)
        source = Path(__file__).with_name("HFilePeer.java")
        command = ["java", "-Xmx1g", "-cp", class_path(), str(source), str(file), str(times), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Missing(f"Java's HFile reader did not run: {done.stderr.strip()[-300:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, list[float]] = {}
    for line in done.stdout.splitlines():
        what, _, figure = line.partition(" ")
        if what in ("read", "write", "seek", "size"):
            found.setdefault(what, []).append(float(figure))
    warm = {"read": _WARM, "write": _WARM, "seek": _SEEKS // 3}
    return {what: figures[warm.get(what, 0) :] for what, figures in found.items()}


def class_path() -> str:
    """Hudi's bundle, where Spark has put it, and the libraries that Spark brings."""
    if not java_hudi.is_available() or shutil.which("javac") is None:
        raise Missing("Java Hudi or a Java compiler is missing (scripts/environment.py install interop)")
    bundles = sorted((Path.home() / ".ivy2").rglob(f"*{_BUNDLE}"))
    if not bundles:
        raise Missing(f"{_BUNDLE} is not there: one test of `make interop` brings it")
    spark = java_hudi.python().parents[1].glob("lib/python*/site-packages/pyspark/jars")
    return ":".join([str(bundles[0]), *(f"{folder}/*" for folder in spark)])


def main() -> None:
    """Print the table."""
    from benchmarks.report import finish, table

    print(table(finish(run(reduced=True))))


if __name__ == "__main__":
    main()
