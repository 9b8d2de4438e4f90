"""Makes the merged log file of each file group in a log compaction.

After the file has appeared, the executor looks at the plan a second time: it may have been suspended while
the plan was taken back. Its file would then belong to no instant, and Java would show it once the active
timeline starts later. See ``log_compaction`` for the order of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat
from mainstem.formats.log_file import Header, data_blocks, delete_block
from mainstem.formats.native_log import DELETES, LOG
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import MIB
from mainstem.merge.folded_logs import FoldedLogs, fold_logs, refuse_own_merger
from mainstem.publish.staging import Content
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.readers.rows.log_rows import entries_of, log_runs
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.compaction_plan import measured
from mainstem.services.log_compaction_plan import pending
from mainstem.services.native_files import NativeFiles
from mainstem.services.planned_files import Kind, make_file
from mainstem.storage import paths
from mainstem.storage.protocol import FileInfo, Upload
from mainstem.timeline.commit_metadata import LogCompactionStat, WriteStat
from mainstem.timeline.instant import DELTACOMMIT, LOGCOMPACTION
from mainstem.timeline.plans import CompactionOperation
from mainstem.writers.context import WriterContext
from mainstem.writers.rollback import condemned

LOG_COMPACTIONS = Kind(
    "log compaction", LOGCOMPACTION, DELTACOMMIT, "LOG_COMPACT", paths.parse_log_name
)
#: bytes of rows in one block before encoding; Java's default block size
_BLOCK_BYTES = 256 * MIB


def final_name(time: str, number: int, operation: CompactionOperation) -> str:
    """Name of the merged log file of a plan's operation with this number, where that is a file of blocks."""
    return paths.log_name(operation.file_id, time, 1, f"{number}-0-0")


def native_names(time: str, number: int, operation: CompactionOperation) -> tuple[str, str]:
    """Names of the merged native log files: of rows, and of deletes."""
    token = f"{number}-0-0"
    rows, deletes = (paths.native_log_name(operation.file_id, time, 1, token, k) for k in (LOG, DELETES))
    return rows, deletes


def log_spec(ctx: WriterContext, state: TableState) -> ReadSpec:
    """How logs are read for rewriting: all columns, as they are stored.

    Raises ``Unsupported`` for tables whose logs cannot be rewritten.
    """
    spec = read_spec(state, None, None, None, "error", stored=True)
    refuse_own_merger(spec.rules)
    if spec.ids is not None or spec.virtual_key:
        what = "whose columns have ids (schema on read)" if spec.ids is not None else "without meta fields"
        raise Unsupported(f"log compaction of a table {what}; compact the table instead", table=ctx.base)
    return spec


