"""Seeded bugs of the metadata table's maintenance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from mainstem.metadata.commits import taking_back
from mainstem.metadata.commits.action import FileChanges
from mainstem.metadata.commits.delta_commit import MetadataCommit
from mainstem.metadata.records.recent_rows import FileRows, RecentRows
from mainstem.publish.link_fence import LinkEpoch
from mainstem.publish.publisher import Publisher
from mainstem.services import cleaning, compaction, restoring
from mainstem.services.executor import publish_end
from mainstem.services.metadata import metadata_cleaning
from mainstem.storage import paths
from mainstem.timeline.instant import COMMIT
from mainstem.writers import leftovers, rollback
from tests.sim.mutants.mutant import LOSING_LEASES, STOPPING, Patch, nothing, seeded_bug
from tests.sim.world import Faults

CRASHING = Faults(crash=0.02, skew_ms=50)
LOSING_POWER = Faults(host_crash=0.002, skew_ms=50)


@seeded_bug("the data table's file is published before the metadata table's", "indexed", CRASHING)
def data_before_metadata() -> list[Patch]:
    link = Publisher._link
    late: dict[int, tuple[Any, Any, str]] = {}

    def ahead(self: Publisher, epoch: LinkEpoch, lease: Any, given: Any, time: str) -> None:
        late[id(self)] = (epoch, given, time)

    def then(self: Publisher, how: Any, linked: Any, target: str, folders: Any) -> None:
        link(self, how, linked, target, folders)
        epoch, given, time = late.pop(id(self), (None, None, ""))
        if epoch is not None:
            name = f"{paths.METADATA_TIMELINE}/{given.name(time)}"
            link(self, lambda to: epoch.publish_ahead(to, ()), epoch.published_ahead, name, ())

    return [patch.object(Publisher, "_go_ahead", ahead), patch.object(Publisher, "_link", then)]


@seeded_bug("a rollback leaves what the instant wrote to the metadata table", "indexed", CRASHING)
def metadata_not_rolled_back() -> list[Patch]:
    none = taking_back.Found((), (), False)
    return [patch.object(rollback, "take_back", lambda *given: none)]


@seeded_bug("a rollback removes the instant from the data table first", "indexed", CRASHING)
def metadata_rolled_back_last() -> list[Patch]:
    whole = rollback.take_back

    def hasty(storage: Any, instant: str, rolled: str) -> Any:
        for state in ("inflight", "requested"):
            storage.delete(paths.timeline_file(f"{instant}.deltacommit.{state}"))
        return whole(storage, instant, rolled)

    return [patch.object(rollback, "take_back", hasty)]


@seeded_bug("the metadata table's file is published without a ticket", "indexed", LOSING_LEASES)
def no_ticket_ahead() -> list[Patch]:
    def place(self: LinkEpoch, prepared: str) -> None:
        self.unticketed = prepared  # type: ignore[attr-defined]

    def publish(self: LinkEpoch, target: str, folders: Any) -> None:
        self._storage.link(self.unticketed, target)  # type: ignore[attr-defined]
        self._storage.settle([], folders, durable=True)

    return [patch.object(LinkEpoch, "place_ahead", place), patch.object(LinkEpoch, "publish_ahead", publish)]


@seeded_bug("the metadata table's instant is not durable before the data table's", "indexed", LOSING_POWER)
def metadata_not_durable() -> list[Patch]:
    ahead = MetadataCommit.ahead.fget

    def careless(self: MetadataCommit) -> Any:
        given = ahead(self)
        return type(given)((), given.prepared, given.name, given.ready)

    return [patch.object(MetadataCommit, "ahead", property(careless))]


@seeded_bug("a clean does not take its files from the metadata table", "indexed")
def clean_leaves_ghosts() -> list[Patch]:
    return [patch.object(cleaning.FileChanges, "of_names", classmethod(lambda cls, names: cls()))]


@seeded_bug("a compaction's base files are not listed", "indexed")
def compaction_not_listed() -> list[Patch]:
    def publish(self: compaction.Execution, content: bytes, stats: Any) -> Any:
        def ended(section: Any) -> Any:
            return self.ended(section, stats)

        return publish_end(self.ctx, self.time, COMMIT, content, ended, changes=FileChanges())

    return [patch.object(compaction.Execution, "publish", publish)]


@seeded_bug(
    "what a late writer left pending on the metadata table stays for ever", "indexed", STOPPING
)
def late_instants_stay() -> list[Patch]:
    return [
        patch.object(leftovers, "_sweep_metadata", nothing),
        patch.object(MetadataCommit, "forget", nothing),
    ]


@seeded_bug("a clean of the metadata table takes the newest slice", "compacted")
def cleans_newest_slice() -> list[Patch]:
    whole = metadata_cleaning.plan_clean

    def eager(state: Any, files: Any, options: Any, now: str) -> Any:
        plan = whole(state, files, options, now)
        return None if plan is None else replace(plan, files={p: tuple(files[p]) for p in plan.files})

    return [
        patch.object(metadata_cleaning, "plan_clean", eager),
        patch.object(cleaning, "check_plan", nothing),
    ]


@seeded_bug("a restore leaves the metadata table as it was", "compacted")
def restore_keeps_metadata() -> list[Patch]:
    return [patch.object(restoring, "set_metadata_aside", nothing)]


@seeded_bug("a compaction of the metadata table lacks rows that its own process wrote", "placed-indexed")
def own_rows_left_out() -> list[Patch]:
    get = RecentRows.get

    def lacking(self: RecentRows, path: str, size: int) -> FileRows | None:
        found = get(self, path, size)
        if found is None:
            return None
        return replace(found, keys=found.keys[1:], values=found.values[1:])

    return [patch.object(RecentRows, "get", lacking)]
