"""Runs independent work in as many threads as the store handles well at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_turn(
    work: Callable[[Item], Result], items: Sequence[Item], ended: Callable[[int], None] | None = None
) -> list[Result]:
    """As ``side_by_side``, in one thread."""
    results = []
    for item in items:
        results.append(work(item))
        if ended is not None:
            ended(len(results))
    return results


def side_by_side(
    storage: Storage,
    work: Callable[[Item], Result],
    items: Sequence[Item],
    ended: Callable[[int], None] | None = None,
    *,
    width: int | None = None,
) -> list[Result]:
    """Call ``work`` for each item; return the results in the order of the items.

    At most ``width`` calls, or ``storage.width``, run concurrently, so ``work`` must not touch anything that
    another call changes. ``ended`` is called in the caller's thread with the number of results so far. The
    first failure is raised after all calls that had begun have ended.
    """
    workers = len(items)
    if workers > 1:  # a disk asks the system how many cores there are
        workers = min(workers, storage.width if width is None else width)
    if workers < 2:
        return in_turn(work, items, ended)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers, thread_name_prefix="mainstem-work") as pool:
        waiting = [pool.submit(work, item) for item in items]
        try:
            return in_turn(lambda future: future.result(), waiting, ended)
        except BaseException:
            for future in waiting:
                future.cancel()
            raise


def looked(storage: Storage, looks: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of a few short looks (a listing, a small file), side by side where each is a request. On a
    disk it takes less than a thread to begin with one."""
    return in_turn(lambda look: look(), looks) if has_links(storage) else side_by_side(
        storage, lambda look: look(), looks
    )  # fmt: skip
