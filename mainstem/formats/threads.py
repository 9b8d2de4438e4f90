"""Work on parts of one file in threads: zlib, NumPy and Arrow let go of Python's lock while they work.

Nothing here touches storage: what the threads work on was read before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import pyarrow as pa

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS_MAX = 8


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``work`` of each item, in their order. Few items are taken ahead of the one that is waited for.

    As many at once as Arrow uses processors (``pyarrow.cpu_count``). The first failure is raised.
    """
    threads = min(pa.cpu_count(), _THREADS_MAX)
    if threads < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ThreadPoolExecutor

    waiting: deque = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="mainstem-parts") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
