"""When services run: reads Hudi's switches into what runs in a round, after a commit and beside it.

Three ways to run a service, and the options that choose among them:

  a round         on request (``Table.run_services``, ``mainstem services``, Spark): everything runs that is
                  due and not switched off
  after a commit  the writer that committed runs it and waits (Hudi's "inline")
  beside commits  a thread of the writer's process runs it, woken by commits; the writer never waits

Hudi runs cleaning and archiving in every writer unless told not to. Here a switch counts as a request only if
it was *set*, by the caller or in the table's properties; what nobody set is decided by
``hoodie.mainstem.services``:

  AUTO  the default: compaction, cleaning and archiving run *gently* beside commits
        (``services.beside_commits``), while no other engine writes the table
  ON    the default of streams: Hudi's defaults hold, and what Hudi would run after a commit runs beside it
  OFF   nothing runs that was not requested

The metadata table's own services are the exception, because without them the data table's timeline cannot be
archived. With AUTO and ON they run beside commits, with OFF after each commit that makes them due, as Hudi's
do. A commit that finds them several times overdue, since no thread gets to them, runs them itself
(``services.metadata.metadata_overdue``). Writers that compact, after or beside their commits, also refresh
vector indexes beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mainstem.errors import Invalid
from mainstem.metadata.metadata_partitions import has_metadata
from mainstem.options.services import (
    ARCHIVE,
    ARCHIVE_ASYNC,
    BESIDE_COMMITS,
    CLEAN,
    CLEAN_ASYNC,
    COMPACT_ASYNC,
    COMPACT_INLINE,
    ENABLED,
    FLINK_CLEAN,
    FLINK_COMPACT,
    FLINK_SCHEDULE,
    LOG_COMPACT,
    LOG_COMPACT_INLINE,
    RUN_KEYS,
    SCHEDULE_INLINE,
    STREAMING_OFF,
)

#: the services of a round, in its order
ROLL_BACK, LOG_COMPACTION, COMPACTION, CLEANING, METADATA, ARCHIVING, VECTORS = SERVICES = (
    "rollback", "log-compact", "compact", "clean", "metadata", "archive", "vectors",
)  # fmt: skip


@dataclass(frozen=True)
class RunOptions:
    """What runs, and how.

    ``off``: service -> the switch that keeps it out of rounds. ``plans`` and ``executes``: whether
    compactions are planned, and planned ones executed. ``after`` and ``beside``: the services that a
    commit runs, and those that it wakes; ``after_plans``: a commit plans a compaction and leaves its
    execution to others. ``gently``: services that it wakes although nobody asked for them.
    """

    off: Mapping[str, str]
    plans: bool = True
    executes: bool = True
    after: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    after_plans: bool = False
    gently: tuple[str, ...] = ()

    @property
    def at_commits(self) -> bool:
        """Whether commits run or wake services that somebody asked for."""
        return bool(self.after or self.beside or self.after_plans)

    def with_metadata(self) -> RunOptions:
        """The same options for a table that has got a metadata table since."""
        chosen = {*self.after, METADATA}.difference(self.off, self.beside, self.gently)
        return replace(self, after=tuple(service for service in SERVICES if service in chosen))

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> RunOptions:
        """Raises ``Invalid`` for a switch that is neither true nor false, or for two that exclude each
        other (as Hudi does)."""
        switches = _Switches(properties)
        if switches.on(COMPACT_INLINE) and switches.on(SCHEDULE_INLINE):
            raise Invalid(
                f"{COMPACT_INLINE}=true and {SCHEDULE_INLINE}=true exclude each other: after a commit a"
                " compaction is either planned and executed, or planned only; set one of them"
            )
        return cls(
            switches.off(),
            plans=switches.on(FLINK_SCHEDULE, True),
            executes=switches.on(FLINK_COMPACT, True),
            after=switches.after(),
            beside=switches.beside(),
            after_plans=switches.on(ENABLED, True) and switches.on(SCHEDULE_INLINE),
            gently=switches.gently(),
        )


class _Switches:
    """The options by their newest names; all are validated, even unused ones."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = [switch for switch in RUN_KEYS if switch.found_as(properties) in properties]
        found: dict[str, bool] = {switch: switch.read(properties) for switch in given}
        self._found = found
        word = BESIDE_COMMITS.read(properties)
        self._automatic, self._gentle = word == "ON", word == "AUTO"
        self._has_metadata = has_metadata(properties)

    def on(self, key: str, default: bool = False) -> bool:
        return self._found.get(key, default)

    def off(self) -> dict[str, str]:
        """Services that rounds leave out -> the switch that says so."""
        off = {}
        for service, key, wrong in (
            (COMPACTION, COMPACT_ASYNC, False),
            (COMPACTION, STREAMING_OFF, True),
            (CLEANING, CLEAN, False),
            (CLEANING, FLINK_CLEAN, False),
            (ARCHIVING, ARCHIVE, False),
        ):
            if self._found.get(key) is wrong:
                off[service] = f"{key}={str(wrong).lower()}"
        if not (self.on(FLINK_SCHEDULE, True) or self.on(FLINK_COMPACT, True)):
            off[COMPACTION] = f"{FLINK_SCHEDULE}=false and {FLINK_COMPACT}=false"
        if not (self.on(LOG_COMPACT) or self.on(LOG_COMPACT_INLINE)):
            off[LOG_COMPACTION] = f"{LOG_COMPACT}=false"
        if not self.on(ENABLED, True):
            off = dict.fromkeys(SERVICES, f"{ENABLED}=false")
        return off

    def after(self) -> tuple[str, ...]:
        if not self.on(ENABLED, True):
            return ()
        chosen = {
            LOG_COMPACTION: self.on(LOG_COMPACT_INLINE),
            COMPACTION: self.on(COMPACT_INLINE),
            CLEANING: self._wanted(CLEANING, CLEAN) and not self._asynchronous(CLEAN_ASYNC),
            METADATA: self._has_metadata and not (self._automatic or self._gentle),
            ARCHIVING: self._wanted(ARCHIVING, ARCHIVE) and not self._asynchronous(ARCHIVE_ASYNC),
        }
        return tuple(service for service in SERVICES if chosen.get(service))

    def beside(self) -> tuple[str, ...]:
        chosen = {
            LOG_COMPACTION: self.on(LOG_COMPACT),
            COMPACTION: self._wanted(COMPACTION, COMPACT_ASYNC),
            CLEANING: self._wanted(CLEANING, CLEAN) or self.on(FLINK_CLEAN),
            METADATA: self._automatic,
            ARCHIVING: self._wanted(ARCHIVING, ARCHIVE),
            VECTORS: self._automatic or self.on(COMPACT_INLINE) or self._wanted(COMPACTION, COMPACT_ASYNC),
        }
        left_out = {*self.off(), *self.after()}
        return tuple(s for s in SERVICES if chosen.get(s) and s not in left_out)

    def gently(self) -> tuple[str, ...]:
        if not self._gentle:
            return ()
        left_out = {*self.off(), *self.after(), *self.beside()}
        if self.on(SCHEDULE_INLINE):
            left_out.add(COMPACTION)  # its execution is left to others
        chosen = [s for s in (COMPACTION, CLEANING, METADATA, ARCHIVING) if s not in left_out]
        if COMPACTION in chosen and VECTORS not in left_out:
            chosen.append(VECTORS)
        return tuple(chosen)

    def _wanted(self, service: str, key: str) -> bool:
        return service not in self.off() and self.on(key, self._automatic)

    def _asynchronous(self, key: str) -> bool:
        return self.on(key, self._automatic)
