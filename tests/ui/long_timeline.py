"""Tables with so many instants or files that writing them would take minutes."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

import mainstem

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
WRITERS = 12


def long_timeline(folder: Path, instants: int) -> str:
    """Make a timeline of ``instants`` completed writes of twelve writers, copies of real ones.

    One begins every 100 ms and lasts 700 ms, so some seven are open at any time.
    """
    path = mainstem.create_table(folder, SCHEMA, record_key="id", ordering="n", buckets=1).path
    for n in range(WRITERS):
        name = {"hoodie.mainstem.writer.name": f"writer-{n:02}"}
        writer = mainstem.open_table(path, {**name, "hoodie.mainstem.services": "off"})
        writer.upsert({"id": [f"k{n}"], "n": [n]})
    timeline = Path(path, ".hoodie/timeline")
    done = sorted(p for p in timeline.iterdir() if p.name.endswith(".deltacommit"))
    empty = timeline.parent / "empty"
    empty.touch()
    for n in range(instants - len(done)):
        begun = 20250101000000000 + _clock(n * 100)
        name = timeline / f"{begun}_{20250101000000000 + _clock(n * 100 + 700)}.deltacommit"
        os.link(done[n % len(done)], name)
        for state in ("requested", "inflight"):
            os.link(empty, timeline / f"{begun}.deltacommit.{state}")
    return path


def _clock(ms: int) -> int:
    """Milliseconds as hours, minutes, seconds and milliseconds of an instant."""
    second, ms = divmod(ms, 1000)
    minute, second = divmod(second, 60)
    hour, minute = divmod(minute, 60)
    return ((hour * 100 + minute) * 100 + second) * 1000 + ms
