"""Seeded bugs of what processes with other settings than each other must agree on."""

from __future__ import annotations

from unittest.mock import patch

from mainstem.truetime import heartbeats
from mainstem.truetime.heartbeats import Heartbeats, encode_promise
from tests.sim.mutants.mutant import STOPPING, Patch, seeded_bug


@seeded_bug("a writer is judged by the interval of whoever looks, not by its own")
def judged_by_ones_own_interval() -> list[Patch]:
    return [patch.object(Heartbeats, "_promised_ms", lambda self, instant: self.expire_ms)]


@seeded_bug("a heartbeat does not say how often it beats: all are judged as the table says")
def silent_heartbeats() -> list[Patch]:
    return [patch.object(heartbeats, "encode_promise", lambda expire_ms: b"")]


@seeded_bug("a heartbeat says how often it beats, not how many beats may be missed", faults=STOPPING)
def misses_left_out() -> list[Patch]:
    def shorter(expire_ms: int) -> bytes:
        return encode_promise(max(100, expire_ms // 5))

    return [patch.object(heartbeats, "encode_promise", shorter)]
