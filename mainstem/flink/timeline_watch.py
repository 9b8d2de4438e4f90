"""Watches the timeline for a streaming read: emits newly completed changes as splits; its position is in
Flink's state.

1. A ``datagen`` source gives one row per second; its values mean nothing.
2. All rows go to one key of one keyed operator. When the interval has passed it lists the timeline, takes the
   instants completed after its position, oldest first, hands out one split per changed file group, and moves
   its position to the newest of them.
3. Flink passes a checkpoint's barrier on after the rows before it have gone through all operators (the
   bundles of Python operators are finished first), so the position in a checkpoint and the changes that
   the sinks of that checkpoint hold are the same.

A job that dies at any point is restored with an older position and the sinks that belong to it, and plans
again from there: the borders between looks may be others, the changes are the same. A job that stood still
for an hour goes on at its position. If a clean has removed what it has not read yet, or a restore has taken
instants back that it had handed out, it fails and says so: a change feed with holes is worse than none.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyflink.common import Types
from pyflink.datastream.functions import KeyedProcessFunction, RuntimeContext
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import DataTypes, TableDescriptor
from pyflink.table.schema import Schema

from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid
from mainstem.flink.split_reader import SPLIT
from mainstem.readers.changes.commit_range import write_times
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.scan_plan import ReadableSplit
from mainstem.readers.rows.split import slices_of

if TYPE_CHECKING:
    import pyarrow.compute as pc
    from pyflink.table import StreamTableEnvironment
    from pyflink.table import Table as FlinkTable


def changed_splits(
    t_env: StreamTableEnvironment,
    table: Table,
    columns: tuple[str, ...],
    filter: pc.Expression | None,
    *,
    after: str,
    end: str | None,
    seconds: int,
    most: int | None,
    tasks: int | None,
    uid: str,
) -> FlinkTable:
    """An unbounded table of pickled splits of what completes after ``after``.

    ``after``: a completion time, "0" to begin with the snapshot; ``end``: the newest completion time to show;
    ``seconds``: between two looks; ``most``: instants per look; ``tasks``: readers, None for the
    environment's parallelism; ``uid``: Flink's name of the position's state. Without one Flink would make
    it of the job's shape, which changes with the parallelism.
    """
    ticks = (
        TableDescriptor.for_connector("datagen")
        .schema(Schema.new_builder().column("tick", DataTypes.INT()).build())
        .option("rows-per-second", "1")
        .build()
    )
    watch = Watch(table.path, dict(table.opened.given), columns, filter, after, end, seconds, most)
    named = Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()])
    splits = (
        t_env.to_data_stream(t_env.from_descriptor(ticks))
        .key_by(_one_key, key_type=Types.INT())
        .process(watch, output_type=named)
        .name(f"watch {table.config.name}")
        .uid(uid)
        .set_parallelism(1)
        .key_by(_group, key_type=Types.STRING())
        .map(
            _split,
            output_type=Types.ROW_NAMED([SPLIT], [Types.PRIMITIVE_ARRAY(Types.BYTE())]),
        )
    )
    if tasks is not None:
        splits = splits.set_parallelism(tasks)
    schema = Schema.new_builder().column(SPLIT, DataTypes.BYTES()).build()
    return t_env.from_data_stream(splits, schema)


def _one_key(_: Any) -> int:
    return 0


def _group(found: tuple[str, bytes]) -> str:
    return found[0]


def _split(found: tuple[str, bytes]) -> Any:
    from pyflink.common import Row

    return Row(found[1])


class Watch(KeyedProcessFunction):
    """Step 2 of the module's text."""

    def __init__(
        self,
        path: str,
        properties: dict[str, str],
        columns: tuple[str, ...],
        filter: pc.Expression | None,
        after: str,
        end: str | None,
        seconds: int,
        most: int | None,
    ) -> None:
        self._path, self._properties = path, properties
        self._columns, self._filter = columns, filter
        self._after, self._end, self._seconds, self._most = after, end, seconds, most
        self._looked = -1e9
        self._table: Table | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        """The state: the completion time up to which changes were handed out."""
        self._position = runtime_context.get_state(ValueStateDescriptor("completion", Types.STRING()))

    def woken(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, bytes]]:
        """Called once per second; looks at the timeline if the interval has passed."""
        now = time.monotonic()
        if now - self._looked < self._seconds - 0.5:
            return
        self._looked = now
        position = self._position.value() or self._after
        until, splits = self.look(position)
        for split in slices_of(splits):
            yield f"{split.partition}/{split.file_id}", pickle.dumps(split)
        if until != position:
            self._position.update(until)

    process_element = woken  # PyFlink's name for it

    def look(self, position: str) -> tuple[str, list[ReadableSplit]]:
        """The new position, and what completed between. Raises ``Invalid`` where changes cannot be told."""
        table = self._table = self._table or open_table(self._path, self._properties)
        times = write_times(TableState.load(table.opened.seams.storage, table.config))
        if times and position > times[-1] and self._end is None and position != self._after:
            raise Invalid(
                f"the stream has read up to completion time {position}, but the table's newest is"
                f" {times[-1]}: a restore removed instants. Start the job without its state",
                table=self._path,
            )
        found = [t for t in times if t > position and (self._end is None or t <= self._end)]
        if not found:
            return position, []
        names = list(self._columns)
        if position == "0":
            plan = table.scan(columns=names, filter=self._filter, as_of_completion=found[-1])
            return found[-1], plan.splits()
        until = found[-1 if self._most is None else min(self._most, len(found)) - 1]
        return until, table.changes(position, until, columns=names, filter=self._filter).splits()
