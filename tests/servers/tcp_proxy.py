"""A TCP connection in two halves, for tests that cut it.

``TcpProxy(port)`` listens on a port of its own and passes everything on to ``127.0.0.1:port``. Its
connections can be cut (both ends see a reset), or stalled: they stay open and nothing gets through, as when
a network drops packets. New connections behave like the old ones. The first ``mute`` of all are taken and
never answered. ``delay_s``: how long whatever a client sends is held back, as by a distant server.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from mainstem.storage.backends import location_of
from mainstem.storage.location import Location

_CHUNK_BYTES = 65_536


class TcpProxy:
    """Passes bytes between its clients and one server of this machine, in a thread; a context manager."""

    def __init__(self, target: int, mute: int = 0, delay_s: float = 0.0) -> None:
        self._target = target
        self._delay_s = delay_s
        self._mute = mute
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._flows.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def __enter__(self) -> TcpProxy:
        return self

    def reach(self, location: Location) -> Location:
        """The same place of the server, reached by this proxy."""
        told = location.option_values().items()
        options = {name: text.replace(f":{self._target}", f":{self.port}") for name, text in told}
        return location_of(location.base, options=options)

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self) -> None:
        """End all connections, in the middle of whatever they carry."""
        self._loop.call_soon_threadsafe(self._abort_all)

    def stall(self) -> None:
        """Let nothing through until ``flow``."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def flow(self) -> None:
        """The opposite of ``stall``."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def close(self) -> None:
        """End everything. Idempotent."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        self._abort_all()
        own = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)

    def _abort_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        if self._mute:
            self._mute -= 1
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(back)
            try:
                await self._converse(reader, writer, there, back)
            finally:
                self._open.discard(back)
                back.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass  # the server is away: the client sees its connection end; or the proxy ends
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        there: asyncio.StreamReader, back: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        """Pass on what a client and the server say, until one of them ends."""
        await asyncio.gather(self._pump(reader, back, self._delay_s), self._pump(there, writer))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_s: float = 0.0
    ) -> None:
        """One direction; when either end is gone the other is ended, too."""
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK_BYTES):
                await self._flows.wait()
                if delay_s:
                    await asyncio.sleep(delay_s)
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
