"""Calls on a store, counted from outside: what a call does inside of the store is its own business."""

from __future__ import annotations

from dataclasses import dataclass, replace

import mainstem
from mainstem.api.table import Table


class Counted:
    """Stands before a store and notes its calls; ``held``: while the lock is held."""

    def __init__(self, real) -> None:
        self._real = real
        self.held = False
        self.calls: list[tuple[str, str, bool]] = []

    def __getattr__(self, name):
        found = getattr(self._real, name)
        if name.startswith("_") or not callable(found):
            return found

        def noted(*args, **named):
            self.calls.append((name, str(args[0]) if args else "", self.held))
            return found(*args, **named)

        return noted


@dataclass
class Watched:
    """A lock, and its lease: the store hears of both."""

    real: object
    store: Counted

    def __getattr__(self, name):
        return getattr(self.real, name)

    def acquire(self):
        lease = self.real.acquire()
        self.store.held = True
        return Watched(lease, self.store)

    def release(self) -> None:
        self.real.release()
        self.store.held = False


def counted_table(made: mainstem.Table, options: dict[str, str]) -> tuple[Table, Counted]:
    """The table once more, opened with ``options``, and its store."""
    store = Counted(made.opened.seams.storage)
    seams = replace(made.opened.seams, storage=store, lock=Watched(made.opened.seams.lock, store))
    return Table(seams, made.config, options), store
