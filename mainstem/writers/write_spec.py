"""The specification that a transaction passes to its workers, and the names of the operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainstem.formats.avro_schema import avro_to_arrow
from mainstem.layout.bucket_rules import BucketRules
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.properties import TableConfig
from mainstem.merge.rules import MergeRules
from mainstem.options.tables import PARTIAL_UPDATES
from mainstem.options.writing import PARTIAL_BLOCKS
from mainstem.storage.location import Location

UPSERT = "upsert"
INSERT = "insert"
BULK_INSERT = "bulk_insert"
DELETE = "delete"
UPDATE_COLUMNS = "update_columns"
INSERT_OVERWRITE = "insert_overwrite"
INSERT_OVERWRITE_TABLE = "insert_overwrite_table"
DELETE_PARTITION = "delete_partition"
#: of no user: all rows, by another bucket count (``services.resizing``)
RESIZE = "bucket_rescale"
#: deletes of rows that were read: each keeps the ordering value of its row
DELETE_ROWS = "delete_rows"
#: rows, and deletes of rows that were read, which ``DELETE_MARK`` marks, in one commit
MERGE_ROWS = "merge_rows"

#: column of booleans of ``MERGE_ROWS``, which is no column of the table
DELETE_MARK = "_mainstem_deleted"
#: operations of which every row is a delete
DELETES = frozenset((DELETE, DELETE_ROWS))

#: operations that put a new base file into every file group of partitions (``writers.overwriting``)
OVERWRITES = frozenset((INSERT_OVERWRITE, INSERT_OVERWRITE_TABLE, DELETE_PARTITION))
#: operations whose rows become base files, so that all rows of a bucket must come to one writer
OF_BASE_FILES = OVERWRITES | {BULK_INSERT}

PARTIAL_BLOCKS_WARNING = (
    f"{PARTIAL_BLOCKS}=true: update_columns writes IS_PARTIAL log blocks. Hudi's Java"
    " readers fail with a ClassCastException on a file group that holds a partial row of a key without"
    " a full one (log files only, before a compaction); mainstem reads them. Tables with"
    f" {PARTIAL_UPDATES}=IGNORE_DEFAULTS need no such blocks"
)


@dataclass(frozen=True)
class WriteSpec:
    """Everything a worker needs to write for one transaction. Picklable: it holds no live objects."""

    location: Location
    instant: str
    operation: str
    table_name: str
    keys: KeyGenerator
    hash_fields: tuple[str, ...]
    buckets: int
    #: how rows of one key are merged, and which rows are deletes; complete for ``log_schema``
    rules: MergeRules
    #: the ordering fields, whatever the merge mode: every row has them, and a delete carries their values
    ordering: tuple[str, ...]
    user_schema: str
    log_schema: str
    fsync: bool
    log_bytes_max: int
    #: ``hoodie.logfile.data.block.format``
    block_format: str = "avro"
    #: ``update_columns`` writes IS_PARTIAL blocks, which hold the given columns only
    partial_blocks: bool = False
    #: columns that a batch lacks are written as nulls (``hoodie.write.set.null.for.missing.columns``)
    fill_missing: bool = False
    #: the ``LAYOUT_OPTIONS`` that were given
    layout: Mapping[str, str] = field(default_factory=dict)
    #: columns that keep their type: Java cannot merge statistics of partitions of two types
    never_widened: tuple[str, ...] = ()
    #: columns of whole numbers that must stay so: a secondary index holds no fractions
    whole_numbers: tuple[str, ...] = ()
    #: for staged rows: the identity of their table (``writers/staged_rows.py``)
    identity: str = ""
    #: file name of the newest completed instant when ``user_schema`` was looked up; "" if there was none
    planned_on: str = ""
    #: how many buckets each partition has, where not all have ``buckets``
    bucket_rules: BucketRules | None = None
    #: under consistent hashing, the folder of the archived timeline, which tells what rings count
    rings: str | None = None
    #: the span that a task is a part of (``telemetry.steps.here``)
    trace: str = ""
    #: base files beside files of others get their names when the instant completes (``publish.showing``)
    shown_late: bool = False
    #: log files are Parquet files of rows or of deletes, as from table version 10 on
    native_logs: bool = False
    #: the ordering fields that such a deletes file has
    deletes_ordered_by: tuple[str, ...] = ()
    #: the rows of each file are sorted by record key (an LSM tree)
    sorted_files: bool = False

    @property
    def placed_at_commit(self) -> bool:
        """The table has no buckets: where its rows go is known to the commit only."""
        return self.buckets == 0

    @property
    def staged_as_rows(self) -> bool:
        """Rows that are staged wait as rows: their file groups may be others by the commit. So it is without
        buckets, and where buckets are split and merged. Native logs have no place for an instant that is put
        in later."""
        return self.placed_at_commit or self.rings is not None or self.native_logs

    @property
    def takes_either(self) -> bool:
        """Rows may have been staged as rows or as blocks: they wait while the table is upgraded, or brought
        back."""
        return not self.placed_at_commit and self.rings is None

    @property
    def base(self) -> str:
        """The table's path or URL, for messages."""
        return self.location.base


def native_logs(config: TableConfig) -> dict[str, Any]:
    """The fields of a spec that tell whether log files are native, and how they are written."""
    if not config.native_logs:
        return {}
    return {
        "native_logs": True,
        "deletes_ordered_by": config.deletes_ordered_by,
        "sorted_files": config.sorted_files,
    }


def complete_rules(rules: MergeRules, user_schema: str, log_schema: str) -> MergeRules:
    """The table's merge rules, completed by the schema of a write. Both schemas are Avro."""
    every = None if rules.merger is None else avro_to_arrow(log_schema)
    return rules.for_schema(user_schema, every)
