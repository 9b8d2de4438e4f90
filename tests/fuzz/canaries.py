"""Parsers with a planted bug each: the harness must find all of them (``test_fuzz``)."""

from __future__ import annotations

import time

from mainstem.errors import CorruptTable
from tests.fuzz.harness import Target

_SEED = b"\x05hello\x00\x00\x03end"


def _values(data: bytes) -> list[bytes]:
    """Values behind a byte with their length; a zero is an empty one."""
    found, at = [], 0
    while at < len(data):
        size = data[at]
        if at + 1 + size > len(data):
            raise CorruptTable("cut off", path="f", offset=at)
        found.append(data[at + 1 : at + 1 + size])
        at += 1 + size
    return found


def _leaks(data: bytes) -> list[bytes]:
    return [bytes([data[1]]), *_values(data)]  # IndexError where there is one byte


def _allocates(data: bytes) -> list[bytes]:
    found = _values(data)
    if len(found) > 6:
        bytearray(200 << 20)[::4096] = b"x" * (200 << 8)
    return found


def _spins(data: bytes) -> list[bytes]:
    found, began = _values(data), time.process_time()
    while len(found) > 6 and time.process_time() - began < 1.5:
        pass
    return found


def _hangs(data: bytes) -> list[bytes]:
    found = _values(data)
    while len(found) > 6:
        time.sleep(1)
    return found


def _takes_anything(data: bytes) -> list[bytes]:
    try:
        return _values(data)
    except CorruptTable:
        return []


def _is_prefix(whole: list, found: list) -> bool:
    return whole[: len(found)] == found


GOOD = Target("a parser without a bug", _values, lambda: [_SEED], _is_prefix)
LEAKS = Target("leaks an IndexError", _leaks, lambda: [_SEED], _is_prefix)
ALLOCATES = Target("takes 200 MiB", _allocates, lambda: [_SEED], _is_prefix)
SPINS = Target("takes 1.5 seconds", _spins, lambda: [_SEED], _is_prefix)
HANGS = Target("never ends", _hangs, lambda: [_SEED], _is_prefix)
TAKES_ANYTHING = Target("takes what is cut off", _takes_anything, lambda: [_SEED])
CANARIES = [GOOD, LEAKS, ALLOCATES, SPINS, HANGS, TAKES_ANYTHING]
