"""Seeded bugs of streams whose offsets stand in the commits, and of the loop that reads them."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.ingestion.ingester import Ingester
from mainstem.ingestion.kafka_topic import KafkaTopic
from mainstem.writers.stream_positions import PositionIndex, StreamPositions
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.mutant import FAILING, Patch, nothing, seeded_bug
from tests.sim.world import Faults

RACING = Faults(pause=0.03, pause_ms_max=3000, skew_ms=20)


@seeded_bug("offsets are looked at when a write begins, not under the lock", "offsets", RACING)
def offsets_outside_lock() -> list[Patch]:
    whole = Transaction._may_complete

    def unguarded(self: Transaction, section: Any) -> Any:
        with patch.object(self, "_guard", None if isinstance(self._guard, StreamPositions) else self._guard):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", unguarded)]


@seeded_bug("a commit says where its own partitions stand, not the others", "offsets", RACING)
def other_partitions_forgotten() -> list[Patch]:
    return [patch.object(StreamPositions, "whole", property(lambda self: dict(self.ends)))]


@seeded_bug("offsets are looked for on the active timeline only", "offsets")
def archived_offsets_forgotten() -> list[Patch]:
    return [
        patch.object(PositionIndex, "_noted", lambda self, source, timeline: iter(())),
        patch.object(PositionIndex, "_searched", lambda self, source: iter(())),
    ]


@seeded_bug("the newest offsets are those of the commit that was requested last", "offsets", RACING)
def offsets_by_requested_time() -> list[Patch]:
    active = PositionIndex._active

    def by_requested(self: PositionIndex, source: str, timeline: Any) -> Any:
        return ((positions.instant, positions) for _, positions in active(self, source, timeline))

    return [patch.object(PositionIndex, "_active", by_requested)]


@seeded_bug("what was read is kept after a failure, and read again", "offsets", FAILING)
def kept_after_a_failure() -> list[Patch]:
    after = Ingester._after

    def keeps(self: Ingester, error: Exception) -> None:
        with patch.object(self, "_discard", nothing):
            after(self, error)

    return [patch.object(Ingester, "_after", keeps)]


@seeded_bug("records fetched before their partition was placed anew are taken", "offsets", RACING)
def stale_records_taken() -> list[Patch]:
    return [patch.object(KafkaTopic, "_jumps", lambda self, first: self._placed_at.clear() or False)]


@seeded_bug("a process goes on from where it read to, though another committed that first", "offsets", RACING)
def goes_on_after_another() -> list[Patch]:
    return [patch.object(KafkaTopic, "unplace", nothing), patch.object(Ingester, "_discard", nothing)]


@seeded_bug("a partition given back is read on from where this process was", "offsets", RACING)
def read_on_from_memory() -> list[Patch]:
    rewind = KafkaTopic.rewind

    def remembers(self: KafkaTopic) -> None:
        kept = self.__dict__.setdefault("was_at", {})
        rewind(self)
        for partition, at in sorted(kept.items()):
            if partition in self.next:
                self.next[partition] = max(at, self.next[partition])
        kept |= self.next
        if self.next:
            self.place()

    collect = KafkaTopic.collect

    def collected(self: KafkaTopic, records: int, wait_s: float) -> Any:
        found = collect(self, records, wait_s)
        self.__dict__.setdefault("was_at", {}).update(self.next)
        return found

    return [patch.object(KafkaTopic, "rewind", remembers), patch.object(KafkaTopic, "collect", collected)]


@seeded_bug("of two partitions with gaps only one is known to have come twice", "offsets")
def gaps_forgotten() -> list[Patch]:
    def jumps(self: KafkaTopic, first: Any) -> bool:
        found = False
        for partition, offset in sorted(first.items()):
            if partition not in self._placed_at:
                continue
            if offset in (self.next.get(partition), self._placed_at[partition]):
                del self._placed_at[partition]
            elif offset > self.next.get(partition, offset):
                self._placed_at[partition] = offset
                found = True
        return found

    return [patch.object(KafkaTopic, "_jumps", jumps)]
