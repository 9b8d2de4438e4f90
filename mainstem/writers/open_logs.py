"""The log files that a transaction is writing to one file group: how what is given becomes files.

Everything above gives ``Blocks`` and does not know what becomes of them:

  up to version 9   one file of blocks, to which blocks are appended as they come
  from version 10   native logs, Parquet files: one of rows, and one of deletes where there are any. They have
                    one version. Rows are held until there are enough for a row group, or the file ends.

Readers apply a deletes file after the rows of its version, and rows of a later version after both. So where a
row follows a delete of its key, and where the schema changes, the files end and the next version begins. Each
key's rows and deletes keep the order in which they came, as in a file of blocks.

In an LSM tree (``hoodie.table.storage.layout``) the rows of each file are sorted by record key, by the bytes
of UTF-8; rows of one key stay in their order. Such a file is held whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.formats.base_file import KEY_COLUMN, BaseFileFormat, BaseFileWriter
from mainstem.formats.file_form import FileForm
from mainstem.formats.lsm_order import sorted_by_key
from mainstem.formats.native_log import DELETES, LOG, deletes_schema, header_note
from mainstem.limits import MIB
from mainstem.options.writing import MAX_FILE
from mainstem.storage.protocol import Storage, Upload, drop
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.encode_rows import Blocks, Part
from mainstem.writers.write_spec import WriteSpec

# A file of so few bytes at most is put together in memory.
_WHOLE_BYTES_MAX = 32 * MIB
# Keys of deletes are remembered up to this size.
_DELETED_BYTES_MAX = 8 * MIB

#: makes the file of a kind (``LOG``, ``DELETES``), and the stat that the commit will have of it. Raises
#: ``FileExistsError`` if another attempt has its name
Open = Callable[[str], tuple[Upload, WriteStat]]


class OpenLog(Protocol):
    """Log files of one file group and version."""

    @property
    def stats(self) -> list[WriteStat]:
        """Of its files, in the order in which they are merged."""
        ...

    @property
    def sinks(self) -> list[Upload]:
        """Its files."""
        ...

    @property
    def held(self) -> int:
        """Bytes that are in memory only."""
        ...

    @property
    def ended(self) -> bool:
        """Nothing can be appended any more."""
        ...

    def append(self, blocks: Blocks) -> Blocks | None:
        """Take the blocks; returns those that must go into files of the next version. Raises
        ``FileExistsError`` if they are to have names that are taken; nothing of ``blocks`` is taken then."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether the next blocks should go into files of the next version."""
        ...

    def flush(self) -> None:
        """Hand on what is in memory, where that does not end the files."""
        ...

    def end(self) -> None:
        """Hand everything on to the sinks, which are still to be closed."""
        ...


class LogForm:
    """How the native logs of a transaction are written; what is chosen for one of them holds for all."""

    def __init__(self, spec: WriteSpec) -> None:
        self.spec = spec
        self.how = BaseFileFormat.of_logs(spec.layout)
        self.bytes_max = MAX_FILE.read(spec.layout)
        self._files: dict[str, FileForm] = {}
        self._said: dict[tuple[str, bool], dict[str, str]] = {}

    def of_file(self, schema: str) -> FileForm:
        """Of files of this schema."""
        if schema not in self._files:
            self._files[schema] = FileForm(schema)
        return self._files[schema]

    def said(self, part: Part) -> dict[str, str]:
        """What makes the footer of a file that of a native log."""
        key = (part.schema, part.partial)
        if key not in self._said:
            self._said[key] = header_note(self.spec.instant, part.schema, partial=part.partial)
        return self._said[key]


class LogMaker:
    """Makes the log files of one transaction, whose schema may change."""

    def __init__(self) -> None:
        self._form: LogForm | None = None

    def __call__(self, spec: WriteSpec, make: Open) -> OpenLog:
        """The log files of one file group, as the table's version has them."""
        if not spec.native_logs:
            return BlockLog(spec, make)
        if self._form is None or self._form.spec is not spec:
            self._form = LogForm(spec)
        return NativeLogs(self._form, make)


def drop_log(storage: Storage, log: OpenLog) -> None:
    """Close the files without a regard for what they hold, and remove them."""
    for sink in log.sinks:
        drop(sink)
    if not has_swaps(storage):  # there nothing was put
        for stat in log.stats:
            storage.delete(stat.path)


class BlockLog:
    """One file of blocks."""

    held = 0

    def __init__(self, spec: WriteSpec, make: Open) -> None:
        sink, stat = make(LOG)
        self._spec, self._sink, self._stat = spec, sink, stat
        self.stats, self.sinks = [stat], [sink]
        self.ended = False

    def append(self, blocks: Blocks) -> None:
        self._sink.append(blocks.buffers)
        self._stat.writes += blocks.writes
        self._stat.deletes += blocks.deletes
        self._stat.blocks += blocks.count
        self._stat.size_bytes = self._sink.size

    @property
    def is_full(self) -> bool:
        return self._sink.size >= self._spec.log_bytes_max

    def flush(self) -> None:
        """Nothing is in memory."""

    def end(self) -> None:
        self._stat.size_bytes = self._sink.size


