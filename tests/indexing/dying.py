"""Processes that die at one of the calls that change the file system."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mainstem
from mainstem.storage.local import LocalStorage
from mainstem.writers.context import WriterContext

CHANGING = (
    "put", "put_new", "link", "rename", "delete", "delete_tree", "make_folder", "settle",
)  # fmt: skip


class Died(BaseException):
    """The process is gone."""


class Dying(LocalStorage):
    """``calls_left``: so many changing calls go through, at the next the process dies."""

    calls_left = 10**9

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if name not in CHANGING:
            return found

        def counted(*args, **options):
            if self.calls_left <= 0:
                raise Died
            self.calls_left -= 1
            return found(*args, **options)

        return counted


def doomed(ctx: WriterContext, calls: int) -> None:
    """Whoever works with this context dies after so many calls."""
    storage = Dying(ctx.base, sync=False)
    ctx.seams = ctx.publisher._seams = dataclasses.replace(ctx.seams, storage=storage)
    ctx.publisher._reader._storage = ctx.heartbeats._storage = storage
    storage.calls_left = calls


def deaths(
    table: str | Path,
    folder: Path,
    act: Callable[[WriterContext], object],
    properties: Mapping[str, object],
    *,
    every: int = 1,
) -> Iterator[Path]:
    """Copies of a table, in which a process died at every ``every``-th call of ``act``; a copy is there until
    the next is asked for. Ends when ``act`` does."""
    for calls in range(0, 400, every):
        copy = folder / f"copy{calls}"
        shutil.copytree(table, copy)
        ctx = mainstem.open_table(copy, dict(properties)).index_context()
        doomed(ctx, calls)
        try:
            act(ctx)
            return
        except Died:
            yield copy
        finally:
            shutil.rmtree(copy)
    raise AssertionError("it never ended")
