"""The peak memory of a process that works on a table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# What allocators keep for later is not what the work needs.
FRUGAL = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}
# Not ru_maxrss: a child inherits it from the process that forked it.
_CHILD = """
import json, re, sys
import mainstem
table = mainstem.open_table(sys.argv[1], json.loads(sys.argv[3]))
if sys.argv[2] == "compact":
    assert len(table.compact()) == 1
    rows = 0
else:
    plan = table.scan()
    batches = plan.to_batches() if sys.argv[2] == "stream" else plan.to_arrow().to_batches()
    rows = sum(batch.num_rows for batch in batches)
print(rows, int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) * 1024)
"""


def peak(place: str, how: str = "stream", options: Mapping[str, str] = {}) -> tuple[int, int]:
    """(rows read, peak bytes) of a process that reads a table.

    ``how``: ``stream``, ``whole``, or ``compact``, which compacts it instead.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, place, how, json.dumps(dict(options))], stdout=subprocess.PIPE,
        text=True, check=True, cwd=Path(__file__).parents[2], env={**os.environ, **FRUGAL},
    )  # fmt: skip
    rows, most = map(int, done.stdout.split())
    return rows, most
