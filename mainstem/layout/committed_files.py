"""Compares the files that committed instants name with the files that are there.

A listing does not show what is committed: if a file vanished, or a machine's crash cut it off, its rows would
go missing unnoticed. The metadata of a completed write names its files and their sizes. A file that a query
needs and does not find is damage, unless a clean has removed it.

A process reads each completed instant's metadata once, since its file never changes. It remembers
``TABLES_MAX`` tables with their active instants.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakKeyDictionary

from mainstem.errors import CorruptTable
from mainstem.options.reading import DAMAGED
from mainstem.storage import paths
from mainstem.storage.backends import reopens
from mainstem.storage.links import has_links
from mainstem.storage.location import Location
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.commit_metadata import CommitMetadata
from mainstem.timeline.instant import Instant

TABLES_MAX = 64
#: what to do about a file that is gone or cut off
MENDED = f"restore it from a copy, or read what is left with {DAMAGED}=skip (its rows are then missing)"


class Written(NamedTuple):
    """A base or log file as its instant's metadata names it; ``size`` in bytes, 0 if not recorded."""

    name: str
    size: int
    file_id: str
    instant: str
    is_base: bool


Files = Mapping[str, "tuple[Written, ...]"]
"""Partition -> files."""

Load = Callable[[Instant], "CommitMetadata | None"]
ParseBase = Callable[[str], "paths.BaseName | None"]

_tables: OrderedDict[Location, dict[str, Files]] = OrderedDict()
_others: WeakKeyDictionary[Storage, dict[str, dict[str, Files]]] = WeakKeyDictionary()


def files_of(metadata: CommitMetadata, parse_base: ParseBase = paths.parse_base_name) -> Files:
    """Base and log files that a write's metadata names, without change logs, which hold no table rows."""
    found: dict[str, list[Written]] = {}
    for stats in metadata.stats.values():
        for stat in stats:
            partition, _, name = (stat.get("path") or "").rpartition("/")
            log = paths.parse_log_name(name)
            parsed = parse_base(name) if log is None else None if log.is_cdc else log
            if parsed is not None:
                told = stat.get("fileSizeInBytes")
                size = told if isinstance(told, int) else 0
                written = Written(name, size, parsed.file_id, parsed.instant, log is None)
                found.setdefault(partition, []).append(written)
    return {partition: tuple(files) for partition, files in found.items()}


def _known(storage: Storage) -> dict[str, Files]:
    """What this process has read of a table: name of the completed instant's file -> files."""
    inner, folder = storage, ""
    while not reopens(inner) and hasattr(inner, "inner"):
        inner, folder = inner.inner, f"{inner.base}/{folder}"
    if not reopens(inner):
        return _others.setdefault(inner, {}).setdefault(folder, {})
    known = _tables.setdefault(storage.location, {})
    _tables.move_to_end(storage.location)
    while len(_tables) > TABLES_MAX:
        _tables.popitem(last=False)
    return known


def _loaded_together(storage: Storage, instants: Sequence[Instant], load: Load) -> Load:
    """``load``, or on a store where each look is a request, what it found when called for all at once."""
    if has_links(storage) or len(instants) < 2:
        return load
    found = dict(zip(instants, side_by_side(storage, load, instants), strict=True))
    return lambda instant: found[instant] if instant in found else load(instant)


def cut_off(path: str, size: int, least: int, table: str) -> CorruptTable:
    """The error about a file that is shorter than the commit that wrote it says; sizes in bytes."""
    return CorruptTable(
        f"the file has {size} bytes, its commit says {least}: it was cut off or emptied since; {MENDED}",
        path=path,
        offset=size,
        table=table,
    )


def forget() -> None:
    """Forget all local tables, for a test (or the like) that changes files behind a table's back."""
    _tables.clear()


@dataclass
class CommittedFiles:
    """Partition -> file name -> file, as completed writes name them."""

    by_partition: dict[str, dict[str, Written]] = field(default_factory=dict)
    _by_group: dict[tuple[str, str], dict[str, Written]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        storage: Storage,
        instants: Collection[Instant],
        load: Load,
        parse_base: ParseBase = paths.parse_base_name,
    ) -> CommittedFiles:
        """The files of ``instants``. ``load`` reads the metadata of an instant not known yet (None: it has
        none). Raises what ``load`` raises."""
        known, found = _known(storage), cls()
        load = _loaded_together(storage, [i for i in instants if i.file_name not in known], load)
        for instant in instants:
            files = known.get(instant.file_name)
            if files is None:
                metadata = load(instant)
                files = known[instant.file_name] = {} if metadata is None else files_of(metadata, parse_base)
            found.add(files)
        if len(known) > 2 * len(instants) + 1000:  # archived instants must not pile up
            names = {instant.file_name for instant in instants}
            for name in [n for n in list(known) if n not in names]:
                known.pop(name, None)
        return found

    def add(self, files: Files) -> None:
        """Add the files of one more instant."""
        for partition, written in files.items():
            self.by_partition.setdefault(partition, {}).update((file.name, file) for file in written)

    def group(self, partition: str, file_id: str) -> Mapping[str, Written]:
        """The files of one file group, by name."""
        if not self._by_group:
            for each, files in self.by_partition.items():
                for name, file in files.items():
                    self._by_group.setdefault((each, file.file_id), {})[name] = file
        return self._by_group.get((partition, file_id), {})

    def missing(
        self,
        partition: str,
        names: Collection[str],
        completion: Callable[[str], str | None],
        *,
        until: str | None = None,
        file_id: str | None = None,
        base_only: bool = False,
        replaced: Container[tuple[str, str]] = (),
        parse_base: ParseBase = paths.parse_base_name,
    ) -> list[Written]:
        """Files that the newest slices of a partition (or of one group) need and ``names`` lacks.

        Not needed: files that a newer base file of their group supersedes, and groups in ``replaced``.
        ``until``: as of that requested time; ``base_only``: log files are not needed either.
        """
        whole = file_id is None
        expected = self.by_partition.get(partition, {}) if whole else self.group(partition, file_id or "")
        absent = expected.keys() - names
        if not absent:
            return []
        groups = {expected[name].file_id for name in absent}
        # Sorted, so that the order of look-ups of completion times does not depend on a set.
        newest = _newest_bases(groups, sorted(names), completion, until, parse_base)
        found = []
        for file in (expected[name] for name in sorted(absent)):
            late = until is not None and file.instant > until
            if late or (base_only and not file.is_base) or (partition, file.file_id) in replaced:
                continue
            done = completion(file.instant)
            # A log file belongs to the newest slice that began before the log's instant was completed.
            placed = file.instant if file.is_base else done
            if done is not None and placed is not None and newest.get(file.file_id, "") <= placed:
                found.append(file)
        return found


def _newest_bases(
    groups: Container[str],
    names: Iterable[str],
    completion: Callable[[str], str | None],
    until: str | None,
    parse_base: ParseBase,
) -> dict[str, str]:
    """File id -> instant of the newest completed base file among ``names``."""
    newest: dict[str, str] = {}
    for base in filter(None, map(parse_base, names)):
        fits = base.file_id in groups and (until is None or base.instant <= until)
        if fits and base.instant > newest.get(base.file_id, "") and completion(base.instant) is not None:
            newest[base.file_id] = base.instant
    return newest
