"""One mainstem writer process of the interop tests: commits batches until told to stop.

Arguments: base path, writer number, first commit number, folder for signals, JSON properties.
After every commit one JSON line on standard output. It stops at the file `stop` in the signal
folder. Where the file `hang-<writer>` exists it opens a transaction, writes its batch, creates
`hanging-<writer>` and waits to be killed.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import event_batches

import mainstem

# Java polls for the lock: two writers that hold it all the time would leave it hardly a chance.
PAUSE_S = 1.0


def main() -> None:
    """Runs until `stop`."""
    path, number, commit, signals = (
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        Path(sys.argv[4]),
    )
    table = mainstem.open_table(path, properties=json.loads(sys.argv[5]))
    while not (signals / "go").exists():
        time.sleep(0.01)
    while not (signals / "stop").exists():
        if (signals / f"hang-{number}").exists():
            _hang(table, number, signals)
        batch = event_batches.batch(number, commit)
        outcome = table.upsert(batch)
        line = {
            "writer": number,
            "commit": commit,
            "instant": outcome.instant,
            "completion": outcome.completion_time,
            "attempts": outcome.attempts,
        }
        print(json.dumps(line), flush=True)
        commit += 1
        time.sleep(PAUSE_S)


def _hang(table: mainstem.Table, number: int, signals: Path) -> None:
    with table.begin() as txn:
        txn.write(event_batches.doomed(number))
        (signals / f"hanging-{number}").write_text(txn.instant)
        time.sleep(600)


if __name__ == "__main__":
    main()
