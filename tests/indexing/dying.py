"""Processes that die at one of the calls that change the file system."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mainstem
from mainstem.writers.context import WriterContext
from tests.storage.steps import Dead, Mortal


def doomed(ctx: WriterContext, calls: int) -> None:
    """Whoever works with this context dies after so many calls."""
    storage = Mortal(ctx.seams.storage, calls + 1)
    ctx.seams = ctx.publisher._seams = dataclasses.replace(ctx.seams, storage=storage)
    ctx.publisher._reader._storage = ctx.heartbeats._storage = storage


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
        except Dead:
            yield copy
        finally:
            shutil.rmtree(copy)
    raise AssertionError("it never ended")
