"""Progress reports of long work: a function that is called after every piece of it."""

from __future__ import annotations

from collections.abc import Callable

#: ``progress(what, done, total)``: for instance ("compaction 20260101120000000, file groups", 3, 8).
#: Called from the thread that runs the service. Whatever it raises ends the service there, like a failure.
Progress = Callable[[str, int, int], None]


def silent(what: str, done: int, total: int) -> None:
    """Report nothing."""
