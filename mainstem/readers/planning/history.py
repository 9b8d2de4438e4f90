"""The table as it was at a completion time: exactly the instants completed at or before it.

Instants become visible in the order of their completion times, so this view never changes. Hudi's time
travel can change: it uses requested times, and an instant requested early may complete late. Names of
files that a clean has removed since are added back to the listing, so that a slice that needs one of them
is refused instead of being read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from mainstem.errors import Invalid
from mainstem.formats.avro_container import decode_container
from mainstem.layout.slicing import FileSlice, base_slice, query_slice
from mainstem.limits import TIMELINE_FILE_BYTES_MAX
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.final_files import read_final
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.clean_records import named_files
from mainstem.timeline.instant import CLEAN, REPLACECOMMIT, RESTORE, ROLLBACK, Instant
from mainstem.timeline.plans import taken_back

_CLEAN_FILE = "a clean on the timeline"


def just_before(completion: str) -> str:
    """The greatest completion time below this one: the view that an instant completed at it started from."""
    return f"{int(completion) - 1:0{len(completion)}d}"


@dataclass
class PastState(TableState):
    """``whole`` as of completion time ``moment``. Made by ``past_state``."""

    whole: TableState | None = None
    moment: str = ""

    @property
    def view(self) -> TableState:
        """``whole``: indexes describe the newest state."""
        assert self.whole is not None
        return self.whole

    @property
    def is_past(self) -> bool:
        return True

    def completion(self, requested: str) -> str | None:
        """Completion time of an instant; None if it had not completed at the moment."""
        assert self.whole is not None
        known = self.whole.completion(requested)
        return known if known is not None and known <= self.moment else None

    @cached_property
    def cleaned(self) -> dict[str, set[str]]:
        """Partition -> names of files that cleans removed after the moment, or may be removing."""
        assert self.whole is not None
        return cleaned_since(self.whole, self.moment)

    def slices(
        self,
        partition: str,
        names: Iterable[str],
        *,
        file_id: str | None = None,
        base_only: bool = False,
        replaced: Container[tuple[str, str]] = (),
        wanted: Callable[[str, Sequence[str]], Sequence[str]] | None = None,
    ) -> Iterator[FileSlice]:
        """File slices that a query as of the moment reads from a partition, or from one of its file groups.

        ``names``: the partition's files now. ``base_only``: base files only (read optimized query).
        ``replaced``: file groups to leave out. ``wanted``, given partition and names, drops those of whole
        file groups. Raises ``Invalid`` if a clean has removed a file of a slice.
        """
        listed = set(names)
        gone = self.cleaned.get(partition, set())
        if file_id is not None:
            gone = {name for name in gone if paths.file_id_of(name) == file_id}
        every = sorted(listed | gone)
        for group in self.group(partition, every if wanted is None else wanted(partition, every)):
            if (group.partition, group.file_id) in replaced:
                continue
            found = base_slice(group, None) if base_only else query_slice(group, None)
            if found is None:
                continue
            there = {found.base_file, *(() if base_only else found.log_files)} - {None} <= listed
            if not there and (group.partition, group.file_id) in self._replaced_long_ago:
                continue
            check_there(self, found, listed, f"the view at completion time {self.moment}", base_only)
            yield found

    @cached_property
    def _replaced_long_ago(self) -> set[tuple[str, str]]:
        """File groups that archived instants had replaced by the moment; archiving waits until they are
        cleaned."""
        gone: set[tuple[str, str]] = set()
        for requested in self.archive.of_action(REPLACECOMMIT):
            completion = self.archive.completion_time(requested)
            metadata = None if completion is None or completion > self.moment else self.metadata(requested)
            for partition, file_ids in metadata.replaced.items() if metadata else ():
                gone.update((partition, file_id) for file_id in file_ids)
        return gone


def cleaned_since(state: TableState, moment: str) -> dict[str, set[str]]:
    """Partition -> names of files that cleans removed after a moment, or may be removing."""
    gone: dict[str, set[str]] = {}
    for record in _clean_records(state, moment):
        for partition, names in named_files(record, _CLEAN_FILE):
            gone.setdefault(partition, set()).update(names)
    return gone


def check_there(
    state: TableState, found: FileSlice, listed: Container[str], view: str, base_only: bool
) -> None:
    """Raises ``Invalid`` if a clean has removed a file of the slice; ``view``: the query, for the message."""
    files = [found.base_file, *(() if base_only else found.log_files)]
    missing = [name for name in files if name is not None and name not in listed]
    if missing:
        raise Invalid(
            f"{view} needs {paths.in_partition(found.partition, missing[0])}, which a clean has removed; ask"
            f" for a later time, and raise {CLEAN_COMMITS} to keep more",
            table=state.storage.base,
        )


def past_state(state: TableState, moment: str) -> PastState:
    """``state`` as of a completion time (inclusive)."""
    late = {i.file_name for i in state.timeline.completed if (i.completion or "") > moment}
    return PastState(
        state.storage,
        state.config,
        state.timeline.without(late),
        state.archive,
        state._metadata,
        whole=state,
        moment=moment,
    )


def check_settled(state: TableState, moment: str) -> None:
    """Refuse a moment whose view may still change, or was changed by a restore.

    Raises ``Invalid`` for a time after the newest completed instant: one that completes from now on
    could still be at or before it.
    """
    done = [i for i in state.timeline.completed if i.completion is not None]
    newest = max((i.completion or "" for i in done), default="")
    if moment > newest:
        raise Invalid(
            f"as_of_completion={moment} is after the newest completion time"
            f" {newest or '(none: nothing was completed yet)'}; instants that complete later could"
            " still belong to that view. Pass the completion time of a completed instant",
            table=state.storage.base,
        )
    restored = [i.requested for i in done if i.action == RESTORE and (i.completion or "") > moment]
    restored = restored or state.archive.of_action(RESTORE, moment)
    if restored:
        raise Invalid(
            f"as_of_completion={moment} is before the restore {restored[-1]}, which removed instants and"
            " their files; ask for a later time",
            table=state.storage.base,
            instant=restored[-1],
        )
    for path, data in _files_since(state, moment, ROLLBACK):
        completion = taken_back(data, path=path)
        if completion is not None and completion <= moment:
            raise Invalid(
                f"as_of_completion={moment} is before a rollback that took back the instant completed at"
                f" {completion}; ask for a later time, or for one before {completion}",
                table=state.storage.base,
            )


def check_no_new_clean(state: TableState) -> None:
    """Call after listing files: ``FileNotFoundError`` if a clean began since the timeline was listed.

    The clean may have removed files that the listing should have shown; the query starts again.
    """
    now = load_timeline(state.storage)
    began = _begun_since(state, now, (CLEAN,))
    if began:
        raise FileNotFoundError(f"clean {max(began)} began while files were listed")
    check_nothing_undone(state, now)


def check_nothing_undone(state: TableState, now: ActiveTimeline | None = None) -> None:
    """Call after listing files: ``FileNotFoundError`` if a restore or rollback took back a completed instant
    of this view meanwhile. ``now``: the timeline, listed after the files.

    Timeline files are deleted before data files, so if the file listing misses a file, ``now`` misses its
    instant.
    """
    now = now if now is not None else load_timeline(state.storage)
    gone = [i.requested for i in state.writes if not now.has(i.file_name)]
    if not gone:
        return
    began = _begun_since(state, now, (RESTORE, ROLLBACK))
    if began:
        raise FileNotFoundError(f"{max(began)} took back instants while files were listed")
    state.archive.refresh()
    lost = [requested for requested in gone if not state.archive.is_archived(requested)]
    if lost:  # the restore or rollback that removed it is itself archived by now
        raise FileNotFoundError(f"{lost[0]} was taken back while files were listed")


def _begun_since(state: TableState, now: ActiveTimeline, actions: Container[str]) -> set[str]:
    known = {i.requested for i in state.timeline.instants if i.action in actions}
    return {i.requested for i in now.instants if i.action in actions} - known


def _clean_records(state: TableState, moment: str) -> Iterator[dict[str, Any]]:
    """Clean metadata and plans that may have removed files after the moment."""
    for path, data in _files_since(state, moment, CLEAN):
        if data:
            yield decode_container(data, path=path)[0]


def _files_since(state: TableState, moment: str, action: str) -> Iterator[tuple[str, bytes]]:
    """Path and content of an action's instants that completed after the moment, active and archived, and
    the plans of its pending instants."""
    for instant in state.timeline.instants:
        if instant.action == action and (instant.completion is None or instant.completion > moment):
            yield _file(state, instant)
    for requested in state.archive.of_action(action, moment):
        if data := state.archive.metadata(requested, action):
            yield f"archived {action} {requested}", data


def _file(state: TableState, instant: Instant) -> tuple[str, bytes]:
    name = instant.file_name if instant.is_completed else f"{instant.requested}.{instant.action}.requested"
    path = paths.timeline_file(name)
    try:
        read = partial(read_final, state.storage) if instant.is_completed else state.storage.read
        return path, read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
    except FileNotFoundError:  # archived since the timeline was listed
        state.archive.refresh()
        data = state.archive.metadata(instant.requested, instant.action) or b""
        if not data:
            raise
        return path, data
