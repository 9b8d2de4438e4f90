"""What a statement does to each row: checked by columns, in the driver or in the task that writes it.

The plan of an UPDATE, DELETE or MERGE gives rows with a column ``ACTION``. All rows of a key come to one
process, whichever clause they are from. Nothing of a statement is visible before all were checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.merge.modes import IGNORE_DEFAULTS
from mainstem.writers.write_spec import DELETE_MARK

ACTION = "_mainstem_action"


class Action(IntEnum):
    """What becomes of a row, or why nothing can."""

    UPDATE = 0
    INSERT = 1
    DELETE = 2
    MOVES = 10
    IS_THERE = 11
    SETS_NULL = 12
    GOES_BACK = 13


_WHY = {
    Action.MOVES: (
        "would give the row with {key} another record key or partition: {columns} cannot be updated. Delete"
        " the row and insert it anew, or name all of these columns in the ON condition (t.c = s.c)"
    ),
    Action.IS_THERE: (
        "would insert a row with {key}, which the table has already: ON did not match it, so the row that is"
        " there would be replaced. Match on {columns} alone, and put other conditions behind WHEN MATCHED AND"
    ),
    Action.SETS_NULL: (
        "would set a column of the row with {key} to null or to its default: on a table with"
        f" {IGNORE_DEFAULTS} these mean 'keep the older value', so the row would stay as it is. Leave such"
        " columns out, or delete the row and insert it anew in another statement"
    ),
    Action.GOES_BACK: (
        "would give the row with {key} a smaller ordering value than it has: the older row would win, and"
        " nothing would change. Set a greater value, or leave the ordering field out"
    ),
}


@dataclass(frozen=True)
class RowActions:
    """A ``RowStep``; picklable. ``verb`` is the statement's, for messages; ``key`` the columns that tell rows
    apart (record key, then partition); ``marks``: rows get the mark of deletes (``MERGE_ROWS``); ``once``:
    each key may stand once."""

    verb: str
    key: tuple[str, ...]
    marks: bool
    once: bool
    table: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows to write. Raises ``Invalid`` for a row that nothing can become of, and at the end, if
        several rows of the statement would change or insert one."""
        seen: list[pa.RecordBatch] = []
        for batch in batches:
            self._check(batch)
            if self.once:
                seen.append(batch.select([*self.key, ACTION]))
            rows = batch.drop_columns([ACTION])
            if self.marks:
                rows = rows.append_column(DELETE_MARK, pc.equal(batch.column(ACTION), int(Action.DELETE)))
            yield rows
        if seen:
            self._check_once(pa.Table.from_batches(seen))

    def _check(self, batch: pa.RecordBatch) -> None:
        wrong = pc.index(pc.greater_equal(batch.column(ACTION), int(Action.MOVES)), True).as_py()
        if wrong >= 0:
            action = Action(batch.column(ACTION)[wrong].as_py())
            key = self._key(batch.slice(wrong, 1).to_pylist()[0])
            why = _WHY[action].format(key=key, columns=", ".join(self.key))
            raise Invalid(f"{self.verb} {why}. Nothing was written", table=self.table)

    def _check_once(self, rows: pa.Table) -> None:
        """Deletes may meet: one, or several, leave the same."""
        if self.key[0] == KEY_COLUMN:  # made up: new rows have none yet
            rows = rows.filter(rows.column(KEY_COLUMN).is_valid())
        counted = rows.group_by(list(self.key)).aggregate([(ACTION, "count"), (ACTION, "min")])
        several = pc.and_(
            pc.greater(counted.column(f"{ACTION}_count"), 1),
            pc.not_equal(counted.column(f"{ACTION}_min"), int(Action.DELETE)),
        )
        met = counted.filter(several)
        if met.num_rows:
            actions = rows.column(ACTION).filter(_same(rows, met.slice(0, 1), self.key)).unique().to_pylist()
            inserts = set(actions) == {Action.INSERT}
            raise Invalid(
                f"{self.verb}: several rows of the source {'insert' if inserts else 'match'} one row, with"
                f" {self._key(met.slice(0, 1).to_pylist()[0])} ({met.num_rows} such keys here), and which of"
                " them counts would be chance. Give each key once (GROUP BY, or row_number() over a window of"
                " the key and WHERE it is 1). Nothing was written",
                table=self.table,
            )

    def _key(self, row: dict[str, object]) -> str:
        return ", ".join(f"{name}={row[name]!r}" for name in self.key)


def _same(rows: pa.Table, one: pa.Table, names: tuple[str, ...]) -> pa.Array:
    """Mask of the rows with the values of ``one`` row."""
    found = None
    for name in names:
        column, value = rows.column(name), one.column(name)[0]
        equal = pc.fill_null(pc.equal(column, value), False) if value.is_valid else column.is_null()
        found = equal if found is None else pc.and_(found, equal)
    return found
