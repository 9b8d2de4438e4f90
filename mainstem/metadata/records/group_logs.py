"""The log files of the metadata table's file groups: their names and contents, by the table's version.

Up to version 9 a log file is a file of blocks, of which ours have one; from 10 on it is a native log file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.hfile import HFile, open_hfile
from mainstem.formats.log_file import Header, empty_group_block, hfile_blocks, replaced_by
from mainstem.formats.native_hfile import empty_native_hfile, native_hfiles
from mainstem.formats.native_log import HEADER_KEY, read_header
from mainstem.metadata.records.record_schema import schema_of_version
from mainstem.options.tables import NATIVE_LOGS_FROM
from mainstem.storage import paths

# A log file's name follows from its instant and file group alone, so all executors make the same one.
_TOKEN = "0-0-0"


@dataclass(frozen=True)
class GroupLogs:
    """The log files that an instant writes; ``version``: of the table."""

    version: int
    instant: str

    @property
    def _is_native(self) -> bool:
        return self.version >= NATIVE_LOGS_FROM

    @property
    def schema(self) -> str:
        """Avro schema of the rows."""
        return schema_of_version(self.version)

    def name(self, group: str) -> str:
        """Name of the log file of a file group."""
        if self._is_native:
            return paths.native_log_name(group, self.instant, 1, _TOKEN, ending="hfile")
        return paths.log_name(group, self.instant, 1, _TOKEN)

    def contents(
        self, keys: pa.Array, values: pa.Array, bounds: Sequence[int]
    ) -> Iterator[Sequence[bytes | memoryview]]:
        """The content of a log file for each range of rows ``bounds[i]:bounds[i + 1]``."""
        if self._is_native:
            return ([one] for one in native_hfiles(self.instant, self.schema, keys, values, bounds))
        return iter(hfile_blocks(self.instant, self.schema, keys, values, bounds))

    def first(self) -> list[bytes | memoryview]:
        """The content of a file group's first log file, which holds no row."""
        if self._is_native:
            return [empty_native_hfile(self.instant, self.schema)]
        return empty_group_block(self.instant)


def open_native_hfile(
    data: memoryview, name: paths.LogName, *, path: str
) -> tuple[HFile, str, frozenset[str]]:
    """A native log file of this name, the instant of its rows or deleted keys, and the instants whose files
    it replaces.

    Raises ``CorruptTable`` for damage, ``Unsupported`` for files of a newer format, of another format than
    HFile, or with change data.
    """
    if name.format != "hfile" or name.is_cdc:
        raise Unsupported(
            f"the log file {path} in the metadata table; .log.hfile and .deletes.hfile can be read"
        )
    file = open_hfile(data, path=path)
    headers = read_header(file.info.get(HEADER_KEY), path=path)
    return file, headers.get(Header.INSTANT_TIME, name.instant), replaced_by(headers)
