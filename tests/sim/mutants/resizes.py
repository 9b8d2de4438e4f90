"""Seeded bugs of resizes, and of what follows them."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.layout.properties import TableConfig
from mainstem.services import resizing
from mainstem.services.resizing import _Rehashed, _Round, _Since
from mainstem.writers import append, routed_anew, staged_rows
from mainstem.writers.context import WriterContext
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.mutant import Patch, seeded_bug


@seeded_bug("a writer does not look whether the table was resized since it began", "resizes")
def resize_unseen_by_writers() -> list[Patch]:
    return [patch.object(Transaction, "_follows", lambda self, section, condemned_now: None)]


@seeded_bug("a resize does not look what completed since it was requested", "resizes")
def resize_passed_by_writers() -> list[Patch]:
    return [patch.object(_Since, "touched", lambda self, timeline, any_compaction=False: set())]


@seeded_bug("the next round takes over the files of partitions that were written to", "resizes")
def resize_takes_over_too_much() -> list[Patch]:
    def all_of(self: Any, timeline: Any) -> Any:
        with patch.object(_Since, "touched", lambda self, timeline, any_compaction=False: set()):
            return standing(self, timeline)

    standing = _Round.standing
    return [patch.object(_Round, "standing", all_of)]


@seeded_bug("buckets that have no rows any more keep the old ones", "resizes")
def resize_without_empty_files() -> list[Patch]:
    def with_rows(self: Any, *given: Any) -> Any:
        return (new for new in files(self, *given) if new.tables != ())

    files = _Rehashed.files
    return [patch.object(_Rehashed, "files", with_rows)]


@seeded_bug("the properties tell the number of buckets, not the timeline", "resizes")
def resize_known_from_properties() -> list[Patch]:
    def told(self: WriterContext, found: TableConfig, timeline: Any) -> int:
        return found.buckets or 0

    return [patch.object(WriterContext, "buckets_now", told)]


@seeded_bug("deletes are not routed anew", "resized-sinks")
def resize_forgets_deletes() -> list[Patch]:
    return [patch.object(routed_anew, "_deletes", lambda encoder, partition, block: iter(()))]


@seeded_bug("a reader looks for a key by the number that is announced", "resizes")
def resize_believed_by_readers() -> list[Patch]:
    def one(self: TableConfig) -> frozenset[int]:
        resize = self.open_resize
        count = self.buckets if resize is None else resize.after
        return frozenset() if count is None else frozenset([count])

    return [
        patch.object(TableConfig, "every_buckets", property(one)),
        patch.object(TableConfig, "was_resized_from", lambda self, text: bool(self.resizes)),
    ]


@seeded_bug("a resize during a Flink checkpoint: rows stay in the buckets of their time", "resized-sinks")
def resize_during_a_checkpoint() -> list[Patch]:
    def regardless(spec: Any, identity: str) -> str:
        return mark(staged_rows.replace(spec, buckets=0), identity)

    mark = staged_rows.table_mark
    return [patch.object(staged_rows, "table_mark", regardless)]


@seeded_bug("staged rows are routed anew line by line, whatever order they carry", "resized-sinks")
def resize_disorders_a_checkpoint() -> list[Patch]:
    routed = append.routed

    def backwards(encoder: Any, file_id: Any, blocks: Any) -> Any:
        return routed(encoder, file_id, reversed(list(blocks)))

    return [patch.object(append, "routed", backwards)]


@seeded_bug("a resize goes on beside a write of another engine in flight", "resized-mixed")
def resize_beside_another_engine() -> list[Patch]:
    return [patch.object(resizing, "foreign_write", lambda storage, timeline: None)]
