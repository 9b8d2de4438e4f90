"""Goal: programs of asyncio use one table from many tasks; a write that is cancelled is committed or aborted
when the cancellation comes out, never half, and nothing runs on behind it.

Method: fifty tasks at once on one table; writes are held up at a chosen step and cancelled there, and the
table is looked at as soon as the exception is there.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from small_table import content, rows

import mainstem
from mainstem import aio
from mainstem.errors import Invalid
from mainstem.writers import rows_in
from mainstem.writers.transaction import Transaction

PATIENCE_S = 30


@pytest.mark.supports("Writing", "asyncio: many requests on one table, cancelled safely")
def test_fifty_requests_at_once_on_one_table(make_table):
    make_table()

    async def request(table: aio.Table, number: int) -> str:
        given = [{"id": f"k{number}", "city": "a", "ts": number, "value": f"v{number}"}]
        given += [{"id": "shared", "city": "a", "ts": number, "value": f"v{number}"}]
        outcome = await table.upsert(given)
        found = await table.read(columns=["id"])
        assert f"k{number}" in found["id"].to_pylist()
        return outcome.status

    async def serve(path: Path) -> list[str]:
        table = await aio.open_table(path)
        return await asyncio.gather(*(request(table, number) for number in range(50)))

    path = Path(make_table("shared").path)
    assert asyncio.run(serve(path)) == ["committed"] * 50
    table = mainstem.open_table(path)
    assert content(table) == {f"k{i}": f"v{i}" for i in range(50)} | {"shared": "v49"}
    assert len(table.timeline()) == 50


def test_every_method_does_what_the_plain_one_does(make_table):
    async def use(table: aio.Table) -> None:
        await table.upsert(rows([1, 2], ts=1))
        await table.insert(rows([3], ts=1).to_pylist())
        await table.delete({"id": ["k2"], "city": ["a"]})
        await table.bulk_insert(rows([4], ts=1, city="b"))
        assert set(content(table.plain)) == {"k1", "k3", "k4"}
        await table.insert_overwrite(rows([5], ts=1))
        assert set(content(table.plain)) == {"k4", "k5"}
        await table.insert_overwrite_table(rows([6], ts=1))
        assert (await table.read(columns=["id"])).to_pylist() == [{"id": "k6"}]
        assert await table.run(lambda t: t.schema) == table.plain.schema
        with pytest.raises(Invalid, match="'ts'"):
            await table.upsert({"id": ["a"]})
        with pytest.raises(mainstem.Unsupported, match="update_columns"):
            await table.update_columns({"id": ["k6"], "city": ["a"], "ts": [2], "value": ["x"]})

    asyncio.run(use(aio.Table(make_table())))


class HeldUp:
    """A step that waits until it is let go."""

    def __init__(self, monkeypatch, name: str, *, afterwards: bool = False) -> None:
        self.there, self.go = threading.Event(), threading.Event()
        step = getattr(Transaction, name)

        def slowly(*args, **options):
            found = step(*args, **options) if afterwards else None
            self.there.set()
            assert self.go.wait(PATIENCE_S)
            return found if afterwards else step(*args, **options)

        monkeypatch.setattr(Transaction, name, slowly)


async def cancelled_at(step: HeldUp, table: aio.Table, given: object) -> asyncio.CancelledError:
    """Cancel an upsert while it is held up, several times, then let it go."""
    writing = asyncio.ensure_future(table.upsert(given))
    await asyncio.to_thread(step.there.wait, PATIENCE_S)
    for _ in range(3):
        writing.cancel()
        await asyncio.sleep(0.01)
        assert not writing.done(), "the thread has not ended"
    step.go.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await writing
    return caught.value


@pytest.mark.parametrize("step", ["_publish_requested", "write"])
def test_a_write_that_is_cancelled_before_its_commit_is_aborted(step, make_table, monkeypatch):
    table = make_table()
    table.upsert(rows([0], ts=1))

    async def use() -> None:
        error = await cancelled_at(HeldUp(monkeypatch, step), aio.Table(table), rows([1], ts=1))
        assert content(table) == {"k0": "v0"}
        assert all(i.is_completed for i in table.timeline())
        assert not getattr(error, "__notes__", [])

    asyncio.run(use())


@pytest.mark.parametrize("afterwards", [False, True])
def test_a_write_that_is_cancelled_in_its_commit_stays_and_says_so(afterwards, make_table, monkeypatch):
    table = make_table()

    async def use() -> None:
        held = HeldUp(monkeypatch, "commit", afterwards=afterwards)
        error = await cancelled_at(held, aio.Table(table), rows([1], ts=1))
        assert content(table) == {"k1": "v1"}
        (instant,) = table.timeline()
        assert instant.is_completed
        assert "committed" in error.__notes__[0] and instant.requested in error.__notes__[0]

    asyncio.run(use())


def test_a_stream_that_is_cancelled_ends_at_its_next_batch(make_table, monkeypatch):
    monkeypatch.setattr(rows_in, "GATHERED_ROWS", 1)
    table = make_table()
    there, taken = threading.Event(), []

    def endless():
        while True:
            taken.append(len(taken))
            if len(taken) == 5:
                there.set()
            yield rows([len(taken)], ts=1)

    async def use() -> None:
        writing = asyncio.ensure_future(aio.Table(table).upsert(endless()))
        await asyncio.to_thread(there.wait, PATIENCE_S)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(writing, PATIENCE_S)
        count = len(taken)
        await asyncio.sleep(0.05)
        assert len(taken) == count, "it runs on"

    asyncio.run(use())
    assert content(table) == {}
    assert all(i.is_completed for i in table.timeline())


def test_a_write_that_was_cancelled_while_it_waited_for_a_thread_never_begins(make_table):
    table = make_table()
    go = threading.Event()

    async def use() -> None:
        from concurrent.futures import ThreadPoolExecutor

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        other = asyncio.ensure_future(asyncio.to_thread(go.wait, PATIENCE_S))
        await asyncio.sleep(0)
        writing = asyncio.ensure_future(aio.Table(table).upsert(rows([1], ts=1)))
        await asyncio.sleep(0.01)
        writing.cancel()
        await asyncio.sleep(0.01)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await other

    asyncio.run(use())
    assert table.timeline() == []


def test_a_time_out_of_asyncio_is_a_cancellation(make_table, monkeypatch):
    table = make_table()
    held = HeldUp(monkeypatch, "write")

    async def use() -> None:
        asyncio.get_running_loop().call_later(0.3, held.go.set)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await aio.Table(table).upsert(pa.table(rows([1], ts=1)))

    asyncio.run(use())
    assert content(table) == {}
    assert all(i.is_completed for i in table.timeline())
