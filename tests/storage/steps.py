"""The store of a table, and its steps as a test watches, holds up or fails them: the same on every store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import mainstem
from mainstem.storage import paths
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.links import has_links
from mainstem.storage.protocol import Storage
from mainstem.storage.renames import has_renames
from mainstem.storage.swaps import has_swaps

#: the verbs that change something
CHANGES = (
    "put", "put_new", "swap", "swap_once", "upload", "settle", "link", "rename", "rename_new", "rename_over",
    "delete", "delete_tree", "make_folder",
)  # fmt: skip


def storage_at(place: str | os.PathLike[str]) -> Storage:
    """The store below a path: files of the disk, or what ``--store`` says."""
    return storage_of(location_of(place))


def store_kind() -> Any:
    """The class of the stores that paths lie in."""
    return type(storage_at(os.path.join(tempfile.gettempdir(), "mainstem-no-table")))


def entered(table: mainstem.Table) -> None:
    """On a store, put what a process had decided before it died, as whoever enters does."""
    if has_swaps(table.opened.seams.storage):
        table.writer_context().publisher.guarded(lambda section: None)


class Proxy:
    """Stands before a storage; a subclass defines the verbs that it wants to see."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


#: the verbs that open a file's content, of which a store has some
OPENING = ("view", "open_input", "open_final", "view_final", "final_ranges")
#: the verbs that read a small file whole, of which a store has some
READING = ("read", "read_final")


class Opening(Proxy):
    """Notes in ``opened`` which files are opened."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.opened: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in OPENING:
            return found

        def call(path: str, *given: Any, **named: Any) -> Any:
            self.opened.append(path)
            return found(path, *given, **named)

        return call


class Told(Proxy):
    """Calls ``then`` with the final name of each file that has got it."""

    def __init__(self, inner: Any, then: Callable[[str], object]) -> None:
        super().__init__(inner)
        self._then = then

    def link(self, source: str, target: str, **how: bool) -> None:
        self.inner.link(source, target, **how)
        self._then(target)

    def rename_new(self, source: str, target: str) -> None:
        self.inner.rename_new(source, target)
        self._then(target)

    def put_new(self, path: str, data: Any, *, durable: bool) -> None:
        self.inner.put_new(path, data, durable=durable)
        self._then(path)


class Dead(BaseException):
    """The process was killed here."""


class Mortal(Proxy):
    """Dies at the ``at``-th call that changes something, before or after its effect."""

    def __init__(self, inner: Any, at: int, *, after: bool = False) -> None:
        super().__init__(inner)
        self._left, self._after = at, after

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in CHANGES:
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0 or (self._left == 0 and not self._after):
                raise Dead
            result = found(*given, **named)
            if self._left == 0:
                raise Dead
            return result

        return call


def before_removing(do: Callable[[str], object]) -> AbstractContextManager[Any]:
    """Call ``do`` with the path before each file is removed, on all stores of paths in this process."""
    kind = store_kind()
    real = kind.delete

    def delete(storage: Any, path: str) -> bool:
        do(path)
        return real(storage, path)

    def delete_all(storage: Any, paths: Iterable[str]) -> None:
        for path in paths:
            delete(storage, path)

    return patch.multiple(kind, delete=delete, delete_all=delete_all)


def naming_verb(store: Any) -> str:
    """The verb by which ``publish.staging`` gives a private file its final name."""
    return "link" if has_links(store) else "rename_new" if has_renames(store) else "put_new"


def before_naming(do: Callable[[str], object], *, after: bool = False) -> AbstractContextManager[Any]:
    """Call ``do`` with the final name before (or after) each private file gets it."""
    kind = store_kind()
    verb = naming_verb(kind)
    real = getattr(kind, verb)

    def step(storage: Any, *given: Any, **named: Any) -> Any:
        target = given[0] if verb == "put_new" else given[1]
        if target.startswith(f"{paths.PREPARED}/"):
            return real(storage, *given, **named)
        if not after:
            do(target)
        result = real(storage, *given, **named)
        if after:
            do(target)
        return result

    return patch.object(kind, verb, step)
