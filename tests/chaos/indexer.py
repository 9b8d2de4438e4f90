"""A process that builds indexes, or drops them, while everybody else works; its argument is JSON.

What it did goes to a journal, errors of ours to a second one. It ends by a signal.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Sequence

import mainstem
from mainstem.errors import MainstemError
from tests.multiprocess.writer_worker import Journal

UPPER = {"expr": "upper", "type": "column_stats", "hoodie.mainstem.index.unsafe.for.java": "true"}
#: kind -> columns, and what else belongs to it. A secondary index needs the record index, partition
#: statistics need those of columns.
KINDS: dict[str, tuple[Sequence[str], dict]] = {
    "column_stats": (("ts", "amount"), {}),
    "partition_stats": ((), {}),
    "record_index": ((), {}),
    "secondary_index": (("value",), {}),
    "expr_index": (("value",), {"name": "by_end", "options": UPPER}),
}
_PAUSE_S = {"build": (0.2, 2), "drop": (3, 8)}


def main(given: dict) -> None:
    done, trouble = Journal(given["journal"]), Journal(given["journal"] + ".errors")
    chance, does = random.Random(given["seed"]), given["does"]
    while True:
        time.sleep(chance.uniform(*_PAUSE_S[does]))
        kind = chance.choice(list(KINDS))
        try:
            table = mainstem.open_table(given["path"], properties=given["properties"])
            (_build if does == "build" else _drop)(table, kind, chance)
        except MainstemError as error:
            trouble.add(error=type(error).__name__, kind=kind, message=str(error))
            continue
        done.add(did=does, kind=kind)


def _build(table: mainstem.Table, kind: str, chance: random.Random) -> None:
    there = [index.name for index in table.indexes() if index.kind == kind]
    if there and chance.random() < 0.2:
        table.reindex(there[0])
    else:
        build(table, kind)


def build(table: mainstem.Table, kind: str) -> None:
    """An index of this kind, and what it rests on."""
    columns, more = KINDS[kind]
    table.create_index(kind, columns, **more)


def _drop(table: mainstem.Table, kind: str, chance: random.Random) -> None:
    for index in table.indexes():
        if index.kind == kind:
            table.drop_index(index.name, if_exists=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
