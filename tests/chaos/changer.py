"""A process that takes rows out of the table, or changes how it lies, while everybody writes; its argument is
JSON.

``does``: ``edit`` overwrites a partition that editors share, writes on it and deletes from it; every edit
names itself in its commit, so that the timeline alone says what must be there (``edited``). ``cluster``
writes rows in another order, or in other files; ``resize`` gives the table another number of buckets. What
it did goes to a journal, errors of ours to a second one. It ends by a signal.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

import mainstem
from mainstem.errors import MainstemError
from tests.chaos.rows import SCHEMA, as_tuples
from tests.multiprocess.writer_worker import Journal, entries

#: the partition that editors share, and what their commits call themselves by
PARTITION, EDIT = "o", "chaos.edit"
_PAUSE_S = {"edit": (0.1, 0.6), "cluster": (1, 4), "resize": (4, 10)}
_ORDERS = (["ts"], ["amount", "value"], ["value"])
_MOST_BUCKETS = 4
#: of four turns: what is done, and the turn whose keys it means, counted from the first
_TURNS = (("insert_overwrite", 0), ("upsert", 0), ("upsert", 2), ("delete", 0))
_ROWS = (12, 6, 4, 3)


def main(given: dict) -> None:
    done, trouble = Journal(given["journal"]), Journal(given["journal"] + ".errors")
    chance, does = random.Random(given["seed"]), given["does"]
    begun = Journal(given["journal"] + ".begun")
    # No turn is begun twice: what a dead process left may have become visible.
    turn = -(-len(entries(Path(given["journal"] + ".begun"))) // 4) * 4
    for _ in range(turn - len(entries(Path(given["journal"] + ".begun")))):
        begun.add(turn=None)
    table = None
    while True:
        time.sleep(chance.uniform(*_PAUSE_S[does]))
        begun.add(turn=turn)
        try:
            table = table or mainstem.open_table(given["path"], properties=given["properties"])
            instant = None
            if does == "edit":
                instant = _edit(table, given["source"], turn)
            elif does == "cluster":
                table.cluster(chance.choice(_ORDERS))
            else:
                table.resize(chance.randint(1, _MOST_BUCKETS))
        except MainstemError as error:
            trouble.add(error=type(error).__name__, message=str(error))
        else:
            done.add(did=does, turn=turn, instant=instant)
        turn += 1


def _edit(table: mainstem.Table, source: int, turn: int) -> str | None:
    """Its instant; None if there was nothing to write."""
    operation, _ = _TURNS[turn % 4]
    with table.begin(operation, extra_metadata={EDIT: json.dumps([source, turn])}) as txn:
        txn.write(_rows(source, turn))
        return txn.commit().instant


def _rows(source: int, turn: int) -> pa.Table:
    """The rows of a turn, with keys of this editor's; its event times only grow."""
    keys = turn - turn % 4 + _TURNS[turn % 4][1]
    numbers = range(_ROWS[turn % 4])
    return pa.table(
        {
            "id": [f"e{source}-{keys}-{number}" for number in numbers],
            "city": [PARTITION] * len(numbers),
            "ts": [(turn * 16 + number) * 10 + source for number in numbers],
            "value": [f"{source}/{turn}/{number}" for number in numbers],
            "amount": [turn / 2] * len(numbers),
        },
        schema=SCHEMA,
    )


def edited(edits: Iterable[tuple[str, str, int, int]]) -> dict[str, tuple]:
    """Key -> row of the shared partition. ``edits``: requested and completion time, editor and turn of every
    commit. The overwrite that was requested last hides what completed before that, and other overwrites."""
    known = sorted(edits, key=lambda edit: edit[1])
    overwrites = [edit for edit in known if _TURNS[edit[3] % 4][0] == "insert_overwrite"]
    last = max(overwrites, default=None)
    found: dict[str, tuple] = {}
    for requested, completion, source, turn in known:
        operation, _ = _TURNS[turn % 4]
        hidden = operation == "insert_overwrite" and last is not None and requested != last[0]
        if hidden or (last is not None and completion < last[0]):
            continue
        for row in as_tuples(_rows(source, turn)):
            if operation == "delete":
                found.pop(row[0], None)
            else:
                found[row[0]] = row
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
