"""Seeded bugs of staged rows and of their committers."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from mainstem.flink import committer
from mainstem.flink.committer import Committer
from mainstem.flink.part_files import PartFiles
from mainstem.writers import staged_rows
from mainstem.writers.staged_rows import Stager
from mainstem.writers.transaction import Transaction
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

RACING = Faults(pause=0.03, pause_ms_max=1500, skew_ms=20)
DYING = Faults(crash=0.01, skew_ms=20)
FALLING = Faults(host_crash=0.002, skew_ms=20)


@seeded_bug("part files are listed and read before the newest batch is looked up, once", "sinks", RACING)
def listing_before_guard() -> list[Patch]:
    whole = Committer._round

    def hasty(self: Committer) -> Any:
        listed = self._parts.listed()
        read = {e.name: self._parts.read(e.name) for e in listed}
        if None in read.values():
            return whole(self)
        newest = self._look()
        with (
            patch.object(self, "_look", lambda: newest),
            patch.object(self._parts, "listed", lambda: listed),
            patch.object(self._parts, "read", read.get),
            patch.object(self._parts, "are_there", lambda parts: True),
        ):
            return whole(self)

    return [patch.object(Committer, "_round", hasty)]


@seeded_bug("part files are removed before their commit", "sinks", DYING)
def parts_removed_first() -> list[Patch]:
    commit = Transaction.commit

    def then(self: Transaction) -> Any:
        names = committer._part_names(self._extra, "") if committer.PARTS_KEY in self._extra else []
        sink = self._guard.identifier.partition("/")[2] if names and self._guard else ""
        for name in names:
            self._ctx.seams.storage.delete(PartFiles(self._ctx.seams.storage, sink).path(name))
        return commit(self)

    return [patch.object(Transaction, "commit", then)]


@seeded_bug("a sink's commits have no guard under the lock", "sinks", RACING)
def committers_without_guard() -> list[Patch]:
    whole = Transaction._may_complete

    def unguarded(self: Transaction, section: Any) -> Any:
        with patch.object(self, "_guard", None if committer.PARTS_KEY in self._extra else self._guard):
            return whole(self, section)

    return [patch.object(Transaction, "_may_complete", unguarded)]


@seeded_bug("the stamp is replaced in block headers and first rows only", "sinks", Faults())
def stamp_stays() -> list[Patch]:
    def some(data: bytes, stamp: str, instant: str) -> bytes:
        return data.replace(stamp.encode(), instant.encode(), 2)

    return [patch.object(staged_rows, "_with_instant", some)]


@seeded_bug("parts of the newest batch are not left out: a crash before their removal", "sinks", DYING)
def newest_parts_again() -> list[Patch]:
    return [patch.object(committer, "_part_names", lambda extra, instant: frozenset())]


@seeded_bug("the folders of staged rows are not synced", "sinks", FALLING)
def staged_not_synced() -> list[Patch]:
    return [patch.object(Stager, "_settle", nothing)]


@seeded_bug("a row that follows its key's deletion is written before it", "sinks", Faults())
def turns_ignored() -> list[Patch]:
    return [patch.object(Stager, "_in_turns", lambda self, batch, deleted: [(batch, deleted)])]


@seeded_bug("parts of the newest batch do not stay in a store", "sinks", DYING, body="store")
def no_blanks() -> list[Patch]:
    return [patch.object(PartFiles, "put_away", PartFiles.remove)]
