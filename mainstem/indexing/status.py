"""The indexes of a table and the state of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from mainstem.errors import Invalid
from mainstem.indexing.dropping import instant_of
from mainstem.indexing.index_lists import building, ready
from mainstem.indexing.index_plan import planned_builds
from mainstem.layout.properties import TableConfig
from mainstem.metadata.commits.taking_back import metadata_partition
from mainstem.metadata.index_definitions import Definition, read_definitions
from mainstem.metadata.metadata_partitions import EXPRESSION_PREFIX, SECONDARY_PREFIX, kind_of
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import ActiveTimeline

READY = "ready"
BUILDING = "building"
PLANNED = "planned"
LEFT_OVER = "left over"


@dataclass(frozen=True)
class Index:
    """One index of a table, a partition of its metadata table.

    ``name``: as SQL calls it; ``partition``: its folder in the metadata table; ``kind``: Hudi's name of
    the kind, ``unknown`` for one that mainstem does not know. ``columns``: what it is on, () for all keys
    or files; ``function``: of an expression index, "upper" and the like, ``index_type``: what its rows are.
    ``state``: ``ready``;
    ``building`` (writers maintain it, readers do not use it); ``planned``; ``left over`` (a build or a drop
    that died, or a definition without index). ``action``: requested time of the pending index action that
    builds it.
    """

    name: str
    partition: str
    kind: str
    columns: tuple[str, ...] = ()
    function: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    state: str = READY
    action: str | None = None
    index_type: str = ""

    def describe(self) -> str:
        """One line for people."""
        on = f" on {', '.join(self.columns)}" if self.columns else ""
        how = f" of {self.function}" if self.function not in ("", "identity", self.kind) else ""
        by = f" (index action {self.action})" if self.action is not None else ""
        return f"{self.name}: {self.kind}{how}{on}, {self.state}{by}"


def indexes(storage: Storage, config: TableConfig, timeline: ActiveTimeline) -> list[Index]:
    """The indexes of the table, by name, and ``files``, the listing on which all rest.

    Raises ``CorruptTable`` for damaged definitions or plans.
    """
    entries = read_definitions(storage, config).by_partition
    plans = planned_builds(storage, timeline)
    whole, unfinished = ready(config), building(config)
    found = []
    known = {*whole, *unfinished, *plans, *entries}
    for partition in sorted({*known, *_with_files(storage, known)}):
        action = plans.get(partition, [None])[-1]
        if partition in whole:
            # Java lists an index before it has caught up with the writers.
            state = READY if action is None else BUILDING
        elif partition in unfinished:
            state = LEFT_OVER if action is None else BUILDING
        else:
            state = LEFT_OVER if action is None else PLANNED
        found.append(_index(partition, entries.get(partition), state, action))
    return found


def _with_files(storage: Storage, known: Collection[str]) -> list[str]:
    """Partitions of the metadata table that nothing names and that have files: who dropped them died."""
    folders = [e.name for e in storage.entries(paths.METADATA) if e.is_folder and e.name != paths.HOODIE]
    return [name for name in folders if name not in known and _files(storage, name)]


def _files(storage: Storage, partition: str) -> list[str]:
    names = storage.names(metadata_partition(partition))
    return [name for name in names if instant_of(partition, name) is not None]


def _index(partition: str, known: Definition | None, state: str, action: str | None) -> Index:
    entry = known or Definition(partition, "")
    kind = kind_of(partition)
    function = "" if entry.function == partition else entry.function
    return Index(
        short_name(partition), partition, "unknown" if kind is None else str(kind), entry.fields, function,
        entry.options, state, action, entry.index_type,
    )  # fmt: skip


def short_name(partition: str) -> str:
    """The name that SQL gives to the index in a partition."""
    for prefix in (SECONDARY_PREFIX, EXPRESSION_PREFIX):
        if partition.startswith(prefix) and partition != prefix:
            return partition[len(prefix) :]
    return partition


def find(name: str, known: Sequence[Index], table: str) -> Index | None:
    """The index that a user names, by its short name or by its partition; None if there is none.

    Raises ``Invalid`` where a secondary and an expression index share the short name.
    """
    exact = [index for index in known if index.partition == name]
    found = exact or [index for index in known if index.name == name]
    if len(found) > 1:
        raise Invalid(
            f"the name {name!r} stands for {' and '.join(i.partition for i in found)}: say which", table=table
        )
    return found[0] if found else None
