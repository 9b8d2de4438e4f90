"""A process on one of several machines that share a table in an object store; arguments are one JSON object.

``role``: a "writer" upserts batch after batch, half of each on keys that all writers share; with ``guarded``
it repeats under a stream guard what failed, as a stream does, else each batch is tried once. "services" run
all the while. A "reader" looks whether what it sees is whole, and stays. Each says as a JSON object per line
what it did, and goes on until it is told "end". ``halt_at``: as ``die_at`` of ``store_writer``; the process
says "halted" there and waits until it is told "go".
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from typing import Any

import mainstem
from mainstem.errors import LeaseLost, LockUnavailable, MainstemError, OutcomeUnknown, RolledBack, Unavailable
from mainstem.writers.stream_guard import StreamGuard
from tests.stores.store_writer import ROWS, at_put, stream_batch

OWN_ROWS = ROWS // 2
#: what a machine that was cut off may be told
TROUBLE = (LeaseLost, LockUnavailable, OutcomeUnknown, RolledBack, Unavailable)
_PAUSE_S = 0.05

told = {"go": threading.Event(), "end": threading.Event()}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def listen() -> None:
    for line in sys.stdin:
        told[line.strip()].set()


def halt(path: str) -> None:
    say(halted=path)
    told["go"].wait()


def write(table: mainstem.Table, given: dict[str, Any]) -> None:
    """Say of each batch that it began, and how it ended."""
    number, writer = 0, given["writer"]
    while not told["end"].is_set():
        guard = StreamGuard(f"stream-{writer}", number) if given["guarded"] else None
        say(began=number)
        status = ""
        while not status:
            try:
                with table.begin("upsert", guard=guard) as txn:
                    txn.write(stream_batch(writer, number))
                    status = txn.commit().status
            except TROUBLE as error:
                say(trouble=type(error).__name__, said=str(error)[:300], batch=number)
                if guard is None:
                    status = "unknown" if isinstance(error, OutcomeUnknown) else "failed"
        say(ended=number, status=status)
        number += 1


def tend(table: mainstem.Table) -> None:
    while not told["end"].wait(_PAUSE_S):
        for run in table.run_services():
            if run.error is not None and not isinstance(run.error, TROUBLE):
                raise run.error
            if run.error is not None or run.results:
                say(service=run.service, results=len(run.results), trouble=str(run.error or "")[:300])


def read(table: mainstem.Table) -> None:
    """Raises ``AssertionError`` for a key that comes twice, a batch in part, or one that is gone again."""
    before: set[str] = set()
    while not told["end"].wait(_PAUSE_S):
        try:
            found = table.scan(columns=["id"]).to_arrow()["id"].to_pylist()
        except TROUBLE as error:
            say(trouble=type(error).__name__, said=str(error)[:300])
            continue
        seen = batches_of(found)
        assert before <= seen, f"gone again: {sorted(before - seen)}"
        say(seen=len(seen))
        before = seen


def batches_of(keys: list[str]) -> set[str]:
    """The batches whose own rows are there, all of them, as ``writer-number``."""
    assert len(set(keys)) == len(keys), "a key comes twice"
    counted = Counter(key[1:].rsplit("-", 1)[0] for key in keys if key.startswith("w"))
    assert set(counted.values()) <= {OWN_ROWS}, f"in part: {counted}"
    return set(counted)


def main() -> None:
    given = json.loads(sys.argv[1])
    threading.Thread(target=listen, daemon=True).start()
    if given.get("halt_at"):
        pattern, when, number = given["halt_at"]
        at_put(pattern, when, number, halt)
    while True:
        try:
            table = mainstem.open_table(given["path"], {**given["store"], **given["options"]})
            break
        except MainstemError as error:
            say(trouble=type(error).__name__, said=str(error)[:300])
            time.sleep(_PAUSE_S)
    match given["role"]:
        case "writer":
            write(table, given)
        case "services":
            tend(table)
        case "reader":
            read(table)
    say(done=True)


if __name__ == "__main__":
    main()
