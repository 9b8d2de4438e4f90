"""Plans change sets: which files show what a range of instants wrote and deleted, per file group.

Deletes are read from all of a group's log files of the range, in every slice: a compaction in between
carries rows over, but not deletes. If a file group was replaced within the range, its whole partition is
one unit, because its rows may live on in other groups; so it is if the table was resized. An overwrite (a
delta commit of base files, ``writers.overwriting``) deletes what completed before it was requested and is not
written anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.slicing import FileSlice
from mainstem.readers.changes.change_set import ChangedGroup, Rewrite
from mainstem.readers.changes.commit_range import (
    SERVICES,
    Window,
    base_before,
    in_merge_order,
    stats_by_group,
    told_size,
)
from mainstem.readers.planning.file_presence import check_files, check_listed
from mainstem.readers.planning.history import check_no_new_clean, just_before, past_state
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import make_split
from mainstem.readers.rows.split import ReadSpec, Split
from mainstem.storage import paths
from mainstem.timeline.commit_metadata import OVERWRITES, RESIZED_KEY

_PLAIN_GENERATORS = ("SIMPLE", "COMPLEX", "NON_PARTITION")


@dataclass
class _Found:
    """Files of one unit of work."""

    rows: list[Split] = field(default_factory=list)
    logs: dict[str, list[str]] = field(default_factory=dict)
    rewrites: list[Rewrite] = field(default_factory=list)


def changed_groups(
    state: TableState,
    window: Window,
    spec: ReadSpec,
    columns: Sequence[str],
    rows: Iterable[Split],
) -> Iterator[ChangedGroup]:
    """One unit of work per file group or partition; ``rows``: the splits that hold the range's rows."""
    planner = _Planner(state, window, spec)
    planner.look()
    for split in rows:
        planner.unit(split.partition, split.file_id).rows.append(split)
    check_no_new_clean(state)
    keys = KeyGenerator.of(state.config)
    plain = state.config.key_generator in _PLAIN_GENERATORS
    for (partition, _), found in sorted(planner.units.items()):
        logs = tuple(
            tuple(paths.in_partition(partition, name) for name in in_merge_order(names))
            for _, names in sorted(found.logs.items())
        )
        yield ChangedGroup(
            partition,
            spec,
            keys,
            tuple(columns),
            tuple(found.rows),
            logs,
            tuple(found.rewrites),
            plain,
        )


@dataclass
class _Planner:
    state: TableState
    window: Window
    spec: ReadSpec
    units: dict[tuple[str, str], _Found] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)

    def unit(self, partition: str, file_id: str) -> _Found:
        key = (partition, "" if partition in self.whole else file_id)
        return self.units.setdefault(key, _Found())

    def look(self) -> None:
        found = []
        for requested, completion in sorted(self.window.instants.items(), key=lambda pair: pair[1]):
            metadata = self.state.metadata(requested)
            if metadata is not None and RESIZED_KEY in metadata.extra:
                self.whole.update(metadata.stats)
            if metadata is not None and metadata.operation.upper() not in SERVICES:
                found.append((requested, completion, metadata))
                self.whole.update(metadata.replaced)
        for requested, completion, metadata in found:
            for partition, file_id, stats in stats_by_group(metadata):
                for stat in stats:
                    self._file(requested, partition, file_id, stat)
                if metadata.operation.upper() in OVERWRITES and not metadata.replaced:
                    self._overwritten(requested, completion, partition, file_id)
            for partition, file_ids in sorted(metadata.replaced.items()):
                self._replaced(requested, completion, partition, file_ids, metadata.stats)

    def _file(self, requested: str, partition: str, file_id: str, stat: Mapping[str, Any]) -> None:
        name = (stat.get("path") or "").rsplit("/", 1)[-1]
        log = paths.parse_log_name(name)
        if name and self.spec.damaged == "error":
            check_files(self.state, partition, [name], {name: told_size(stat)})
        if log is not None and not log.is_cdc:
            self.unit(partition, file_id).logs.setdefault(file_id, []).append(name)
        elif log is None and name and stat.get("numDeletes"):
            previous = base_before(self.state, partition, file_id, stat)
            before = () if previous is None else (self._base(partition, file_id, previous),)
            after = (self._base(partition, file_id, name),)
            self.unit(partition, file_id).rewrites.append(Rewrite(requested, before, after))

    def _overwritten(self, requested: str, completion: str, partition: str, file_id: str) -> None:
        """What completed before the request was hidden, and what completed since lies on top."""
        names = set(paths.of_group(self.state.storage.names(partition), file_id))

        def as_of(moment: str) -> tuple[Split, ...]:
            past = past_state(self.state, moment)
            if self.spec.damaged == "error":
                check_listed(past, partition, names, file_id=file_id)
            found = past.slices(partition, sorted(names), file_id=file_id)
            return tuple(make_split(one, self.spec, self.state.config) for one in found)

        if before := as_of(just_before(requested)):
            self.unit(partition, file_id).rewrites.append(Rewrite(requested, before, as_of(completion)))

    def _replaced(
        self,
        requested: str,
        completion: str,
        partition: str,
        file_ids: Sequence[str],
        stats: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        past = past_state(self.state, just_before(completion))
        names = self.state.storage.names(partition)
        for file_id in file_ids if self.spec.damaged == "error" else ():
            check_listed(past, partition, set(names), file_id=file_id)
        slices = [
            found
            for file_id in sorted(file_ids)
            for found in past.slices(partition, paths.of_group(names, file_id), file_id=file_id)
        ]
        before = tuple(make_split(found, self.spec, self.state.config) for found in slices)
        written = [stat for stat in stats.get(partition, ()) if stat.get("path")]
        after = tuple(
            self._base(partition, stat.get("fileId") or "", stat["path"].rsplit("/", 1)[-1])
            for stat in written
            if paths.parse_base_name(stat["path"].rsplit("/", 1)[-1]) is not None
        )
        self.unit(partition, "").rewrites.append(Rewrite(requested, before, after))

    def _base(self, partition: str, file_id: str, name: str) -> Split:
        return make_split(FileSlice(partition, file_id, "", name), self.spec, self.state.config)
