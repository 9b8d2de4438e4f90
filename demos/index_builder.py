"""One of the demo's indexers: a process that builds one index of a table while others write it.

    python -m demos.index_builder TABLE CLOCK_OFFSET_MS KIND [COLUMN...]

Says what it does on standard output, one JSON object per line: {"building": kind}, {"built": index, "action":
its instant, "completion": when it was complete, "rows": n, "seconds": by this process's clock}.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import mainstem
from demos.speaking import end_with_parent, say
from demos.stream_writer import table_options

#: Alone a secondary index makes the record index itself; here another process does, at the same time.
RESTS_ON = {"secondary_index": "record_index"}


def main(path: str, clock_offset_ms: int, kind: str, columns: Sequence[str]) -> None:
    end_with_parent()
    table = mainstem.open_table(path, properties=table_options(f"{kind} builder", clock_offset_ms))
    while kind in RESTS_ON and RESTS_ON[kind] not in {index.kind for index in table.indexes()}:
        time.sleep(0.02)
    say(building=kind)
    begun = time.perf_counter()
    built = table.create_index(kind, columns)
    seconds = time.perf_counter() - begun
    times = {"action": built.action, "completion": built.completion}
    say(built=built.index, **times, rows=built.rows, seconds=seconds)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])
