"""Publishes by itself: after each instant that changed base files, and before files are deleted.

By ``hoodie.mainstem.iceberg.enable``, of the table or of a process. A publication that fails is a warning:
what it follows is complete, and the next one makes it good. Only a clean waits for it, since it would delete
files that Iceberg's newest snapshot may name. Where Iceberg was published by hand, and not by that option, a
clean and a restore publish too, if they can.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import MainstemError, Unsupported
from mainstem.forks import Mutex
from mainstem.options.catalogs import ICEBERG, ICEBERG_SNAPSHOTS
from mainstem.storage import paths

if TYPE_CHECKING:
    from mainstem.iceberg.publishing import Published
    from mainstem.truetime.seams import Seams


class IcebergWarning(UserWarning):
    """Iceberg's metadata shows an older state of the table, and what must be done."""


@dataclass
class IcebergAfterChanges:
    """The publications of one open table. ``place``: the table's place as options spell it."""

    seams: Seams
    given: Mapping[str, str]
    place: str
    _turn: Mutex
    #: called with each version that this process made, or found to be newest
    told: Callable[[Published], None] | None = None

    @classmethod
    def of(cls, seams: Seams, given: Mapping[str, str], place: str) -> IcebergAfterChanges:
        """``given``: options, completed by the table's properties. Raises ``Invalid`` for values that do not
        parse."""
        ICEBERG.read(given)
        ICEBERG_SNAPSHOTS.read(given)
        return cls(seams, given, place, Mutex())

    @property
    def is_asked(self) -> bool:
        """Whether it happens by itself."""
        return ICEBERG.read(self.given)

    def publish(self, leaving: Callable[[str], bool] | None = None) -> Published:
        """See ``publishing.Publisher.publish``. Raises ``Unsupported`` without pyiceberg."""
        try:
            from mainstem.iceberg.publishing import Publisher
            from mainstem.iceberg.store_io import spelt
        except ImportError as error:
            raise Unsupported(
                f"Iceberg's metadata is written by pyiceberg, which cannot be used ({error}): pip install"
                " 'mainstem[iceberg]'",
                table=self.seams.storage.base,
            ) from error
        base = spelt(self.seams.storage.location, self.place)
        kept = ICEBERG_SNAPSHOTS.read(self.given)
        with self._turn.held:
            publisher = Publisher(self.seams, base, kept)
            return publisher.publish() if leaving is None else publisher.publish(leaving)

    def changed(self) -> None:
        """After an instant that changed base files; raises nothing."""
        try:
            published = self.publish()
            if self.told is not None:
                self.told(published)
        except Exception as error:  # whatever fails, the instant is complete
            self._warn(error)

    def before_removal(self, leaving: Callable[[str], bool], can_wait: bool) -> None:
        """Before files go. Raises what ``publish`` raises, if the option is set and the removal can wait."""
        try:
            if self.is_asked or self.seams.storage.stat(paths.ICEBERG_HINT) is not None:
                self.publish(leaving)
        except (MainstemError, OSError) as error:
            if self.is_asked and can_wait:
                raise
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        warnings.warn(
            f"Iceberg's side of {self.seams.storage.base} was not brought up: {error}. The table is"
            " complete; the next compaction tries again, and so does the command mainstem iceberg",
            IcebergWarning,
            stacklevel=4,
        )
