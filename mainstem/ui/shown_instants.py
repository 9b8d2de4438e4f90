"""The timeline as the page shows it: each instant told once, and again when it changed.

1. A look lists the names of the timeline: instants that came, changed their state, or went.
2. Of those that went, the archive says which were archived; the others were taken back.
3. What writes say of themselves is read newest first, some hundred at a look, until all are known: so the
   bars of a long timeline are there at once, and their writers follow.

Every change has a number. A client names the last one that it knows, and gets a bounded page of newer ones.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from typing import Any

from mainstem.api.table import Table
from mainstem.errors import MainstemError
from mainstem.forks import Mutex
from mainstem.timeline.active import ActiveTimeline, TimelineReader
from mainstem.timeline.instant import Instant

#: instants that one answer tells, and whose metadata one look reads
PAGE, READ_AT_ONCE = 2_000, 800
#: archived instants that are told at first
ARCHIVED = 300
#: beyond this many, those that left the timeline are forgotten, the oldest first
KEPT_MAX = 50_000
COLUMNS = (
    "requested", "completion", "action", "state", "archived", "operation", "writer", "rows", "bytes",
    "file_groups", "partitions", "damage", "known",
)  # fmt: skip
TAKEN_BACK = "taken back"
_Key = tuple[str, str]


@dataclass
class _Row:
    """One instant. ``told``: its row of ``Table.history``, None until it was read."""

    instant: Instant
    state: str
    archived: bool = False
    told: dict[str, Any] | None = None
    changed: int = 0

    @property
    def wants_reading(self) -> bool:
        return self.told is None and self.instant.is_completed and self.state != TAKEN_BACK

    def values(self) -> list[Any]:
        told = self.told or {}
        return [
            self.instant.requested, self.instant.completion, self.instant.action, self.state, self.archived,
            told.get("operation") or "", told.get("writer") or "", told.get("rows"), told.get("bytes"),
            told.get("file_groups"), len(told.get("partitions") or ()), bool(told.get("damage")),
            not self.wants_reading,
        ]  # fmt: skip


@dataclass
class ShownInstants:
    """All instants of one table since it was first shown. ``view`` names this memory: a client that knows
    another one begins anew. ``reader`` lists the timeline, and watches a long one."""

    identity: str | None
    reader: TimelineReader
    view: str = field(default_factory=lambda: secrets.token_hex(8))
    _rows: dict[_Key, _Row] = field(default_factory=dict)
    _number: int = 0
    _unread: bool = False
    _begun: bool = False
    _trouble: str = ""
    _listed: ActiveTimeline | None = None
    _mutex: Mutex = field(default_factory=Mutex)

    def page(self, table: Table, view: str, since: int) -> dict[str, Any]:
        """What changed after ``since``, or all of it for another ``view``. Raises what ``Table.timeline``
        raises."""
        with self._mutex.held:
            since = since if view == self.view else 0
            self._look(table, since)
            newer = self._newer(since)
            told = newer[:PAGE]
            return {
                "view": self.view, "since": told[-1].changed if told else since,
                "more": len(newer) > PAGE or self._unread, "count": len(self._rows),
                "trouble": self._trouble, "columns": COLUMNS, "rows": [row.values() for row in told],
            }  # fmt: skip

    def one(self, requested: str, action: str) -> dict[str, Any] | None:
        """All that is known of one instant, and which others were open meanwhile; None if it is not known."""
        with self._mutex.held:
            row = self._rows.get((requested, action))
            if row is None:
                return None
            told = row.told or {}
            extra = json.loads(told.get("extra_metadata") or "{}")
            return {
                **dict(zip(COLUMNS, row.values(), strict=True)),
                **{name: value for name, value in told.items() if name not in COLUMNS},
                "partitions": list(told.get("partitions") or ())[:200],
                "damage": told.get("damage"), "extra_metadata": extra, "beside": self._beside(row),
            }  # fmt: skip

    def streams_told(self) -> list[dict[str, Any]]:
        """The rows of ``Table.history`` that are known of completed writes, oldest first."""
        with self._mutex.held:
            known = [r.told for r in self._rows.values() if r.told is not None and r.state != TAKEN_BACK]
        return sorted(known, key=lambda told: told["completion"] or "")

    def _beside(self, row: _Row) -> dict[str, int]:
        """How many others were open at the same time, and how many of those wrote one of its partitions."""
        mine = set((row.told or {}).get("partitions") or ())
        begun, ended = row.instant.requested, row.instant.completion or "9"
        open_, same = 0, 0
        for other in self._rows.values():
            if other is row or other.instant.requested >= ended or (other.instant.completion or "9") <= begun:
                continue
            if other.state == TAKEN_BACK and not other.instant.completion:
                continue  # it is not known when it ended
            open_ += 1
            same += not mine.isdisjoint((other.told or {}).get("partitions") or ())
        return {"open": open_, "same_partitions": same}

    # -- looking -----------------------------------------------------------------------------------

    def _newer(self, since: int) -> list[_Row]:
        rows = (row for row in self._rows.values() if row.changed > since)
        return sorted(rows, key=lambda row: row.changed)

    def _look(self, table: Table, since: int) -> None:
        timeline = self.reader.load()
        if timeline is not self._listed:
            self._compare(table, timeline)
            self._listed = timeline
        try:
            if len(self._newer(since)) > PAGE:
                self._unread = True  # a long timeline's bars go out before anything is read
            else:
                if not self._begun:
                    self._begun = True
                    self._archived_before(table)
                self._read_some(table)
            self._trouble = ""
        except MainstemError as error:  # the bars are there all the same
            self._trouble, self._unread = str(error), False

    def _compare(self, table: Table, timeline: ActiveTimeline) -> None:
        listed = {(i.requested, i.comparable_action): i for i in timeline.instants}
        newest = max((r.instant.completion or "" for r in self._rows.values()), default="")
        for key, instant in listed.items():
            row = self._rows.get(key)
            if row is None or row.instant != instant or row.archived or row.state == TAKEN_BACK:
                told = row.told if row is not None and row.instant.file_name == instant.file_name else None
                self._rows[key] = _Row(instant, instant.state, told=told, changed=self._next())
        gone = [
            row for key, row in self._rows.items()
            if key not in listed and not row.archived and row.state != TAKEN_BACK
        ]  # fmt: skip
        if gone:
            self._went(table, gone, newest)
        if len(self._rows) > KEPT_MAX:
            left = sorted(key for key, row in self._rows.items() if row.archived or row.state == TAKEN_BACK)
            for key in left[: len(self._rows) - KEPT_MAX]:
                del self._rows[key]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _went(self, table: Table, gone: list[_Row], newest: str) -> None:
        """Instants that the timeline no longer shows: archived ones are in the history."""
        completions = [row.instant.completion for row in gone if row.instant.completion]
        ranges: list[tuple[str | None, str | None]] = []
        if completions:
            ranges.append((_just_before(min(completions)), max(completions)))
        if len(completions) < len(gone):  # pending ones may have been completed and archived since
            ranges.append((newest or None, None))
        found = {}
        for after, until in ranges:
            for told in table.history(after, until).to_pylist():
                found[told["requested"], _comparable(told)] = told
        for row in gone:
            told = found.get((row.instant.requested, row.instant.comparable_action))
            if told is not None and told["completion"]:
                self._put(told)
            else:
                row.state, row.changed = TAKEN_BACK, self._next()

    def _archived_before(self, table: Table) -> None:
        """The newest archived instants, once."""
        done = [r.instant.completion for r in self._rows.values() if r.instant.completion]
        until = _just_before(min(done)) if done else None
        for told in table.history(None, until, limit=ARCHIVED).to_pylist():
            if told["archived"]:
                self._put(told)

    def _read_some(self, table: Table) -> None:
        """What the newest completed instants that were not read say of themselves."""
        unread = sorted(
            (row for row in self._rows.values() if row.wants_reading),
            key=lambda row: row.instant.completion or "",
        )
        some = unread[-READ_AT_ONCE:]
        self._unread = len(unread) > len(some)
        if not some:
            return
        after = _just_before(some[0].instant.completion or "")
        for told in table.history(after, some[-1].instant.completion, limit=2 * READ_AT_ONCE).to_pylist():
            self._put(told)
        for row in some:  # gone meanwhile: the next look finds out
            if row.told is None:
                row.changed = self._next()

    def _put(self, told: dict[str, Any]) -> None:
        key = told["requested"], _comparable(told)
        row = self._rows.get(key)
        if row is not None and row.told is not None and row.archived == told["archived"]:
            return
        instant = Instant(told["requested"], told["action"], told["state"].lower(), told["completion"])
        self._rows[key] = _Row(instant, instant.state, told["archived"], told, self._next())


def _comparable(told: dict[str, Any]) -> str:
    return Instant(told["requested"], told["action"], "", None).comparable_action


def _just_before(time: str) -> str:
    """The greatest text of 17 digits below ``time``: perhaps no time of a clock, but they compare as text."""
    return f"{max(int(time[:17].ljust(17, '0')) - 1, 0):017}"
