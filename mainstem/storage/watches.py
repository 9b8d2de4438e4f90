"""Folders whose changes are told: what a listing would show, without one.

Only some stores can do it (``storage.inotify``); anywhere else, and where a watch ends, folders are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mainstem.storage.protocol import Storage


class Watch(Protocol):
    """One folder, watched since it was listed. ``names``: what that listing showed."""

    names: Sequence[str]

    def stands(self) -> bool:
        """Whether the path still leads to this folder. Ask it first, then ``news``; what is under way in the
        folder when it is called has ended when it returns."""

    def news(self) -> list[tuple[str, bool]] | None:
        """What happened since the last call, in its order: a name, and whether it came (else it went).

        It holds every change that had been made when ``stands`` returned, whoever made it. A name may be told
        to come that is there. None: something may be missing, and the watch is over. Never waits.
        """


def is_worth_watching(storage: Storage, names: int) -> bool:
    """Whether the store can watch folders, and one of so many names is watched at less cost than listed."""
    least: int | None = getattr(storage, "watched_from", None)
    return least is not None and names >= least


def watch(storage: Storage, folder: str) -> Watch | None:
    """List a folder and watch it from then on; None where that cannot be done."""
    begin: Callable[[str], Watch | None] | None = getattr(storage, "watch", None)
    return None if begin is None else begin(folder)
