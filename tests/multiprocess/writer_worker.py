"""A writer process of one table, started by the tests; arguments are one JSON object.

mode "stream": upserts batch after batch under a stream guard until the stop file exists, and appends
what became of each to a journal of its own. mode "commands": driven by lines on standard input. The
command "stop_before <storage method> <pattern>" makes it stop itself with SIGSTOP, once, right before
the next such storage call whose (last) path matches.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
from pathlib import Path

import pyarrow as pa

import mainstem
from mainstem.errors import MainstemError
from mainstem.storage.local import LocalStorage
from mainstem.writers.stream_guard import StreamGuard

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("value", pa.string())]
)
KEYS = 60
ROWS = 24


def batch(writer: int, number: int) -> pa.Table:
    """Rows of one micro-batch, always the same; no event time is used twice by anybody."""
    chance = random.Random(writer * 1_000_003 + number)
    keys = chance.sample(range(KEYS), ROWS)
    unique = (writer * 10_000 + number) * ROWS
    times = [chance.randrange(1_000_000) * 10_000_000 + unique + i for i in range(ROWS)]
    return pa.table(
        {
            "id": [f"k{k}" for k in keys],
            "city": ["ab"[k % 2] for k in keys],
            "ts": times,
            "value": [f"{writer}/{number}/{k}" for k in keys],
        },
        schema=SCHEMA,
    )


class Journal:
    """Lines of JSON that survive the death of the process between any two of them."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, **entry: object) -> None:
        os.write(self.fd, (json.dumps(entry) + "\n").encode())
        os.fsync(self.fd)


def entries(path: Path) -> list[dict]:
    """What a journal holds; a line whose end is still being written is seen next time."""
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def stream(path: str, properties: dict[str, str], writer: int, journal: str, stop: str) -> None:
    done, trouble = Journal(journal), Journal(journal + ".errors")
    number = len(entries(Path(journal)))
    table = mainstem.open_table(path, properties=properties)
    while True:
        rows = batch(writer, number)
        try:
            with table.begin("upsert", guard=StreamGuard(f"stream-{writer}", number)) as txn:
                txn.write(rows.slice(0, ROWS // 2))
                txn.write(rows.slice(ROWS // 2))
                outcome = txn.commit()
        except MainstemError as error:
            trouble.add(error=type(error).__name__, batch=number, message=str(error))
            continue
        done.add(
            batch=number,
            status=outcome.status,
            instant=outcome.instant,
            completion=outcome.completion_time,
            attempts=outcome.attempts,
        )
        number += 1
        if os.path.exists(stop):
            return


class Commands:
    """One table, one transaction at a time."""

    def open(self, given: str) -> bool:
        self.table = mainstem.open_table(**json.loads(given))
        self.txn = None
        return True

    def stop_before(self, given: str) -> bool:
        method, pattern = given.split(" ")
        original = getattr(LocalStorage, method)

        def stopping(storage, *arguments, **options):
            path = [a for a in arguments if isinstance(a, str)][-1]
            if re.search(pattern, path):
                setattr(LocalStorage, method, original)
                os.kill(os.getpid(), signal.SIGSTOP)
            return original(storage, *arguments, **options)

        setattr(LocalStorage, method, stopping)
        return True

    def begin(self) -> str:
        self.txn = self.table.begin("upsert")
        return self.txn.instant

    def write(self, which: str) -> int:
        """Write the batch that ``<writer> <number>`` names."""
        return self.txn.write(batch(*map(int, which.split())))

    def commit(self) -> list:
        with self.txn:
            outcome = self.txn.commit()
        return [outcome.status, outcome.instant, outcome.completion_time, outcome.attempts]

    def upsert(self, which: str) -> list:
        self.begin()
        self.write(which)
        return self.commit()

    def rollback(self) -> list[str]:
        return [r.instant for r in self.table.rollback_failed_writes()]


def obey(commands: Commands) -> None:
    print(json.dumps({"answer": "ready"}), flush=True)
    for line in sys.stdin:
        name, *arguments = line.rstrip("\n").split(" ", 1)
        try:
            answer = {"answer": getattr(commands, name)(*arguments)}
        except (MainstemError, OSError) as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.pop("mode") == "stream":
        stream(**given)
    else:
        obey(Commands())
