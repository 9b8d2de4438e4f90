"""Checks that the files a query needs exist and are whole; a missing or short file is reported as damage.

For a listed folder, committed writes say which files it must contain (``layout.committed_files``). For the
metadata table's listing, the file system says which files exist. A file that is shorter than its commit says
(such as an empty one after a machine crash without fsync) is damage as well: its rows would be missing
silently. Only files that the query reads are checked, once, during planning.

A file that a clean removed is not damage, nor is one that a clean, restore or rollback removes during the
check: then ``FileNotFoundError`` makes the query start again. ``mainstem.read.damaged=skip`` reads what is
left.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mainstem.errors import CorruptTable
from mainstem.formats.log_file import read_blocks
from mainstem.layout.committed_files import MENDED, Written, cut_off
from mainstem.layout.partitions import PartitionListing
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileSlice, query_slice
from mainstem.layout.wanted_folders import WantedFolders
from mainstem.readers.planning.history import check_no_new_clean, cleaned_since
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import maps, paths
from mainstem.storage.files import file_info
from mainstem.storage.protocol import Storage

_LOOKS = 4


@dataclass
class Checks:
    """The checks of one query. ``damaged``: the query's setting; ``skip`` turns all checks off. ``later``:
    sizes are compared when the files are opened (``known_views.checks_later``). ``wanted``: others were not
    listed."""

    state: TableState
    damaged: str
    until: str | None = None
    base_only: bool = False
    replaced: Container[tuple[str, str]] = ()
    later: bool = False
    wanted: WantedFolders | None = None
    _sizes: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def listings(self, found: Iterable[PartitionListing]) -> Iterator[PartitionListing]:
        """``found``, plus an empty listing for each partition that has committed files but was not listed."""
        names, by_folders = set(), self.damaged == "error"
        for listing in found:
            names.add(listing.partition)
            by_folders = by_folders and listing.sizes is None
            yield listing
        if by_folders:
            for partition in sorted(self.state.view.committed.by_partition.keys() - names):
                if self.wanted is None or self.wanted.keeps(partition):
                    yield PartitionListing(partition, ())

    def listed(self, listing: PartitionListing) -> None:
        """Runs ``check_listed`` if the listing comes from the file system; notes the files' sizes."""
        if self.damaged != "error":
            return
        if listing.sizes is None:
            check_listed(
                self.state, listing.partition, set(listing.names), until=self.until,
                base_only=self.base_only, replaced=self.replaced,
            )  # fmt: skip
        sizes = listing.sizes
        if sizes is None:
            sizes = committed_sizes(self.state, listing.partition)
        self._sizes[listing.partition] = sizes

    def whole(self, found: FileSlice) -> Mapping[str, int]:
        """Checks the files of a slice that is read. Raises what ``check_files`` raises.

        Returns what is left to check when the files are opened: name -> least size in bytes.
        """
        if self.damaged != "error":
            return {}
        sizes = self._sizes.get(found.partition, {})
        if self.later:
            return sizes
        check_slice(self.state, found, sizes, base_only=self.base_only)
        return {}


def check_listed(
    state: TableState,
    partition: str,
    names: Collection[str],
    *,
    until: str | None = None,
    file_id: str | None = None,
    base_only: bool = False,
    replaced: Container[tuple[str, str]] = (),
) -> None:
    """Raises ``CorruptTable`` if the newest slices of a partition (of one group, as of ``until``) need a
    committed file that is not among ``names``; ``FileNotFoundError`` if something may just have removed it.
    """
    lost = state.view.committed.missing(
        partition, names, state.completion, until=until, file_id=file_id, base_only=base_only,
        replaced=replaced, parse_base=state.parse_base,
    )  # fmt: skip
    if not lost:
        return
    cleaned = cleaned_since(state.view, "").get(partition, set())
    lost = [file for file in lost if file.name not in cleaned]
    if lost:
        check_no_new_clean(state)
        if state.storage.stat(paths.in_partition(partition, lost[0].name)) is not None and not names:
            raise CorruptTable(
                f"the folder of the partition {partition!r} has files of committed instants but no metafile,"
                " so readers would not find it; restore the metafile from a copy",
                path=state.for_people(paths.partition_metafile(partition)),
                table=state.storage.base,
            )
        raise _gone(state, partition, lost[0].name, lost[0])


def check_table(state: TableState, listed: Mapping[str, Collection[str]]) -> None:
    """Checks every file that the newest view needs, for services that write new files from what they find.

    ``listed``: partition -> names of its files. Raises what ``check_listed`` and ``check_files`` raise.
    """
    replaced = state.replaced(None)
    for partition in sorted(listed.keys() | state.committed.by_partition.keys()):
        names = listed.get(partition, ())
        check_listed(state, partition, set(names), replaced=replaced)
        sizes = committed_sizes(state, partition)
        if not sizes:
            continue
        for group in state.group(partition, sorted(names)):
            found = query_slice(group, None)
            if found is not None and (partition, group.file_id) not in replaced:
                check_slice(state, found, sizes)


def check_table_now(storage: Storage, config: TableConfig) -> None:
    """``check_table`` of the newest state; lists again when other processes remove files meanwhile."""
    for left in reversed(range(_LOOKS)):
        state = TableState.load(storage, config)
        try:
            check_table(state, {found.partition: found.names for found in state.partitions()})
            return
        except FileNotFoundError:
            if not left:
                raise


def committed_sizes(state: TableState, partition: str) -> Mapping[str, int]:
    """File name -> size in bytes, as the commits on the active timeline recorded it for a partition."""
    written = state.view.committed.by_partition.get(partition, {})
    return {name: file.size for name, file in written.items()}


def check_slice(
    state: TableState, found: FileSlice, sizes: Mapping[str, int], *, base_only: bool = False
) -> None:
    """``check_files`` for a slice; ``base_only``: only its base file."""
    names = [*filter(None, [found.base_file]), *(() if base_only else found.log_files)]
    check_files(state, found.partition, names, sizes)


def check_files(
    state: TableState, partition: str, names: Sequence[str], sizes: Mapping[str, int]
) -> None:
    """Raises ``CorruptTable`` if a file is gone or shorter than ``sizes`` says, ``FileNotFoundError`` if a
    clean removed it. Names without an entry in ``sizes`` are not checked."""
    for name in names:
        least = sizes.get(name)
        if least is None:
            continue
        path = paths.in_partition(partition, name)
        info = file_info(state.storage, path)
        if info is None:
            if name in cleaned_since(state.view, "").get(partition, ()):
                raise FileNotFoundError(f"a clean has removed {path}")
            check_no_new_clean(state)
            raise _gone(state, partition, name, None)
        if info.size < least:
            log = paths.parse_log_name(name)
            if info.size and log is not None and not log.is_native:
                read_blocks(maps.view(state.storage, path), path=path)  # raises, naming the cut block
            raise cut_off(state.for_people(path), info.size, least, state.storage.base)


def _gone(state: TableState, partition: str, name: str, file: Written | None) -> CorruptTable:
    parsed = paths.parse_log_name(name) or state.parse_base(name)
    instant = file.instant if file is not None else parsed.instant if parsed is not None else None
    return CorruptTable(
        f"the committed instant {instant} wrote this file, it is gone, and no clean removed it; {MENDED}",
        path=state.for_people(paths.in_partition(partition, name)),
        table=state.storage.base,
        instant=instant,
    )
