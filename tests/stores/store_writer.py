"""A writer process of a table in an object store; arguments are one JSON object.

It upserts batch after batch under a stream guard, half of each batch on keys that all writers share, and
appends what became of each to a journal. ``die_at``: pattern of an object's key, "before" or "after", and a
number; the process dies by SIGKILL right before or after that put of such an object.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa

import mainstem
from mainstem.errors import MainstemError
from mainstem.storage.object_store import ObjectStorage
from mainstem.writers.stream_guard import StreamGuard

ROWS = 8


def stream_batch(writer: int, number: int) -> pa.Table:
    """Rows of one micro-batch, always the same; no two batches of all have equal times."""
    from tests.stores.table_life import SCHEMA

    ts = number * 100 + writer
    own = [f"w{writer}-{number}-{n}" for n in range(ROWS // 2)]
    shared = [f"s{n}" for n in range(ROWS // 2)]
    names = own + shared
    return pa.table(
        [names, ["ab"[n % 2] for n in range(ROWS)], [ts] * ROWS, [f"{writer}/{number}"] * ROWS], schema=SCHEMA
    )


def die_at(pattern: str, when: str, number: int) -> None:
    """Arrange the death of this process."""
    at_put(pattern, when, number, lambda _: os.kill(os.getpid(), signal.SIGKILL))


def at_put(pattern: str, when: str, number: int, do: Callable[[str], object]) -> None:
    """Before or after the put with this number of an object whose key the pattern finds, call ``do`` once.
    A put that the store refuses, since another writer swapped first, counts as begun and not as done."""
    real, met = ObjectStorage._put, []

    def meet(path: str, moment: str) -> None:
        if moment == when and re.search(pattern, path):
            met.append(path)
            if len(met) == number:
                do(path)

    def put(self: ObjectStorage, path: str, *given: Any) -> Any:
        meet(path, "before")
        answer = real(self, path, *given)
        meet(path, "after")
        return answer

    ObjectStorage._put = put  # type: ignore[method-assign]


def main() -> None:
    """Write until ``batches`` are committed."""
    given = json.loads(sys.argv[1])
    if given.get("die_at"):
        die_at(*given["die_at"])
    table = mainstem.open_table(given["path"], {**given["store"], **given["options"]})
    writer, number = given["writer"], given.get("first", 0)
    with open(given["journal"], "a", buffering=1) as journal:
        while number < given["batches"]:
            guard = StreamGuard(f"stream-{writer}", number)
            try:
                with table.begin("upsert", guard=guard) as txn:
                    txn.write(stream_batch(writer, number))
                    outcome = txn.commit()
            except MainstemError as error:
                journal.write(json.dumps({"error": type(error).__name__, "said": str(error)}) + "\n")
                continue
            journal.write(json.dumps({"batch": number, "status": outcome.status}) + "\n")
            number += 1


if __name__ == "__main__":
    main()
