"""The change data files (``.cdc.parquet``) that compactions write where a table records change data.

A write appends to logs, so what it changed is told when a query compares its log files with the file slice
before them. A compaction tells what it changed in the base file, in a native log file beside the new one:
streaming readers of Flink take changes from there (``read.cdc.from.changelog``), other queries pass
compactions by. Here as there the changes are those between two base files: ``i``, ``u`` or ``d`` for each
key of the logs whose row is another one, with what the table's logging mode keeps of it.

One is written beside each base file, without rows where no row has changed: a commit that names none for a
rewritten base file is damage to Java ("There should be a cdc log file"). Its rows follow from the plan's
files and the new base file alone, and its name from the plan, so any number of executors may make it.

Hudi: ``FileGroupReaderBasedMergeHandle``, ``HoodieNativeCDCLogger``, ``HoodieCDCUtils`` of Hudi 1.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mainstem.formats.avro_schema import META_FIELDS, parse_schema
from mainstem.formats.base_file import BaseFileFormat, BaseFileWriter, in_pieces
from mainstem.formats.native_log import header_note
from mainstem.merge.log_entries import joined_keys
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.changes.cdc_split import COMPACTED, ChangeSplit, as_struct, compared, keys_only
from mainstem.readers.rows.split import ReadSpec, Split, log_entries, split_paths
from mainstem.storage import paths
from mainstem.storage.protocol import Storage, Upload
from mainstem.timeline.plans import CompactionOperation

KEYS, BEFORE, BOTH = "OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"
#: rows that are compared at once take at most this fraction (1/n) of the memory: there are those before and
#: after, and copies of both
_ROWS_PER_MEMORY = 16


def change_schema(schema: str, mode: str) -> str:
    """The Avro schema of a change data file; ``schema``: of the base files, with Hudi's meta fields."""
    text = ["null", "string"]

    def field(name: str, kind: object) -> dict[str, object]:
        return {"name": name, "type": kind, "doc": "", "default": None}

    if mode == KEYS:
        fields = [{"name": name, "type": ["string", "null"]} for name in ("op", "record_key")]
        return json.dumps({"type": "record", "name": "Record", "fields": fields}, separators=(",", ":"))
    rows = parse_schema(schema)
    rows = {**rows, "fields": [one for one in rows["fields"] if one["name"] not in META_FIELDS]}
    made = [field("op", text)]
    if mode == BEFORE:
        made += [field("record_key", text), field("before", ["null", rows])]
    else:
        made += [field("ts_ms", text), field("before", ["null", rows])]
        made.append(field("after", ["null", rows["name"]]))
    whole: dict[str, object] = {"type": "record", "name": "CDC", "doc": "", "fields": made}
    if "namespace" in rows:
        whole["namespace"] = rows["namespace"]
    return json.dumps(whole, separators=(",", ":"))


@dataclass(frozen=True)
class ChangeFile:
    """The change data file that the compaction ``time`` writes beside the base file ``base_file``.

    ``spec``: how the file group is read, without the column of file names, which every rewrite changes;
    ``schema``: Avro schema of the base file; ``mode``: the table's logging mode.
    """

    time: str
    operation: CompactionOperation
    spec: ReadSpec
    schema: str
    base_file: str
    mode: str
    how: BaseFileFormat
    memory_bytes: int

    @property
    def file_name(self) -> str:
        """Its name, determined by the plan alone."""
        return paths.change_file_name(self.base_file)

    @property
    def target(self) -> str:
        """Its path."""
        return paths.in_partition(self.operation.partition, self.file_name)

    def write(self, storage: Storage, sink: Upload) -> None:
        """Write the file; the new base file must be there."""
        schema = change_schema(self.schema, self.mode)
        file = BaseFileWriter(schema, sink, self.how, said=header_note(self.time, schema))
        try:
            for group in in_pieces(self._rows(storage), self.how.group_bytes):
                file.write(group)
            file.close()
        finally:
            file.give_up()

    def _rows(self, storage: Storage) -> Iterator[pa.Table]:
        partition, file_id = self.operation.partition, self.operation.file_id
        old, logs = split_paths(partition, self.operation.base_file, self.operation.log_files)
        new, _ = split_paths(partition, self.base_file, ())
        if not logs:
            return  # its rows are in another order now
        change = ChangeSplit(
            partition, file_id, self.time, COMPACTED, self.spec,
            before=None if old is None else Split(partition, file_id, old, (), self.spec),
            after=Split(partition, file_id, new, (), self.spec), images="struct", bare=True,
        )  # fmt: skip
        changed = Split(partition, file_id, None, logs, keys_only(self.spec))
        keys = pc.unique(joined_keys(log_entries(storage, changed)))
        at_once = self._keys_at_once(storage, len(keys))
        for low in range(0, len(keys), at_once):
            for op, before, after in compared(storage, change, keys.slice(low, at_once)):
                yield self._told(change, op, before, after)

    def _keys_at_once(self, storage: Storage, keys: int) -> int:
        """So many that their rows, before and after, fit into the memory of this compaction."""
        path = paths.in_partition(self.operation.partition, self.base_file)
        with pq.ParquetFile(storage.open_input(path)) as source:
            found = source.metadata
            size = sum(found.row_group(n).total_byte_size for n in range(found.num_row_groups))
            a_row = max(1, size // max(1, found.num_rows))
        return max(1, min(keys, self.memory_bytes // _ROWS_PER_MEMORY // a_row))

    def _told(
        self, change: ChangeSplit, op: str, before: pa.Table | None, after: pa.Table | None
    ) -> pa.Table:
        rows = after if before is None else before
        assert rows is not None
        count = rows.num_rows
        made: dict[str, pa.Array | pa.ChunkedArray] = {"op": pa.repeat(pa.scalar(op), count)}
        if self.mode == BOTH:
            made["ts_ms"] = pa.repeat(pa.scalar(self.time), count)
        else:
            made["record_key"] = rows.column(KEY_COLUMN)
        if self.mode != KEYS:
            made["before"] = self._image(change, before, count)
        if self.mode == BOTH:
            made["after"] = self._image(change, after, count)
        return pa.table(made)

    @staticmethod
    def _image(change: ChangeSplit, rows: pa.Table | None, count: int) -> pa.Array:
        return pa.nulls(count, change.image_type) if rows is None else as_struct(rows, change.image_type)
