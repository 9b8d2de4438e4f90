"""Writes data files of the archive as Java's LSMTimelineWriter does, and plans merges of levels.

A file is parquet of ``HoodieLSMTimelineInstant``, with rows in the order given. Times and actions are neither
compressed nor dictionary-encoded, so a look-up reads them in place. Row groups are small and carry the range
of their times, so it reads few of them. Java 1.2.0 reads, extends and merges these files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from mainstem.formats.base_file import SCHEMA_KEY, Sink, SinkFile, codec_level
from mainstem.formats.parquet_footer import close_with_notes
from mainstem.limits import MIB
from mainstem.lsm_archive.names import LEVELS_MAX, ArchiveFile
from mainstem.options.services import LEVEL_BYTES, LEVEL_FILES, MANIFESTS

SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
# The Avro schema in the footers of Java's files.
AVRO_SCHEMA = (
    '{"type":"record","name":"HoodieLSMTimelineInstant","namespace":"org.apache.hudi.avro.model",'
    '"fields":[{"name":"instantTime","type":["null",{"type":"string","avro.java.string":"String"}],'
    '"default":null},{"name":"completionTime","type":["null",{"type":"string","avro.java.string":'
    '"String"}],"default":null},{"name":"action","type":["null",{"type":"string","avro.java.string":'
    '"String"}],"default":null},{"name":"metadata","type":["null","bytes"],"default":null},'
    '{"name":"plan","type":["null","bytes"],"default":null},{"name":"version","type":"int",'
    '"default":1}]}'
)
_GROUP_ROWS = 8_192
_GROUP_BYTES = 64 * MIB
_BLOBS = ("metadata", "plan")


@dataclass(frozen=True)
class LevelOptions:
    """When levels are merged, and how many old versions are kept for readers."""

    batch_size: int = LEVEL_FILES.default
    target_bytes: int = LEVEL_BYTES.default
    retained: int = MANIFESTS.default

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LevelOptions:
        """Hudi's options and defaults."""
        return cls(
            LEVEL_FILES.read(properties),
            LEVEL_BYTES.read(properties),
            MANIFESTS.read(properties),
        )


@dataclass(frozen=True)
class ArchiveRow:
    """An instant with the bytes of its completed file and, if it has one, of its plan."""

    requested: str
    completion: str
    action: str
    metadata: bytes
    plan: bytes | None


def rows_table(rows: Sequence[ArchiveRow]) -> pa.Table:
    """Rows as a table of ``SCHEMA``; row by row, since a batch of instants is small."""
    return pa.table(
        [
            pa.array([r.requested for r in rows], pa.string()),
            pa.array([r.completion for r in rows], pa.string()),
            pa.array([r.action for r in rows], pa.string()),
            pa.array([r.metadata for r in rows], pa.binary()),
            pa.array([r.plan for r in rows], pa.binary()),
            pa.array([1] * len(rows), pa.int32()),
        ],
        schema=SCHEMA,
    )


def write_data_file(tables: Iterable[pa.Table], sink: Sink) -> int:
    """Write the tables (of ``SCHEMA``) as one data file; return the number of rows."""
    import pyarrow.parquet as pq

    output = SinkFile(sink)
    count = 0
    with pq.ParquetWriter(
        pa.PythonFile(output, mode="w"),
        SCHEMA,
        compression={n: "gzip" if n in _BLOBS else "none" for n in SCHEMA.names},
        compression_level={n: codec_level("gzip") for n in _BLOBS},
        use_dictionary=False,
        write_statistics=["instantTime", "completionTime"],
        store_schema=False,
        version="2.6",
        data_page_version="1.0",
    ) as writer:
        for group in _groups(tables):
            writer.write_table(group, row_group_size=group.num_rows)
            count += group.num_rows
        close_with_notes(writer, output, {SCHEMA_KEY: AVRO_SCHEMA, "writer.model.name": "avro"})
    output.flush()
    return count


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The tables cut into row groups of bounded rows and bytes."""
    waiting: list[pa.Table] = []
    rows = size = 0
    pieces = (t.slice(at, _GROUP_ROWS) for t in tables for at in range(0, t.num_rows, _GROUP_ROWS))
    for table in pieces:
        if waiting and (rows + table.num_rows > _GROUP_ROWS or size + table.nbytes > _GROUP_BYTES):
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


@dataclass(frozen=True)
class Merge:
    """Files of one level to merge into one file of the next, and the range of their requested times."""

    sources: tuple[ArchiveFile, ...]
    first: str
    last: str


def next_merge(
    files: Sequence[ArchiveFile], level: int, options: LevelOptions
) -> Merge | None:
    """The merge that is due at a level, chosen as in Java (LSMTimelineWriter.compactFiles), or None.

    Takes the oldest files first, until there are enough of them or their total size is over the target. A
    file that alone exceeds the target stays where it is.
    """
    present = sorted((f for f in files if f.level == level), key=lambda f: f.name)
    if len(present) < options.batch_size or level + 1 >= LEVELS_MAX:
        return None
    sources: list[ArchiveFile] = []
    total = 0
    for file in present:
        if file.size > options.target_bytes:
            continue
        total += file.size
        sources.append(file)
        if len(sources) >= options.batch_size or total > options.target_bytes:
            break
    if len(sources) < 2:
        return None
    return Merge(tuple(sources), min(f.first for f in sources), max(f.last for f in sources))
