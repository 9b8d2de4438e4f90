"""Remembers the view of the last query where every look at the store is a request (object stores).

A view is determined by the names on the timeline and the table's properties. While both are as they were,
the view of the last query is the newest one, with all that was read for it: commits, plans, the archive, and
which files there are. So a query of a known timeline costs one listing, one look at the properties, and the
files that it reads. Otherwise the view is made anew, as on a file system, where nothing is remembered.

Nothing is taken for granted that a query did not check: files are listed anew while a clean, a restore or a
rollback is pending, and whoever meets a missing or damaged file drops what is known (``forget``). A query
that starts again for that reason asks for the size of every file before it reads any (``doubting``); others
compare sizes when they open the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from mainstem.layout.partitions import PartitionListing
from mainstem.layout.properties import TableConfig, load_config
from mainstem.layout.wanted_folders import WantedFolders
from mainstem.publish.table_identity import check_table
from mainstem.readers.planning.table_state import TableState, steady_timeline
from mainstem.storage.final_files import forget_final
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.storage.side_by_side import side_by_side
from mainstem.timeline.active import ActiveTimeline, load_timeline
from mainstem.timeline.instant import CLEAN, RESTORE, ROLLBACK

# Names of files that are remembered; a larger table is listed in every query.
_NAMES_MAX = 200_000
_ANSWERS_MAX = 64

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Listed:
    """Partitions with their files in path order; ``left_out``: how many folders were not looked into."""

    partitions: list[PartitionListing]
    left_out: int = 0


_doubting: ContextVar[bool] = ContextVar("doubting", default=False)


@dataclass
class _Known:
    """A view, the timeline as listed for it, the identities of tables for which it was checked, and its
    partitions with their files, by whether they come from the metadata table and which were wanted (None:
    all). ``answers``: of ``once``."""

    state: TableState
    listed: ActiveTimeline
    identities: set[str] = field(default_factory=set)
    listings: dict[tuple[bool, WantedFolders | None], Listed] = field(default_factory=dict)
    answers: dict[object, object] = field(default_factory=dict)


_known: WeakKeyDictionary[Storage, _Known] = WeakKeyDictionary()


def query_state(storage: Storage) -> TableState:
    """The table's state now. Raises what ``load_config`` and ``TableState.load`` raise."""
    if has_links(storage):
        return TableState.load(storage, load_config(storage))
    config, listed = _looks(storage)
    known = _known.get(storage)
    if known is not None and listed.names == known.listed.names and config == known.state.config:
        known.state.look_again()
        return known.state
    timeline = steady_timeline(storage, listed)
    state = TableState.of(storage, config, timeline)
    if any(instant.is_completed for instant in timeline.instants):
        _known[storage] = _Known(state, timeline)
    else:  # one empty timeline looks like another
        _known.pop(storage, None)
    return state


def _looks(storage: Storage) -> tuple[TableConfig, ActiveTimeline]:
    """The properties and a listing of the timeline, asked for at the same time."""

    def look(what: str) -> TableConfig | ActiveTimeline:
        return load_config(storage) if what == "properties" else load_timeline(storage)

    found = side_by_side(storage, look, ("properties", "timeline"))
    config = next(one for one in found if isinstance(one, TableConfig))
    return config, next(one for one in found if isinstance(one, ActiveTimeline))


def forget(storage: Storage) -> None:
    """Drop what is known of the table: a file of it was missing or damaged."""
    if not has_links(storage):
        _known.pop(storage, None)
        forget_final(storage)


def check_same_table(storage: Storage, identity: str | None) -> None:
    """As ``table_identity.check_table``, but not again for the same view: another table at the same path
    has another timeline."""
    known = _known.get(storage)
    if known is not None and identity in known.identities:
        return
    check_table(storage, identity)
    if known is not None and identity is not None:
        known.identities.add(identity)


def once(state: TableState, question: object, make: Callable[[], Answer]) -> Answer:
    """``make()``, or what it gave when the same was asked of this view before; a question about an earlier
    moment of the view names the moment."""
    known = _of(state)
    if known is None:
        return make()
    if question not in known.answers and len(known.answers) < _ANSWERS_MAX:
        known.answers[question] = make()
    return cast(Answer, known.answers[question]) if question in known.answers else make()


def known_listing(state: TableState, *, metadata: bool, wanted: WantedFolders | None) -> Listed | None:
    """Partitions and files of the view, as listed and checked by an earlier query; None if none did. Maybe
    more than the ``wanted`` ones."""
    known = _of(state)
    if known is None:
        return None
    return known.listings.get((metadata, None)) or known.listings.get((metadata, wanted))


def keep_listing(state: TableState, found: Listed, *, metadata: bool, wanted: WantedFolders | None) -> None:
    """Remember a listing that lacks only what was not ``wanted``, after the checks that follow it."""
    known = _of(state)
    unsteady = any(i.action in (CLEAN, RESTORE, ROLLBACK) for i in state.view.timeline.pending)
    if known is None or unsteady or (wanted is not None and len(known.listings) >= _ANSWERS_MAX):
        return
    names = sum(len(one.names) for each in (found, *known.listings.values()) for one in each.partitions)
    if names <= _NAMES_MAX:
        known.listings[metadata, wanted] = found


def _of(state: TableState) -> _Known | None:
    known = _known.get(state.storage)
    return known if known is not None and known.state is state.view else None


@contextmanager
def doubting(storage: Storage) -> Iterator[None]:
    """Plan a query again of which a file was missing: nothing is known, and every file is looked for."""
    forget(storage)
    before = _doubting.set(True)
    try:
        yield
    finally:
        _doubting.reset(before)


def checks_later(storage: Storage) -> bool:
    """Whether sizes of files are compared when they are opened, instead of asking for each beforehand."""
    return not has_links(storage) and not _doubting.get()
