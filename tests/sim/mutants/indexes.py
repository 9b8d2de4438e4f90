"""Seeded bugs of indexes beside writers: the races of RFC-45 that ``mutants_indexing`` leaves, a dropper that
comes late, writers that go by what they knew of the indexes when they began."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from mainstem.indexing import dropping as dropping
from mainstem.indexing import index_build, index_lists
from mainstem.indexing.coverage import Coverage
from mainstem.indexing.expected_contents import Contents
from mainstem.indexing.index_plan import contiguous_until
from mainstem.indexing.initial_rows import InitialRows
from mainstem.layout.properties import TableConfig
from mainstem.metadata.commits import partition_rows, partition_statistics
from mainstem.metadata.commits.action import Action
from mainstem.metadata.commits.partition_rows import Maintained
from mainstem.metadata.derive.bootstrap import Sorter, pair_rows
from mainstem.metadata.metadata_partitions import FILES, RECORD_INDEX, Content, Kind
from mainstem.publish.publisher import Guarded
from mainstem.storage.protocol import Storage
from mainstem.writers.context import WriterContext
from tests.sim.mutants.mutant import Patch, seeded_bug

_A_WHILE_MS = 1500


@seeded_bug("a writer maintains the indexes that the table had at its first commit (#18180)", "indexes")
def old_lists_decide() -> list[Patch]:
    """Rows are missing of every writer that began before the index."""
    known: dict[int, tuple[Storage, TableConfig]] = {}
    real = Maintained.now

    def remembered(storage: Storage, config: TableConfig, *given: Any, **named: Any) -> Any:
        return real(storage, known.setdefault(id(storage), (storage, config))[1], *given, **named)

    return [patch.object(Maintained, "now", remembered)]


@seeded_bug("an index is in no list for a moment when it completes (RFC-45, second race)", "indexes")
def unlisted_for_a_moment() -> list[Patch]:
    real = index_build._Build.run

    def unlisted(self: Any, section: Guarded) -> None:
        index_lists.change(self.ctx.seams, section, lambda now: index_lists.gone(now, [self.partition]))

    def run(self: Any) -> Any:
        found = real(self)
        self.ctx.seams.clock.sleep_ms(_A_WHILE_MS)
        self.ctx.publisher.guarded(
            lambda section: index_lists.change(
                self.ctx.seams, section, lambda now: index_lists.finished(now, self.partition)
            )
        )
        return found

    build = index_build._Build
    return [patch.object(build, "_now_whole", unlisted), patch.object(build, "run", run)]


@seeded_bug("the listing point lies behind the entry in the list (RFC-45, third race)", "indexing")
def listed_after_the_lock() -> list[Patch]:
    """A file may be in the index's base file and in its writer's log file: it comes back after a clean."""
    real = index_build._Build.run

    def run(self: Any) -> Any:
        guarded = self.ctx.publisher.guarded

        def later(work: Any) -> Any:
            found = guarded(work)
            if work == self._open:
                self.ctx.seams.clock.sleep_ms(_A_WHILE_MS)
                self.opened = (self.ctx.timeline(), self.opened[1])
            return found

        with patch.object(self.ctx.publisher, "guarded", later):
            return real(self)

    missing = patch.object(Coverage, "_missing", lambda *given: [])
    return [patch.object(index_build._Build, "run", run), missing]


@seeded_bug("what completed above a hole in the timeline is left out (RFC-45, fourth race)", "indexing")
def holes_matter() -> list[Patch]:
    def of_listing(self: InitialRows) -> None:
        until = contiguous_until(self.state.timeline)
        self._rows = self._with(Contents(self.state), lambda file: _instant(file.name) <= until)

    return [patch.object(InitialRows, "of_listing", of_listing)]


def _instant(name: str) -> str:
    stem = name.partition(".log.")[0] if ".log." in name else name.removesuffix(".parquet")
    return stem.rpartition("_")[2]


@seeded_bug("an index is listed as whole before it has caught up, as Java does", "indexes")
def whole_before_it_is() -> list[Patch]:
    begun = index_lists.begun

    def listed(config: TableConfig, partition: str) -> dict[str, str | None]:
        ready = index_lists.finished(config, partition)[index_lists.READY]
        return {**begun(config, partition), index_lists.READY: ready}

    return [patch.object(index_lists, "begun", listed)]


@seeded_bug("a dropper removes what it finds in the folder when it comes to that", "indexes")
def late_dropper() -> list[Patch]:
    remove = dropping._remove

    def late(ctx: WriterContext, names: Mapping[str, list[str]], actions: Collection[str]) -> int:
        ctx.seams.clock.sleep_ms(_A_WHILE_MS)
        there = {p: ctx.seams.storage.names(f".hoodie/metadata/{p}") for p in names if p != FILES}
        return remove(ctx, {**names, **there}, actions)

    return [patch.object(dropping, "_remove", late)]


@seeded_bug("partition statistics of a writer replace those of writers that it crossed", "indexes")
def tight_statistics() -> list[Patch]:
    made = partition_statistics.partition_stats_rows

    def tight(rows: Any, **given: Any) -> Any:
        return made(rows, **{**given, "tight": True})

    return [patch.object(partition_statistics, "partition_stats_rows", tight)]


@seeded_bug("a commit that is tried again leaves the rows of the record index out", "indexes")
def not_tried_again() -> list[Patch]:
    rows, seen = partition_rows.action_rows, set()

    def action_rows(action: Action, maintained: Maintained) -> Iterator[Any]:
        again = (action.storage.base, action.instant) in seen
        seen.add((action.storage.base, action.instant))
        for made in rows(action, maintained):
            if not (again and made[0] == RECORD_INDEX):
                yield made

    return [patch.object(partition_rows, "action_rows", action_rows)]


@seeded_bug("a writer takes the pair away that its row has no more (as Java does)", "indexes")
def pairs_taken_away() -> list[Patch]:
    """In event-time order the row that had it may be the one that counts."""
    real = partition_rows._ROWS_OF[Kind.SECONDARY_INDEX]
    known: dict[tuple[str, str], dict[str, str]] = {}

    def rows(action: Action, partition: str, groups: tuple[str, ...]) -> Iterator[Any]:
        made = {group: found.table() for group, _, found in real(action, partition, groups)}
        pairs = [pair for table in made.values() for pair in table["key"].to_pylist()]
        mine = {pair.rpartition("$")[2]: pair for pair in pairs}
        before = known.setdefault((action.storage.base, partition), {})
        gone = sorted(before[key] for key in mine if key in before and before[key] not in pairs)
        before.update(mine)
        sorter = Sorter(len(groups), secondary_version=action.definitions.secondary_version(partition))
        if gone:
            sorter.add(pa.array(gone), 0)
            for number, keys, _ in sorter.sorted_groups():
                if len(keys):
                    taken = pair_rows(keys)
                    taken = taken.set_column(
                        taken.schema.get_field_index("deleted"), taken.schema.field("deleted"),
                        pa.array([True] * len(keys)),
                    )  # fmt: skip
                    whole = [made[groups[number]], taken] if groups[number] in made else [taken]
                    made[groups[number]] = pa.concat_tables(whole).sort_by("key")
        yield from ((group, Content.SECONDARY, table) for group, table in made.items())

    return [patch.dict(partition_rows._ROWS_OF, {Kind.SECONDARY_INDEX: rows})]
