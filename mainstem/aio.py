"""Tables for programs of asyncio: each call runs in a thread, so the event loop goes on meanwhile.

    table = await aio.open_table("s3://lake/trips")
    outcome = await table.upsert([{"id": "a", "city": "oslo", "ts": 1, "fare": 10.0}])

A call that is cancelled has ended when ``CancelledError`` comes out: a write is then committed, or nothing of
it is visible. It is aborted if its commit has not begun yet; if it is committed, a note of the exception
(``__notes__``) names the instant. Calls may run side by side, on one table too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from mainstem.api.table import Table as PlainTable
from mainstem.api.table import open_table as _open_table
from mainstem.storage.backends import Place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from mainstem.writers.outcome import Outcome
    from mainstem.writers.rows_in import Rows

__all__ = ["Table", "open_table"]

_T = TypeVar("_T")


class _Cancelled(Exception):
    """Ends a write whose caller was cancelled, before it is committed."""


async def _decided(call: Callable[[threading.Event], _T]) -> _T:
    """Run ``call`` in a thread; its argument is set when the caller is cancelled. Returns, or raises, only
    when the thread has ended."""
    cancelled = threading.Event()
    running = asyncio.ensure_future(asyncio.to_thread(call, cancelled))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError as error:
        cancelled.set()
        while not running.done():
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                continue  # once more: the thread has not ended
        if not running.cancelled() and running.exception() is None:
            error.add_note(f"the call had succeeded: {running.result()!r:.500}")
        raise


async def open_table(
    path: Place,
    properties: Mapping[str, object] | None = None,
    *,
    clock_offset_ms: int | None = None,
) -> Table:
    """``mainstem.open_table``, in a thread."""
    return Table(
        await asyncio.to_thread(_open_table, path, properties, clock_offset_ms=clock_offset_ms)
    )


class Table:
    """A ``mainstem.Table`` whose calls are awaited. ``plain`` is the table itself, for what is not here."""

    def __init__(self, plain: PlainTable) -> None:
        self.plain = plain

    def __repr__(self) -> str:
        return f"aio.{self.plain!r}"

    async def run(self, call: Callable[[PlainTable], _T]) -> _T:
        """Any other call: ``await table.run(lambda t: t.compact())``. Cancelled, it still runs to its end."""
        return await _decided(lambda cancelled: call(self.plain))

    async def read(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
    ) -> pa.Table:
        """The rows of a query: ``scan(...).to_arrow()``."""
        return await self.run(lambda t: t.scan(columns=columns, filter=filter, as_of=as_of).to_arrow())

    async def upsert(self, rows: Rows) -> Outcome:
        """Insert or update full rows in one commit. An iterator of rows is read in the thread."""
        return await self._write("upsert", rows)

    async def insert(self, rows: Rows) -> Outcome:
        """``Table.insert``."""
        return await self._write("insert", rows)

    async def bulk_insert(self, rows: Rows) -> Outcome:
        """``Table.bulk_insert``."""
        return await self._write("bulk_insert", rows)

    async def delete(self, keys: Rows) -> Outcome:
        """``Table.delete``."""
        return await self._write("delete", keys)

    async def update_columns(self, rows: Rows) -> Outcome:
        """``Table.update_columns``."""
        return await self._write("update_columns", rows)

    async def insert_overwrite(self, rows: Rows) -> Outcome:
        """``Table.insert_overwrite``."""
        return await self._write("insert_overwrite", rows)

    async def insert_overwrite_table(self, rows: Rows) -> Outcome:
        """``Table.insert_overwrite_table``."""
        return await self._write("insert_overwrite_table", rows)

    async def _write(self, operation: str, rows: Rows) -> Outcome:
        def write(cancelled: threading.Event) -> Outcome:
            def go_on() -> None:
                if cancelled.is_set():
                    raise _Cancelled

            go_on()
            return self.plain._write_once(operation, rows, go_on)

        return await _decided(write)
