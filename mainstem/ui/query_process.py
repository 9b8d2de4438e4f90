"""A query in a process of its own, which is ended when its time is over or its memory is used up.

DuckDB's own bounds do not reach into every function: ``repeat('a', 2000000000)`` takes gigabytes, and minutes
in which no interrupt is heard. Killing the process is heard always.

Such a process gets a pickle and gives one. It imports nothing from the folder in which the server was
started, which may be one of tables that others made.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mainstem
from mainstem.errors import Invalid, MainstemError, Unavailable
from mainstem.limits import MIB
from mainstem.storage.location import Location
from mainstem.ui.row_query import too_late

#: what a query may use beside what its process has when it begins (Linux)
MEMORY_BYTES = 1536 * MIB
# Time to begin, on a busy machine; the query's own time begins after that.
_START_S = 30.0
# Where this package lies is looked at last: it need not be installed.
_ROOT = str(Path(mainstem.__file__).parents[1])
_BEGIN = (
    "import sys; sys.path.append(sys.argv[1]);"
    " from mainstem.ui.query_process import main; sys.exit(main(sys.argv[2:]))"
)


def query_in_process(
    location: Location, given: Mapping[str, str], sql: str, rows: int, seconds: float
) -> dict[str, Any]:
    """As ``row_query.run_query`` on the table at ``location``, opened with ``given``; raises the same."""
    asked = pickle.dumps((location, dict(given), sql, rows, seconds))
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _BEGIN, _ROOT, str(MEMORY_BYTES)],
            input=asked, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds + _START_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise too_late(seconds) from None
    except OSError as error:
        raise Unavailable(f"no process can be started for the query: {error}; try again") from error
    if done.returncode == _LATE:
        raise too_late(seconds)
    if done.returncode:
        raise _too_much()
    found = pickle.loads(done.stdout)  # of our own process
    if isinstance(found, MainstemError):
        raise found
    assert isinstance(found, dict)
    return found


_LATE = 75  # exit code of a process that ended itself


def _too_much() -> Invalid:
    return Invalid(f"the query needed more than {MEMORY_BYTES // MIB:,} MB and was ended: select less")


def _bound_memory(more: int) -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/status", encoding="ascii") as file:
            found = re.search(r"VmData:\s+(\d+) kB", file.read())
        if found is not None:
            limit = int(found[1]) * 1024 + more
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def main(arguments: list[str]) -> int:
    """Answer one query; what goes wrong is an answer too."""
    import os
    import threading

    from mainstem.ui.row_query import run_query

    location, given, sql, rows, seconds = pickle.load(sys.stdin.buffer)
    found: object
    try:
        table = mainstem.open_table(location, given)
        # Half a second more than the query's own clock, which says it better.
        late = threading.Timer(seconds + 0.5, os._exit, (_LATE,))
        late.daemon = True
        late.start()
        _bound_memory(int(arguments[0]))
        found = run_query(table, sql, rows, seconds)
    except MemoryError:
        found = _too_much()
    except MainstemError as error:
        found = error
    except OSError as error:
        found = Unavailable(f"storage: {error}")
    sys.stdout.buffer.write(pickle.dumps(found))
    sys.stdout.flush()
    os._exit(0)  # threads of a query that was ended are not waited for
