"""One writer in a process of its own, started by ``benchmarks.race``: upserts the same keys in a
loop.

Argument: a JSON object (system, folder, rows, seconds, number, cpu). Prints ``ready``, reads the
common start time (``time.monotonic``, shared by all processes of a machine) and prints what it did.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

from benchmarks import data, together
from benchmarks.systems import SYSTEMS, Aborted

_PREPARED = 4


def main(spec: dict) -> dict:
    """Loop until the time is over; only commits that returned before the end count."""
    if spec["cpu"] is not None:
        os.sched_setaffinity(0, {spec["cpu"]})
    system = SYSTEMS[spec["system"]]()
    table = Path(spec["folder"])
    first = spec["number"] * _PREPARED
    prepared = [data.repeated(spec["rows"], version=first + i) for i in range(_PREPARED)]
    _warm_up(system, table.with_name(f"warm-{spec['number']}"), prepared[:2])
    writer = system.open(table)
    start = together.wait_for_the_start()
    end = start + spec["seconds"]
    latencies: list[float] = []
    ends: list[float] = []
    aborts: list[str] = []
    spent = _spent_s()
    while (began := time.monotonic()) < end:
        batch = prepared[len(latencies) % _PREPARED]
        if not _commit(writer, batch, aborts, end):
            break
        if (now := time.monotonic()) <= end:
            latencies.append(now - began)
            ends.append(now - start)
    return {
        "commits": len(latencies), "aborts": len(aborts), "abort": aborts[0] if aborts else "",
        "latencies": latencies, "ends": ends, "held_ms": writer.held_ms, "bytes": sum(writer.bytes),
        "cpu_s": _spent_s() - spent,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }  # fmt: skip


def _spent_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _warm_up(system, table: Path, batches: list) -> None:
    """Imports and first touches are not part of the race: two commits into a table of its own."""
    system.create(table)
    writer = system.open(table)
    for batch in batches:
        writer.upsert(batch)


def _commit(writer, batch, aborts: list[str], end: float) -> bool:
    """Try until it is in; False when the time ran out first."""
    while True:
        try:
            writer.upsert(batch)
            return True
        except Aborted as error:
            aborts.append(str(error).splitlines()[0][:200])
        if time.monotonic() > end:
            return False
        writer.reload()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