class _NativeFile:
    """A file of rows, or of deletes, with what it waits for."""

    def __init__(self, form: LogForm, part: Part, sink: Upload, stat: WriteStat) -> None:
        spec = form.spec
        self._form, self._sorted, self._deletes = form, spec.sorted_files, part.deletes
        self.sink, self.stat, self.schema = sink, stat, part.schema
        self._stored = deletes_schema(part.schema, spec.deletes_ordered_by) if part.deletes else part.schema
        self._said = form.said(part)
        self._writer: BaseFileWriter | None = None
        self._waiting: list[pa.Table] = []
        self.held = self.rows = 0

    def add(self, part: Part) -> None:
        rows = part.rows
        self._waiting.append(rows)
        self.held += rows.nbytes if part.size is None else part.size
        self.rows += rows.num_rows
        if self.held >= self._form.how.group_bytes:
            self.flush()

    def flush(self) -> None:
        """The rows that wait become a row group. Those that are sorted wait for the end of the file."""
        if not self._sorted:
            self._put_group()

    def _put_group(self, *, last: bool = False) -> None:
        if not self._waiting:
            return
        rows = pa.concat_tables(self._waiting) if len(self._waiting) > 1 else self._waiting[0]
        whole = last and self.held <= _WHOLE_BYTES_MAX
        self._waiting, self.held = [], 0
        if self._sorted:
            rows = sorted_by_key(rows)
        if self._writer is None:
            how, form = self._form.how, self._form.of_file(self._stored)
            self._writer = BaseFileWriter(
                self._stored, self.sink, how, said=self._said, whole=whole, form=form
            )
        self._writer.write(rows)

    @property
    def size(self) -> int:
        """What it has, or will have if what waits does not shrink."""
        return self.sink.size + self.held

    def end(self) -> None:
        self._put_group(last=True)
        assert self._writer is not None, "a file is made for its first rows"
        self._writer.close()
        self.stat.size_bytes = self.sink.size
        if self._deletes:
            self.stat.deletes = self.rows
        else:
            self.stat.writes = self.rows


class NativeLogs:
    """A file of rows and one of deletes, each made for its first rows."""

    def __init__(self, form: LogForm, make: Open) -> None:
        self._form, self._make = form, make
        self._files: dict[str, _NativeFile] = {}
        self._deleted: list[pa.Array] = []
        self._deleted_bytes = 0
        self.ended = False

    @property
    def stats(self) -> list[WriteStat]:
        return [self._files[kind].stat for kind in (LOG, DELETES) if kind in self._files]

    @property
    def sinks(self) -> list[Upload]:
        return [self._files[kind].sink for kind in (LOG, DELETES) if kind in self._files]

    @property
    def held(self) -> int:
        return sum(file.held for file in self._files.values())

    @property
    def is_full(self) -> bool:
        return any(file.size >= self._form.bytes_max for file in self._files.values())

    def append(self, blocks: Blocks) -> Blocks | None:
        for place, part in enumerate(blocks.parts):
            if not self._takes(part):
                return replace(blocks, parts=blocks.parts[place:])
            try:
                self._add(part)
            except FileExistsError:
                if not self._files:
                    raise
                return replace(blocks, parts=blocks.parts[place:])
        return None

    def _takes(self, part: Part) -> bool:
        file = self._files.get(DELETES if part.deletes else LOG)
        if file is not None and file.schema != part.schema:
            return False
        return part.deletes or not self._follows_delete(part.rows)

    def _follows_delete(self, rows: pa.Table) -> bool:
        if not self._deleted:
            return False
        if self._deleted_bytes > _DELETED_BYTES_MAX:
            return True
        self._deleted = [pa.concat_arrays(self._deleted)]
        met = pc.is_in(rows.column(KEY_COLUMN), value_set=self._deleted[0])
        return bool(pc.any(met).as_py())

    def _add(self, part: Part) -> None:
        kind = DELETES if part.deletes else LOG
        file = self._files.get(kind)
        if file is None:
            sink, stat = self._make(kind)
            stat.blocks = 1
            if part.deletes and LOG in self._files:
                stat.beside = self._files[LOG].stat.file_name
            file = self._files[kind] = _NativeFile(self._form, part, sink, stat)
        file.add(part)
        if part.deletes:
            keys = part.rows.column(KEY_COLUMN).combine_chunks()
            self._deleted += keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
            self._deleted_bytes += keys.nbytes

    def flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            for kind in (LOG, DELETES):
                if kind in self._files:
                    self._files[kind].end()
            self._deleted.clear()
