"""One of the memory demo's writers: embeds texts and upserts them, as fast as it can, for some seconds.

    python -m demos.memory_writer TABLE TEXTS NUMBER SECONDS

It writes its own texts, and rewrites some that all writers share. Says {"ready"}, then per commit {"writer",
"rows", "keys": {record key: ordering value}}, at the end {"ended", "retries"}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import mainstem
from demos.minilm import DIMENSION, MiniLM, model_folder
from demos.speaking import end_with_parent, say, wait_for_the_start

WRITERS, OWN, SHARED, POOL = 4, 20, 4, 60
COLUMN = "embedding"


def rows(keys: list[str], texts: list[str], vectors: np.ndarray, ts: int, writer: int) -> pa.Table:
    """A batch as the table takes it."""
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSION)
    count = len(keys)
    columns = [keys, [ts] * count, texts, [key.partition(".")[0] for key in keys], [writer] * count, lists]
    return pa.table(columns, names=["id", "ts", "text", "package", "writer", COLUMN])


def main(path: Path, texts_file: Path, number: int, seconds: float) -> None:
    end_with_parent()
    folder = model_folder()
    assert folder is not None
    model, table = MiniLM(folder), mainstem.open_table(path)
    texts: list[list[str]] = json.loads(texts_file.read_text())
    shared, own = texts[:POOL], texts[POOL + number :: WRITERS]
    wait_for_the_start(path.parent / "start")
    until, turn = time.monotonic() + seconds, 0
    while time.monotonic() < until and turn * OWN < len(own):
        again = [shared[(turn * SHARED + at + number) % POOL] for at in range(SHARED)]
        batch = [*own[turn * OWN : (turn + 1) * OWN], *again]
        keys, found = [key for key, _ in batch], [text for _, text in batch]
        ts = time.time_ns() // 1000 * WRITERS + number
        outcome = table.upsert(rows(keys, found, model.embed(found), ts, number))
        say(writer=number, rows=len(keys), attempts=outcome.attempts, keys=dict.fromkeys(keys, ts))
        turn += 1
    say(ended=number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
