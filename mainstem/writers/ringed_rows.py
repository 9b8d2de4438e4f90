"""Appends rows under consistent hashing, and appends them anew where their file groups were split or merged.

Batches are kept up to 128 MiB, as on tables without buckets (``placed_rows``), until the commit. Where they
are not, what the files hold is routed anew, under another instant (``routed_anew``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

from mainstem.formats.log_file import LogBlock
from mainstem.layout.stored_rings import Rings
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.writers.append import BucketAppender
from mainstem.writers.open_logs import OpenLog
from mainstem.writers.placed_rows import Kept
from mainstem.writers.write_spec import WriteSpec


class RingAppender(BucketAppender):
    """Writes rows to the file groups that the rings name; see above."""

    def __init__(
        self,
        storage: Storage,
        spec: WriteSpec,
        token: str,
        known_buckets: dict[str, set[int]] | None = None,
        known_partitions: set[str] | None = None,
        surely_alive: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(storage, spec, token, known_buckets, known_partitions, surely_alive)
        self._kept = Kept()
        #: rows came that were not kept
        self._routed = False
        #: later log files have greater versions than those that were taken back
        self._passed = 0

    def _write(self, batch: pa.Table, deleted: np.ndarray | None) -> int:
        count = super()._write(batch, deleted)
        if count:
            self._kept.add(self._spec, batch, deleted)
        return count

    def write_routed(self, blocks: Iterable[tuple[str, LogBlock]]) -> None:
        """As any appender does; the rows are not kept."""
        self._routed = True
        super().write_routed(blocks)

    def _open_log(self, partition: str, bucket: int) -> OpenLog:
        self._versions.setdefault((partition, bucket), self._passed)
        return super()._open_log(partition, bucket)

    @property
    def can_append_again(self) -> bool:
        """Whether this transaction is small enough, and none of its files may come back (as after a put)."""
        late = has_swaps(self._storage) and self._closed
        return self._kept.whole and not self._routed and not late

    def append_again(self) -> None:
        """Goes by the rings as they are now, and writes all rows by them, in their order.

        The files made so far go, durably before the commit, whose ``settle`` syncs their folders. ``finish``
        follows.
        """
        self._check_whole()
        self.torn = True  # until all are written
        self._passed = max(self._passed, self._take_back_files())
        assert self._spec.rings is not None
        self.rings = Rings(self._storage, self._spec.buckets, self._spec.rings)
        self._encoder.rings = self.rings
        now = self._spec
        for spec, batch, deleted in self._kept:
            self.adopt(spec)
            for slab in self._encoder.split(batch, deleted):
                self._append(slab)
        self.adopt(now)
        self.torn = False

    def forget(self) -> None:
        """As of any appender."""
        super().forget()
        self._kept.clear()