@dataclass(frozen=True)
class LogMerge:
    """One execution of one plan: what is read, and how it is written."""

    ctx: WriterContext
    time: str
    state: TableState
    spec: ReadSpec
    user_schema: str
    log_schema: str
    #: how native log files are written; None: they are files of blocks
    native: NativeFiles | None

    @classmethod
    def begin(cls, ctx: WriterContext, time: str, state: TableState) -> LogMerge:
        text = schema_text(state)
        schema = arrow_to_avro(arrow_user_schema(text), table_name=ctx.config.name, meta_fields=True)
        native = NativeFiles.of(ctx.config, {**ctx.config.raw, **ctx.given})
        return cls(ctx, time, state, log_spec(ctx, state), text, schema, native)

    def merge(self, number: int, operation: CompactionOperation) -> LogCompactionStat:
        """Make the new log file of one file group, or find it already made; of native log files there may be
        two."""
        storage, clock = self.ctx.seams.storage, self.ctx.seams.clock
        began = clock.monotonic_ms()
        folded, instants, blocks = self._folded(operation)
        rows, deletes = folded.rows.num_rows, len(folded.deleted) + len(folded.deleted_at)
        made = [
            (name, self._make(operation.partition, name, content).size, name_deletes)
            for name, content, name_deletes in self._contents(number, operation, folded, instants)
        ]
        name, size, only_deletes = made[0]
        beside = None
        if len(made) > 1:
            other, bytes_there, _ = made[1]
            beside = WriteStat(
                operation.partition, operation.file_id, other, operation.base_instant, 1,
                deletes=deletes, size_bytes=bytes_there, beside=name,
            )  # fmt: skip
        return LogCompactionStat(
            operation.partition,
            operation.file_id,
            name,
            operation.base_instant,
            writes=0 if only_deletes else rows,
            deletes=0 if beside is not None else deletes,
            size_bytes=size,
            log_files=len(operation.log_files),
            log_blocks=blocks,
            log_bytes=measured(storage, operation).log_bytes,
            log_rows=folded.total,
            taken_ms=int(clock.monotonic_ms() - began),
            beside=beside,
        )

    def _make(self, partition: str, name: str, content: Content) -> FileInfo:
        storage, target = self.ctx.seams.storage, paths.in_partition(partition, name)

        def remove_if_taken_back() -> None:
            if not self._stands():
                storage.delete(target)
                storage.delete_tree(paths.marker_folder(self.time))

        return make_file(
            storage,
            self.time,
            target,
            f"{self.ctx.seams.random.getrandbits(64):016x}",
            lambda: content,
            what=LOG_COMPACTIONS.what,
            wanted=self._stands,
            durable=self.ctx.services_sync,
            marker=paths.marker(self.time, partition, name),
            then=remove_if_taken_back,
        )

    def _contents(
        self, number: int, operation: CompactionOperation, folded: FoldedLogs, instants: list[str]
    ) -> list[tuple[str, Content, bool]]:
        """Names and contents of the new files, and whether they hold deletes alone."""
        if self.native is None:

            def write(sink: Upload) -> None:
                for block in self._blocks(operation, folded, instants):
                    sink.append(block)

            return [(final_name(self.time, number, operation), write, False)]
        found: list[tuple[str, Content, bool]] = []
        for_rows, for_deletes = native_names(self.time, number, operation)
        if folded.rows.num_rows:
            content = self.native.content(self.time, self.log_schema, folded.rows, compacted=instants)
            found.append((for_rows, content, False))
        deleted = [
            self.native.deletes(self.log_schema, keys, ordering)
            for keys, ordering in ((folded.deleted, None), (folded.deleted_at, folded.ordering))
            if len(keys)
        ]
        if deleted:
            gone = pa.concat_tables(deleted)
            content = self.native.content(
                self.time, self.log_schema, gone, deletes=True, compacted=instants
            )
            found.append((for_deletes, content, True))
        return found

    def _folded(self, operation: CompactionOperation) -> tuple[FoldedLogs, list[str], int]:
        """The folded logs, the instants of their blocks, and the number of blocks."""
        _, logs = split_paths(operation.partition, None, operation.log_files)
        split = Split(operation.partition, operation.file_id, None, logs, self.spec)
        runs = log_runs(self.state.storage, split)
        entries = [entry for run in runs for entry in entries_of(run, self.spec)]
        rules = self.spec.rules
        types = self.spec.ordering_types
        folded = fold_logs(entries, self.spec.schema, rules, types, native=self.native is not None)
        blocks = [block for run in runs for _, block in run]
        return folded, list(dict.fromkeys(block.instant for block in blocks)), len(blocks)

    def _blocks(
        self, operation: CompactionOperation, folded: FoldedLogs, instants: list[str]
    ) -> list[list[bytes | memoryview]]:
        extra = {Header.COMPACTED_BLOCK_TIMES: ",".join(instants)}
        blocks: list[list[bytes | memoryview]] = []
        rows = folded.rows
        if rows.num_rows:
            at_once = max(1, rows.num_rows * _BLOCK_BYTES // max(rows.nbytes, 1))
            blocks += data_blocks(
                self.time,
                self.log_schema,
                rows,
                [*range(0, rows.num_rows, at_once), rows.num_rows],
                block_format=self.ctx.options.block_format,
                compression=BaseFileFormat.from_properties(self.ctx.config.raw).compression,
                extra=extra,
            )
        for keys, ordering in ((folded.deleted, None), (folded.deleted_at, folded.ordering)):
            if len(keys):
                block = delete_block(
                    self.time, self.log_schema, keys, operation.partition, ordering, extra
                )
                blocks.append(block)
        return blocks

    def _stands(self) -> bool:
        """Whether the plan is pending or completed, and not being taken back."""
        state = TableState.load(self.ctx.seams.storage, self.state.config)
        if self.time in condemned(self.ctx.seams.storage, state.timeline):
            return False
        return self.time in pending(state.timeline) or state.completion(self.time) is not None
