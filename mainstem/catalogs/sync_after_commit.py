"""Syncs a catalog after each commit of a process, once the commit is visible and its lock free.

By Hudi's options: a sync that fails ends the write with ``NotSynchronised`` though the commit stands, or is a
warning (``hoodie.datasource.hive_sync.ignore_exceptions``). The next commit of any process makes it good.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mainstem.catalogs.known import store_for_sync
from mainstem.catalogs.sync_options import SyncOptions
from mainstem.catalogs.synchronising import Synchroniser
from mainstem.errors import MainstemError, NotSynchronised
from mainstem.forks import Mutex
from mainstem.layout.properties import TableConfig
from mainstem.options.catalogs import IGNORE_EXCEPTIONS
from mainstem.storage.protocol import Storage


class SyncWarning(UserWarning):
    """A commit stands, and the catalog was not told of it."""


@dataclass
class SyncAfterCommit:
    """Called with the name of the completed file of a write, after ``before``, who is told of it too."""

    synchroniser: Synchroniser
    before: Callable[[str], None] | None
    _turn: Mutex

    @classmethod
    def of(
        cls, storage: Storage, config: TableConfig, given: Mapping[str, str], base: str,
        before: Callable[[str], None] | None,
    ) -> SyncAfterCommit:  # fmt: skip
        """Raises ``Invalid`` and ``Unsupported`` for options that cannot be followed, before anything is
        written."""
        options = SyncOptions.of(given)
        options = replace(options, base=options.base or base)
        return cls(Synchroniser(storage, config, store_for_sync(options), options), before, Mutex())

    def __call__(self, name: str) -> None:
        if self.before is not None:
            self.before(name)
        one = self.synchroniser
        try:
            with self._turn.held:
                one.sync()
        except (MainstemError, OSError) as error:
            what = f"the commit {name} stands, but {one.catalog.place} was not synced: {error}"
            if one.options.ignore_exceptions:
                warnings.warn(f"{what}. The next commit tries again", SyncWarning, stacklevel=4)
                return
            raise NotSynchronised(
                f"{what}. Write nothing again: the next commit syncs, and so does the command mainstem sync"
                f" ({IGNORE_EXCEPTIONS}=true makes this a warning)",
                table=one.storage.base,
            ) from error
