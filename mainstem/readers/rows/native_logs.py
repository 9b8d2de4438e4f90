"""Opens native log files: their blocks, whose columns are read when the merge asks for them.

Opening reads the footer only. A file stays open until its first read, if there are few: opening it again
takes as long as reading a small one. A slice may have thousands of log files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.log_file import LogBlock, read_blocks
from mainstem.formats.native_log import NativeBlock, native_block
from mainstem.layout.committed_files import cut_off
from mainstem.readers.rows.base_rows import BaseFile, open_base, opened_base
from mainstem.storage import maps, paths
from mainstem.storage.final_files import view_final
from mainstem.storage.protocol import Storage

_FORMAT = "parquet"


@dataclass(frozen=True)
class NativeRows:
    """The rows of a native log file (``formats.native_log.Rows``)."""

    storage: Storage = field(repr=False)
    path: str
    final: bool
    names: tuple[str, ...]
    groups: tuple[int, ...]
    size: int
    _footer: Any = field(repr=False)
    #: the open file, for the first one who asks
    _open: list[BaseFile] = field(default_factory=list, repr=False, compare=False)

    @contextmanager
    def opened(self) -> Iterator[BaseFile]:
        """The file, opened as a base file is."""
        try:
            kept = self._open.pop()
        except IndexError:
            pass
        else:
            with kept.source:
                yield kept
            return
        with open_base(self.storage, self.path, final=self.final, footer=self._footer) as file:
            yield file

    def read(self, names: Sequence[str], groups: Sequence[int]) -> pa.Table:
        with self.opened() as file:
            tables = list(file.batches(names, groups))
            return pa.concat_tables(tables) if tables else _empty(file, names)

    def taken(self, names: Sequence[str], groups: Sequence[int], rows: np.ndarray) -> pa.Table:
        with self.opened() as file:
            tables, first = [], 0
            for group in groups:
                count = self.groups[group]
                low, high = np.searchsorted(rows, (first, first + count))
                if high > low:
                    tables += list(file.taken(group, names, rows[low:high] - first))
                first += count
            return pa.concat_tables(tables) if tables else _empty(file, names)


def _empty(file: BaseFile, names: Sequence[str]) -> pa.Table:
    held = file.held(names) or file.names[:1]
    return pa.schema([file.source.schema_arrow.field(name) for name in held]).empty_table()


def open_native(
    storage: Storage,
    path: str,
    name: paths.LogName,
    *,
    least: int = 0,
    final: bool = False,
    keep: bool = False,
) -> NativeBlock:
    """The block of the native log file at ``path``; arguments and errors are those of ``open_base``.
    ``keep``: the file stays open until it is read.

    Raises ``Unsupported`` for a file of another format than Parquet too.
    """
    if name.format != _FORMAT:
        raise Unsupported(
            f"the log file {path} has the format {name.format!r:.40}; {_FORMAT} can be read",
            table=storage.base,
        )
    file = opened_base(storage, path, least=least, final=final)
    footer = file.source.metadata
    groups = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    if sum(groups) != footer.num_rows:
        raise CorruptTable(
            f"native log file of {footer.num_rows} rows whose row groups have {sum(groups)}; restore it"
            " from a copy",
            path=path,
        )
    kept = [file] if keep else []
    rows = NativeRows(storage, path, final, tuple(file.names), groups, file.file.size(), footer, kept)
    return native_block(name.kind, name.instant, footer.metadata, rows, path=path)


def blocks_of(
    storage: Storage,
    path: str,
    *,
    damaged: str = "error",
    least: int = 0,
    final: bool = False,
    keep: bool = False,
) -> Sequence[LogBlock]:
    """The blocks of a log file of either kind; ``damaged`` is for files of blocks, ``keep`` for native ones.

    ``final``: the file never changes again. Raises what ``read_blocks`` and ``open_native`` raise.
    """
    name = paths.parse_log_name(path.rpartition("/")[2])
    if name is not None and name.is_native:
        return [open_native(storage, path, name, least=least, final=final, keep=keep)]
    view = view_final(storage, path) if final else maps.view(storage, path)
    blocks = read_blocks(view, path=path, damaged=damaged)
    if len(view) < least:  # where no block is cut
        raise cut_off(path, len(view), least, storage.base)
    return blocks
