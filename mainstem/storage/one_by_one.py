"""Verbs of ``Storage`` for several files, done by a call for each: for stores that cannot do them at once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from mainstem.storage.protocol import EMPTY, Storage


def create_each(storage: Storage, paths: Iterable[str]) -> None:
    """``Storage.create_all``, in the order of the paths."""
    for path in paths:
        with suppress(FileExistsError):
            storage.put_new(path, EMPTY, durable=False)


def delete_each(storage: Storage, paths: Iterable[str]) -> None:
    """``Storage.delete_all``, in the order of the paths."""
    failure: OSError | None = None
    for path in paths:
        try:
            storage.delete(path)
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure
