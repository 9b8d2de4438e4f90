"""One plain writer of the collision, and what else must run in a peer's own environment.

    python -m demos.collision_writer write SYSTEM FOLDER LOAD WRITER FIRST_BATCH
    python -m demos.collision_writer create SYSTEM FOLDER LOAD
    python -m demos.collision_writer read SYSTEM FOLDER FILE

A writer says what it does on standard output, one JSON object per line:
{"ready": true}, {"in": batch, "repeated": n}, {"refused": batch, "why": text}, {"ended": true}.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from demos.collision_load import GATE, Load
from demos.collision_systems import SYSTEMS, Refused
from demos.speaking import end_with_parent, say, wait_for_the_start

PAUSE_S, PAUSE_MOST_S = 0.05, 2.0


def main(arguments: Sequence[str]) -> None:
    what, name, folder, *rest = arguments
    system = SYSTEMS[name](Path(folder))
    match what, rest:
        case "create", [load]:
            system.create(Load.from_json(load).first_rows())
        case "read", [file]:
            pq.write_table(system.read(), file)
        case "write", [load, writer, first]:
            end_with_parent()
            write(system, Path(folder) / GATE, Load.from_json(load), int(writer), int(first))
        case _:
            raise SystemExit(__doc__)


def write(system, gate: Path, load: Load, writer: int, first: int) -> None:
    """Commit the batches from ``first`` on, each as often as it is refused."""
    name = f"writer-{writer}"
    rows = load.rows(writer, first)
    wait_for_the_start(gate)
    for batch in range(first, load.batches):
        pause = PAUSE_S
        while True:
            system.repeated = 0
            try:
                system.upsert(rows, name, batch)
                break
            except Refused as refused:
                say(refused=batch, repeated=system.repeated, why=str(refused).splitlines()[0][:200])
            time.sleep(random.uniform(0, pause))
            pause = min(2 * pause, PAUSE_MOST_S)
        say(**{"in": batch, "repeated": system.repeated})
        if batch + 1 < load.batches:
            rows = load.rows(writer, batch + 1)
    say(ended=True)


if __name__ == "__main__":
    main(sys.argv[1:])
