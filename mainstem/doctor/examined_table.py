"""A table as an examination sees it: read once, in the order in which a query reads."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from functools import cached_property

from mainstem.errors import Invalid, MainstemError
from mainstem.layout.properties import TableConfig
from mainstem.options import WriterOptions
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import Instant
from mainstem.truetime.clock import Clock
from mainstem.truetime.heartbeats import Heartbeats
from mainstem.truetime.instant_times import InstantTimes


@dataclass
class ExaminedTable:
    """``given``: the options of the process that asks; ``lock``: which lock it would take, or why it has none
    to tell."""

    storage: Storage
    config: TableConfig
    given: Mapping[str, str]
    clock: Clock
    lock: str | MainstemError = ""

    @cached_property
    def properties(self) -> dict[str, str]:
        """The table's own, and what was given on top."""
        return {**self.config.raw, **self.given}

    @cached_property
    def options(self) -> WriterOptions:
        """Those of a writer; the defaults where they are wrong, which is a finding of its own."""
        try:
            return WriterOptions.from_properties(self.given, self.config.raw)
        except MainstemError:
            return WriterOptions()

    @cached_property
    def state(self) -> TableState:
        """The timeline, listed before any file of the table."""
        return TableState.load(self.storage, self.config)

    @cached_property
    def now_ms(self) -> int:
        """This machine's clock, after the timeline was listed."""
        assert self.state
        return self.clock.now_ms()

    @cached_property
    def zone(self) -> tzinfo:
        """That of the instants; UTC if nobody says it, so that ages may be hours off."""
        try:
            return self.config.zone(self.options.zone) or UTC
        except Invalid:
            return UTC

    @cached_property
    def times(self) -> InstantTimes:
        """How instants are read."""
        return InstantTimes(self.zone, self.options.ahead_ms_max)

    def age_ms(self, instant: str) -> int:
        """How long ago an instant was requested, by this machine's clock."""
        return -self.times.ahead_ms(instant, self.now_ms)

    @cached_property
    def heartbeats(self) -> Heartbeats:
        """Only asked, never beaten."""
        options = self.options
        return Heartbeats(
            self.storage, self.clock, options.heartbeat_ms, options.heartbeat_misses,
            table=options.table_heartbeat,
        )  # fmt: skip

    def is_dead(self, instant: Instant) -> bool:
        """Whether nobody shows to be at work on a pending instant."""
        return self.heartbeats.expired(instant.requested, self.now_ms)

    def last_beat(self, instant: Instant) -> str:
        """For people."""
        info = self.storage.stat(paths.heartbeat(instant.requested))
        return "none" if info is None else f"{(self.now_ms - info.mtime_ms) / 1000:.0f} s ago"

    def command(self, *words: str) -> str:
        """A command of ours with the table's path."""
        verb, *rest = words
        return " ".join(["mainstem", *verb.split(), shlex.quote(self.storage.base), *rest])


def span(age_ms: float) -> str:
    """A time that has passed, for people."""
    for unit, name in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if age_ms >= 2 * unit:
            return f"{age_ms / unit:.0f} {name}"
    return f"{age_ms / 1000:.0f} seconds"
