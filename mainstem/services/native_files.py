"""The native log files that services write (table version 10): rows, or deletes, of one file group.

Writers make theirs in ``writers.open_logs``. A service has all rows of a file at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.formats.base_file import BaseFileFormat, BaseFileWriter, in_pieces
from mainstem.formats.native_log import deletes_schema, deletes_table, header_note
from mainstem.layout.properties import TableConfig
from mainstem.publish.staging import Content
from mainstem.storage.protocol import Upload


@dataclass(frozen=True)
class NativeFiles:
    """How a table's native log files are written; ``sorted_files``: rows in the order of keys."""

    how: BaseFileFormat
    ordering: tuple[str, ...]
    sorted_files: bool = False

    @classmethod
    def of(cls, config: TableConfig, properties: Mapping[str, str]) -> NativeFiles | None:
        """Those of a table; None if its log files are files of blocks. ``properties``: the job's, too."""
        if not config.native_logs:
            return None
        how = BaseFileFormat.of_logs(properties)
        return cls(how, config.deletes_ordered_by, config.sorted_files)

    def deletes(self, schema: str, keys: pa.Array, ordering: Sequence[pa.Array] | None) -> pa.Table:
        """Rows of a deletes file; ``schema``: the table's, with meta fields; ``ordering``: None: the keys are
        deleted whatever their rows hold."""
        return deletes_table(schema, self.ordering, keys, ordering)

    def content(
        self,
        instant: str,
        schema: str,
        rows: pa.Table,
        *,
        deletes: bool = False,
        compacted: Sequence[str] = (),
        said: Mapping[str, str] | None = None,
    ) -> Content:
        """What writes a log file of ``instant``. ``schema``: of the rows, or of the table where they are
        deletes; ``compacted``: the instants that the file replaces; ``said``: further entries of the footer.
        """
        stored = deletes_schema(schema, self.ordering) if deletes else schema
        notes = {**header_note(instant, schema, compacted=compacted), **(said or {})}
        how = self.how

        def write(sink: Upload) -> None:
            file = BaseFileWriter(stored, sink, how, said=notes)
            try:
                for group in in_pieces([rows], how.group_bytes):
                    file.write(group)
                file.close()
            finally:
                file.give_up()

        return write
