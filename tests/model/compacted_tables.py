"""Real tables that hold every history of the model: one key per history, one partition per way to cut it.

Every write of a history is part of a transaction that is shared by all keys: one per number of the
write, kind (rows, or ``delete()``) and layer. All begin in the order of the writes, so requested times
are as the histories say; those of layer 0 commit, a compaction runs, the others commit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import mainstem
from mainstem.writers.write_spec import DELETE_MARK, MERGE_ROWS
from tests.model.compaction_model import (
    COMMIT,
    ENDED,
    EVENT,
    NATIVE_EVENT,
    PARTIAL_COMMIT,
    PARTIAL_EVENT,
    TREE_EVENT,
    TREE_PARTIAL_COMMIT,
    TREE_PARTIAL_EVENT,
    Cells,
    History,
    Layers,
    Mode,
    Write,
    answer,
    cuts,
    writes,
)

DELETED = "_hoodie_is_deleted"
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("cut", pa.string()), ("t1", pa.int64()), ("t2", pa.int64()),
        ("a", pa.string()), ("b", pa.string()), (DELETED, pa.bool_()),
    ]
)  # fmt: skip
UNAVAILABLE = "__unavailable__"
# Ordering values 1, 2, 3 in two fields, so that neither field alone tells.
_TWO = {1: (1, 9), 2: (2, 1), 3: (2, 5)}


@dataclass(frozen=True)
class Kind:
    """A kind of table that merges by a mode of the model."""

    name: str
    mode: Mode
    ordering: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)
    absent: str | None = None
    #: deletes with ordering values are those of SQL's statements; no column can mark a row
    sql: bool = False
    version: int = 9

    @property
    def keep(self) -> str:
        """How our compactions keep deletes, if what crosses them has ended."""
        return ENDED if self.mode.event_time else ""

    @property
    def schema(self) -> pa.Schema:
        """Columns of its tables."""
        return SCHEMA.remove(SCHEMA.names.index(DELETED)) if self.sql else SCHEMA

    def make(self, path: Any, *, exclusive: bool = True) -> mainstem.Table:
        """An empty table; not ``exclusive`` if Java writes it too."""
        return mainstem.create_table(
            path, self.schema, record_key="id", ordering=self.ordering, partition_by="cut", buckets=1,
            name="cuts", table_version=self.version,
            properties={
                **self.properties, "hoodie.mainstem.exclusive": exclusive, "hoodie.mainstem.fsync": False,
                "hoodie.time.generator.max_expected_clock_skew_ms": 1,
            },
        )  # fmt: skip


def filling(mode: str) -> dict[str, str]:
    """Properties of a partial update mode."""
    properties = {"hoodie.table.partial.update.mode": mode}
    if mode == "FILL_UNAVAILABLE":
        key = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"
        properties[key] = UNAVAILABLE
    return properties


KINDS = [
    Kind("event time", EVENT, ("t1",)),
    Kind("two ordering fields", EVENT, ("t1", "t2")),
    Kind("commit time", COMMIT),
    Kind("ignore defaults, commit time", PARTIAL_COMMIT, (), filling("IGNORE_DEFAULTS")),
    Kind("fill unavailable, commit time", PARTIAL_COMMIT, (), filling("FILL_UNAVAILABLE"), UNAVAILABLE),
    Kind("ignore defaults, event time", PARTIAL_EVENT, ("t1",), filling("IGNORE_DEFAULTS")),
]
TREE = {"hoodie.table.storage.layout": "lsm_tree"}
#: tables of version 10, of which Java 1.3 is the judge
NATIVE_KINDS = [
    Kind("version 10", NATIVE_EVENT, ("t1",), version=10),
    Kind("lsm tree", TREE_EVENT, ("t1",), TREE, version=10),
    Kind(
        "lsm tree, ignore defaults, commit time", TREE_PARTIAL_COMMIT, (),
        {**TREE, **filling("IGNORE_DEFAULTS")}, version=10,
    ),
    Kind(
        "lsm tree, fill unavailable, commit time", TREE_PARTIAL_COMMIT, (),
        {**TREE, **filling("FILL_UNAVAILABLE")}, UNAVAILABLE, version=10,
    ),
    Kind(
        "lsm tree, ignore defaults, event time", TREE_PARTIAL_EVENT, ("t1",),
        {**TREE, **filling("IGNORE_DEFAULTS")}, version=10,
    ),
]  # fmt: skip
BY_SQL = Kind("deletes by SQL", EVENT, ("t1",), sql=True)
Wanted = dict[tuple[str, str], Cells | None]


@dataclass(frozen=True)
class Histories:
    """All histories of so many writes, cut in all ways by one compaction.

    ``late``: what completes after the compaction also begins after it, where the history allows it.
    """

    kind: Kind
    length: int = 3
    late: bool = False

    def __post_init__(self) -> None:
        choices = writes(self.kind.mode)
        object.__setattr__(self, "all", list(itertools.product(choices, repeat=self.length)))
        object.__setattr__(self, "layers", list(cuts(self.length, 1)))

    all: list[History] = field(init=False)
    layers: list[Layers] = field(init=False)

    def write(
        self, table: mainstem.Table, compact: Callable[[], Any], run: Callable[[], Any] = lambda: None
    ) -> None:
        """Write everything; ``compact`` is called when what the compaction takes in is committed, ``run``
        when what crosses it is.

        Every partition begins with a row of another key: Java plans no compaction of a file group whose
        oldest log is that of a write in flight.
        """
        table.upsert(self._oldest().select(self.kind.schema.names))
        began = self._begin(table, 0)
        for _, transaction in (b for b in began if b[0] == 0):
            transaction.commit()
        compact()
        for _, transaction in reversed([b for b in began if b[0] == 1]):
            transaction.commit()
        run()
        for _, transaction in self._begin(table, 1):
            transaction.commit()

    def _begin(self, table: mainstem.Table, begun: int) -> list[tuple[int, Any]]:
        """(layer, transaction) of all writes that begin after so many compactions."""
        began = []
        for number, deleting, layer in itertools.product(range(self.length), (False, True), (0, 1)):
            rows = self._rows(number, deleting, layer, begun)
            if rows.num_rows:
                transaction = table.begin("delete" if deleting else MERGE_ROWS if self.kind.sql else "upsert")
                transaction.write(self._given(rows, deleting))
                began.append((layer, transaction))
        return began

    def _given(self, rows: pa.Table, deleting: bool) -> pa.Table:
        """The rows as the operation takes them."""
        if deleting:
            return rows.select(["id", "cut"])
        marked = [DELETE_MARK if self.kind.sql and name == DELETED else name for name in rows.column_names]
        return rows.rename_columns(marked)

    def begun(self, cut: Layers) -> Layers:
        """For each write the number of compactions before it was requested."""
        return tuple(int(self.late and min(cut[n:]) == 1) for n in range(len(cut)))

    def _oldest(self) -> pa.Table:
        names = [cut_name(cut) for cut in self.layers]
        count = len(names)
        columns = [["oldest"] * count, names, *([0] * count for _ in "tt"), *([None] * count for _ in "abd")]
        return pa.table(dict(zip(SCHEMA.names, columns, strict=True)), schema=SCHEMA)

    def _rows(self, number: int, deleting: bool, layer: int, begun: int) -> pa.Table:
        chosen = [
            (str(n), history[number])
            for n, history in enumerate(self.all)
            if (history[number].kind == "delete") == deleting
        ]
        cuts = [c for c in self.layers if c[number] == layer and self.begun(c)[number] == begun]
        parts = [self._part(chosen, cut, number) for cut in cuts]
        return pa.concat_tables([SCHEMA.empty_table(), *parts])

    def _part(self, chosen: list[tuple[str, Write]], cut: Layers, number: int) -> pa.Table:
        found = [write for _, write in chosen]
        orders = [(w.order, 0) for w in found]
        if len(self.kind.ordering) > 1:
            orders = [_TWO.get(w.order, (0, 0)) for w in found]
        cells = {
            name: [str(number) if w.kind == "row" and name in w.columns else self.kind.absent for w in found]
            for name in "ab"
        }
        return pa.table(
            {
                "id": [key for key, _ in chosen],
                "cut": [cut_name(cut)] * len(chosen),
                "t1": [first for first, _ in orders],
                "t2": [second for _, second in orders],
                **cells,
                DELETED: [w.kind == "flag" for w in found],
            },
            schema=SCHEMA,
        )

    def wanted(self, *, compacted: bool, keep: str = "") -> Wanted:
        """(cut, key) -> cells, by the model; ``keep``: how the compaction kept deletes."""
        mode, uncut = self.kind.mode, (0,) * self.length
        return {
            (cut_name(cut), str(n)): answer(mode, history, cut if compacted else uncut, self.begun(cut), keep)
            for cut in self.layers
            for n, history in enumerate(self.all)
        }

    def found(self, rows: pa.Table) -> Wanted:
        """(cut, key) -> cells, as a reader gave them."""
        listed = [r for r in rows.select(["cut", "id", "a", "b"]).to_pylist() if r["id"] != "oldest"]
        absent = (None, self.kind.absent)
        cells = {
            (r["cut"], r["id"]): tuple(None if r[c] in absent else int(r[c]) for c in "ab") for r in listed
        }
        assert len(cells) == len(listed)
        keys = ((cut_name(cut), str(n)) for cut in self.layers for n in range(len(self.all)))
        return {key: cells.get(key) for key in keys}


def write_one_after_another(
    table: mainstem.Table, kind: Kind, histories: list[History], compacted: tuple[int, ...]
) -> None:
    """Write histories, a key each, in which a write ends before the next one begins; the table is compacted
    before the writes of these numbers. A partition holds the histories that the same writes overwrite."""
    cuts = [patterned(history) for history in histories]
    for number in range(len(histories[0])):
        if number in compacted:
            table.compact()
        rows: dict[str, list[dict[str, Any]]] = {"": [], "delete": [], "overwrite": []}
        for key, (cut, history) in enumerate(zip(cuts, histories, strict=True)):
            write = history[number]
            gone = write.kind == "flag"
            cells = dict.fromkeys("ab", None if gone else str(number))
            row = {"id": str(key), "cut": cut, "t1": write.order, "t2": 0, **cells, DELETED: gone}
            rows.setdefault("" if write.kind in ("row", "flag") else write.kind, []).append(row)
        for what, operation in (("", ""), ("delete", "delete"), ("overwrite", "insert_overwrite")):
            given = pa.Table.from_pylist(rows[what], schema=SCHEMA)
            if what == "":
                with_marks = [DELETE_MARK if kind.sql and n == DELETED else n for n in SCHEMA.names]
                given, operation = given.rename_columns(with_marks), MERGE_ROWS if kind.sql else "upsert"
            else:
                given = given.select(["id", "cut"] if what == "delete" else kind.schema.names)
            if given.num_rows:
                with table.begin(operation) as transaction:
                    transaction.write(given)
                    transaction.commit()


def patterned(history: History) -> str:
    """The partition of a history."""
    return "cut" + "".join("ox"[write.kind in ("overwrite", "emptied")] for write in history)


def cut_name(layers: Layers) -> str:
    return "cut" + "".join(map(str, layers))
