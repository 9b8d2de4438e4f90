"""Seeded bugs of making a table, and of meeting another one at its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from mainstem.api import create
from mainstem.layout.properties import TableConfig
from mainstem.metadata import creation
from mainstem.metadata.creation import Group, put_partition, put_table
from mainstem.publish import link_fence
from mainstem.publish.publisher import Publisher
from mainstem.publish.table_identity import check_table
from mainstem.readers.planning import known_views
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.protocol import Storage
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED
from mainstem.writers import context
from tests.sim.mutants.mutant import Patch, nothing, seeded_bug
from tests.sim.world import Faults

STANDING_STILL = Faults(pause=0.01, pause_ms_max=3000, skew_ms=50)
BEFORE_RENAMES = Faults(pause_before="rename", pause_ms_max=3000, skew_ms=20)
QUIET = Faults(skew_ms=20)


def _in_place(
    storage: Storage, random: Any, config: TableConfig, contents: Mapping[str, Sequence[Group]], *,
    time: str, when: str,
) -> None:  # fmt: skip
    put_table(storage, config, when)
    for number, (partition, groups) in enumerate(contents.items()):
        instant = f"{INITIAL}{number:03d}"
        done = put_partition(storage, partition, instant, groups, table_version=config.version)
        for name, data in (
            (f"{instant}.{DELTACOMMIT}.{REQUESTED}", b""),
            (f"{instant}.{DELTACOMMIT}.{INFLIGHT}", b""),
            (f"{instant}_{time}.{DELTACOMMIT}", done),
        ):
            storage.put_new(f"{paths.METADATA_TIMELINE}/{name}", data, durable=True)
    storage.settle([], [paths.METADATA_TIMELINE], durable=True)


@seeded_bug("a creator removes the metadata table that it finds (mainstem before)", "births", STANDING_STILL)
def clears_the_metadata_table() -> list[Patch]:
    def put(storage: Storage, *given: Any, **named: Any) -> None:
        for name in sorted(storage.names(paths.METADATA)):
            storage.delete_tree(f"{paths.METADATA}/{name}")
        with suppress(FileExistsError):
            _in_place(storage, *given, **named)

    return [patch.object(creation, "put_with_table", put)]


@seeded_bug("a creator takes any metadata table that it finds for a whole one", "births", STANDING_STILL)
def half_a_metadata_table() -> list[Patch]:
    def put(storage: Storage, *given: Any, **named: Any) -> None:
        if storage.stat(paths.METADATA) is None:
            _in_place(storage, *given, **named)

    return [patch.object(creation, "put_with_table", put)]


@seeded_bug("a new metadata table is not durable before the table is there", "births", QUIET)
def birth_not_durable() -> list[Patch]:
    return [patch.object(FolderStorage, "settle", nothing)]


@seeded_bug("the properties are put in place before the metadata table that they name", "births", QUIET)
def properties_first() -> list[Patch]:
    put, link = create._put_metadata, create._link_properties
    later: list[tuple[Any, ...]] = []

    def link_then_put(*given: Any) -> None:
        link(*given)
        put(*later.pop())

    return [
        patch.object(create, "_put_metadata", lambda *given: later.append(given)),
        patch.object(create, "_link_properties", link_then_put),
    ]


@seeded_bug("the last of several creators wins", "births", BEFORE_RENAMES)
def properties_written_over() -> list[Patch]:
    def replace(storage: Storage, private: str) -> None:
        storage.rename(private, paths.PROPERTIES)

    return [patch.object(create, "_link_properties", replace)]


def _not_under_the_lock() -> list[Patch]:
    return [patch.object(link_fence, "check_same", nothing)]


@seeded_bug("nobody asks whether the table is the one that was opened", "births", QUIET)
def any_table_will_do() -> list[Patch]:
    return [*_not_under_the_lock(), patch.object(context, "check_table", nothing)]


@seeded_bug("which table it is is asked before the lock is taken, not under it", "births", STANDING_STILL)
def asked_before_the_lock() -> list[Patch]:
    attempts = Publisher._attempts

    def asked(self: Publisher, doing: str, *given: Any) -> Any:
        check_table(self._seams.storage, self._fence._table)
        return attempts(self, doing, *given)

    return [*_not_under_the_lock(), patch.object(Publisher, "_attempts", asked)]


@seeded_bug("a query does not ask which table it listed", "births", QUIET)
def reads_any_table() -> list[Patch]:
    return [patch.object(known_views, "check_table", nothing)]
