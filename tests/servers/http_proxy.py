"""A TCP proxy that knows where requests and replies of HTTP begin and end, and makes trouble there.

``proxy.weather`` says how often what happens to a request; a fault is drawn for each:

- ``delay``: it is held back for up to ``DELAY_S``
- ``cut request``: its body ends in the middle, and the connection with it
- ``lose request``: the connection ends before the server hears of it
- ``lose reply``: the server has done it, and the connection ends without a reply
- ``cut reply``: the reply's body ends in the middle
- ``slow down``: it is answered by 503 SlowDown, and the server does not hear of it

``delays`` holds every request of a method back for so many seconds, as a distant server does.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from tests.servers.tcp_proxy import TcpProxy

FAULTS = ("delay", "cut request", "lose request", "lose reply", "cut reply", "slow down")
DELAY_S = 0.5
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_NO_BODY = (b"204", b"304")


class HttpProxy(TcpProxy):
    """Passes requests on, one at a time for each connection. ``weather``: fault -> how many of 1 meet it."""

    def __init__(
        self,
        target: int,
        weather: Mapping[str, float] | None = None,
        seed: int = 0,
        *,
        delays: Mapping[str, float] | None = None,
    ) -> None:
        self.weather = dict(weather or {})
        #: how often each fault happened
        self.done: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._delays = {method.encode(): seconds for method, seconds in (delays or {}).items()}
        super().__init__(target)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
        there: asyncio.StreamReader, back: asyncio.StreamWriter,
    ) -> None:  # fmt: skip
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b"\r\nexpect: 100-continue\r\n" in head.lower():
                    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                body = await _body(reader, head)
                await self._flows.wait()
                if pause_s := self._delays.get(head.partition(b" ")[0]):
                    await asyncio.sleep(pause_s)
                fault = self._drawn()
                if fault == "delay":
                    await asyncio.sleep(self._chance.random() * DELAY_S)
                if fault == "lose request":
                    return
                if fault == "slow down":
                    status = b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\nContent-Length: "
                    writer.write(status + str(len(_SLOW_DOWN)).encode() + b"\r\n\r\n" + _SLOW_DOWN)
                    await writer.drain()
                    continue
                if fault == "cut request":
                    await _end_with(back, head + body[: len(body) // 2])
                    return
                back.write(head + body)
                await back.drain()
                answer = await there.readuntil(b"\r\n\r\n")
                while answer.split(b" ", 2)[1] == b"100":  # it was told to go on
                    answer = await there.readuntil(b"\r\n\r\n")
                content = await _body(there, answer, asked=head)
                await self._flows.wait()
                if fault == "lose reply":
                    return
                if fault == "cut reply":
                    await _end_with(writer, answer + content[: len(content) // 2])
                    return
                writer.write(answer + content)
                await writer.drain()

    def _drawn(self) -> str:
        drawn = self._chance.random()
        for fault, share in self.weather.items():
            drawn -= share
            if drawn < 0:
                self.done[fault] += 1
                return fault
        return ""


async def _end_with(sink: asyncio.StreamWriter, last: bytes) -> None:
    """Send something, and end the connection when it has been sent."""
    sink.write(last)
    sink.close()
    await sink.wait_closed()


async def _body(stream: asyncio.StreamReader, head: bytes, asked: bytes = b"") -> bytes:
    """What follows a head, as it is sent. ``asked``: the head of the request that a reply is for."""
    first, *lines = head.split(b"\r\n")
    if asked.startswith(b"HEAD ") or (asked and first.split()[1] in _NO_BODY):
        return b""
    named = (line.partition(b":") for line in lines)
    told = {name.strip().lower(): value.strip() for name, _, value in named}
    if told.get(b"transfer-encoding", b"").lower() == b"chunked":
        return await _chunks(stream)
    return await stream.readexactly(int(told.get(b"content-length", b"0")))


async def _chunks(stream: asyncio.StreamReader) -> bytes:
    found = b""
    while True:
        size = await stream.readuntil(b"\r\n")
        found += size + await stream.readexactly(int(size.split(b";")[0], 16) + 2)
        if int(size.split(b";")[0], 16) == 0:
            return found
