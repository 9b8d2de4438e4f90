"""Reads back the log files of one instant, of either kind: its writer puts their rows elsewhere, or tells
indexes of them. ``readers.rows.native_logs`` reads those of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.formats.log_file import LogBlock, read_blocks
from mainstem.formats.native_log import native_block
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage


@dataclass(frozen=True)
class _Rows:
    """The rows of a native log file (``formats.native_log.Rows``)."""

    storage: Storage = field(repr=False)
    path: str
    names: tuple[str, ...]
    groups: tuple[int, ...]
    size: int
    _footer: Any = field(repr=False)

    def read(self, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
        import pyarrow.parquet as pq

        wanted = [name for name in names if name in self.names]
        with pq.ParquetFile(self.storage.open_input(self.path), metadata=self._footer) as file:
            return file.read_row_groups(list(groups), columns=wanted, use_threads=False)

    def taken(self, names: Sequence[str], groups: Sequence[int], rows: np.ndarray) -> pa.Table:
        return self.read(names, groups).take(pa.array(rows))


def written_blocks(storage: Storage, path: str) -> Sequence[LogBlock]:
    """The blocks of a log file that is whole. Raises ``CorruptTable`` for a damaged one."""
    import pyarrow.parquet as pq

    name = paths.parse_log_name(path.rpartition("/")[2])
    if name is None or not name.is_native:
        return read_blocks(maps.view(storage, path), path=path)
    with storage.open_input(path) as source:
        size = source.size()
        with pq.ParquetFile(source) as file:
            footer, names = file.metadata, tuple(file.schema_arrow.names)
    groups = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    rows = _Rows(storage, path, names, groups, size, footer)
    return [native_block(name.kind, name.instant, footer.metadata, rows, path=path)]
