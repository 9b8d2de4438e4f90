"""Makes the merged log file of each file group in a log compaction.

After the file has appeared, the executor looks at the plan a second time: it may have been suspended while
the plan was taken back. Its file would then belong to no instant, and Java would show it once the active
timeline starts later. See ``log_compaction`` for the order of all steps.
"""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.base_file import BaseFileFormat
from mainstem.formats.log_file import Header, data_blocks, delete_block
from mainstem.layout.schema_fit import arrow_user_schema
from mainstem.limits import MIB
from mainstem.merge.folded_logs import FoldedLogs, fold_logs, refuse_own_merger
from mainstem.readers.planning.query_schema import schema_text
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec
from mainstem.readers.rows.log_rows import entries_of, log_runs
from mainstem.readers.rows.split import ReadSpec, Split, split_paths
from mainstem.services.compaction_plan import measured
from mainstem.services.log_compaction_plan import pending
from mainstem.services.planned_files import Kind, make_file
from mainstem.storage import paths
from mainstem.storage.protocol import Upload
from mainstem.timeline.commit_metadata import LogCompactionStat
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
    """Name of the merged log file of a plan's operation with this number."""
    return paths.log_name(operation.file_id, time, 1, f"{number}-0-0")


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

    @classmethod
    def begin(cls, ctx: WriterContext, time: str, state: TableState) -> LogMerge:
        text = schema_text(state)
        schema = arrow_to_avro(arrow_user_schema(text), table_name=ctx.config.name, meta_fields=True)
        return cls(ctx, time, state, log_spec(ctx, state), text, schema)

    def merge(self, number: int, operation: CompactionOperation) -> LogCompactionStat:
        """Make the new log file of one file group, or find it already made."""
        storage, clock, random = self.ctx.seams.storage, self.ctx.seams.clock, self.ctx.seams.random
        began = clock.monotonic_ms()
        name = final_name(self.time, number, operation)
        target = paths.in_partition(operation.partition, name)
        folded, instants, blocks = self._folded(operation)

        def remove_if_taken_back() -> None:
            if not self._stands():
                storage.delete(target)
                storage.delete_tree(paths.marker_folder(self.time))

        def write(sink: Upload) -> None:
            for block in self._blocks(operation, folded, instants):
                sink.append(block)

        info = make_file(
            storage,
            self.time,
            target,
            f"{random.getrandbits(64):016x}",
            lambda: write,
            what=LOG_COMPACTIONS.what,
            wanted=self._stands,
            durable=self.ctx.services_sync,
            marker=paths.marker(self.time, operation.partition, name),
            then=remove_if_taken_back,
        )
        return LogCompactionStat(
            operation.partition,
            operation.file_id,
            name,
            operation.base_instant,
            writes=folded.rows.num_rows,
            deletes=len(folded.deleted) + len(folded.deleted_at),
            size_bytes=info.size,
            log_files=len(operation.log_files),
            log_blocks=blocks,
            log_bytes=measured(storage, operation).log_bytes,
            log_rows=folded.total,
            taken_ms=int(clock.monotonic_ms() - began),
        )

    def _folded(self, operation: CompactionOperation) -> tuple[FoldedLogs, list[str], int]:
        """The folded logs, the instants of their blocks, and the number of blocks."""
        _, logs = split_paths(operation.partition, None, operation.log_files)
        split = Split(operation.partition, operation.file_id, None, logs, self.spec)
        runs = log_runs(self.state.storage, split)
        entries = [entry for run in runs for entry in entries_of(run, self.spec)]
        rules = self.spec.rules
        types = self.spec.ordering_types
        folded = fold_logs(entries, self.spec.schema, rules, types)
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
