"""A process that reads the table again and again, while everybody writes; its argument is JSON.

Whatever it sees must be a state between two commits: no key twice, every batch whole or not at all, and no
row older than the one of its key that it saw before. What is wrong goes to its journal, errors of ours to a
second one. It ends by a signal.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter

import mainstem
from mainstem.errors import MainstemError
from tests.chaos.changer import PARTITION
from tests.chaos.rows import COLUMNS, as_tuples
from tests.multiprocess.writer_worker import Journal

_PAUSE_S = 0.2


def main(given: dict) -> None:
    said, trouble = Journal(given["journal"]), Journal(given["journal"] + ".errors")
    seen: dict[str, int] = {}
    batch_rows = given["batch_rows"]
    table = None
    while True:
        try:
            table = table or mainstem.open_table(given["path"], properties=given["properties"])
            rows = as_tuples(table.scan(columns=COLUMNS).to_arrow())
        except (MainstemError, OSError) as error:
            trouble.add(error=type(error).__name__, message=str(error))
        else:
            for wrong in wrong_in(rows, seen, batch_rows):
                said.add(wrong=wrong)
        time.sleep(_PAUSE_S)


def wrong_in(rows: list[tuple], seen: dict[str, int], batch_rows: dict[str, int]) -> list[str]:
    """What no committed state shows. ``seen``: key -> newest time, which is brought up to date.
    ``batch_rows``: source -> rows of its batches, of sources whose batches are known."""
    times = {row[0]: row[2] for row in rows if row[1] != PARTITION}  # there rows are deleted and overwritten
    wrong = [f"{key} twice" for key, number in Counter(row[0] for row in rows).items() if number > 1]
    wrong += [f"{key} is gone" for key in seen if key not in times]
    wrong += [f"{key} went back" for key, time in times.items() if time < seen.get(key, 0)]
    seen.update(times)
    own: Counter[tuple[str, int]] = Counter()
    for key in times:
        source, dash, number = key.removeprefix("s").partition("-")
        if dash and source in batch_rows:
            own[source, int(number) // batch_rows[source]] += 1
    # One row of four has a key that no other batch writes.
    return wrong + [
        f"{number} of {batch_rows[source] // 4} own rows of batch {batch} of source {source}"
        for (source, batch), number in own.items()
        if number != batch_rows[source] // 4
    ]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
