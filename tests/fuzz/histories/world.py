"""A table and its model side by side, and the comparison of the two."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import mainstem
from mainstem.api.write_request import write_spec
from mainstem.errors import MainstemError
from mainstem.layout.buckets import bucket_ids, file_id_bucket
from mainstem.layout.partitions import list_partitions
from mainstem.readers.queries.scan_plan import ScanPlan
from mainstem.storage import paths
from mainstem.writers.transaction import Transaction
from tests.fuzz.histories.ledger import Answers, answer_of
from tests.fuzz.histories.model import Model, Operation, Write, row_of, values_of
from tests.fuzz.histories.shapes import DELETED, Shape
from tests.fuzz.histories.values import WIDER, Kind, canonical, cells, column, draw, stored
from tests.sim.oracle import Row, Where

Values = dict[str, Any]
META = ("_hoodie_record_key", "_hoodie_partition_path")


class Finding(AssertionError):
    """The table did what it must not."""


@dataclass
class Held:
    """A transaction that stays open while other actions run."""

    transaction: Transaction
    operations: list[Operation] = field(default_factory=list)
    columns: tuple[str, ...] = ()


@dataclass
class World:
    """One table, what it must hold, and what was told of it."""

    path: str
    shape: Shape
    table: mainstem.Table
    model: Model
    #: kind of each column, those that came later too
    kinds: dict[str, Kind]
    without: frozenset[str] = frozenset()
    options: dict[str, object] = field(default_factory=dict)
    held: Held | None = None
    #: requested time of an instant with a savepoint -> its completion time
    savepoints: dict[str, str] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    #: how often each action was refused, with the last reason
    refused: Counter[str] = field(default_factory=Counter)
    evolved: int = 0
    archived: bool = False
    #: completion time of the newest instant when a restore was last done
    restored: str = ""

    @classmethod
    def create(cls, path: str, shape: Shape, without: frozenset[str]) -> World:
        """A new table."""
        options = {"hoodie.mainstem.fsync": False}
        shape.create(path)
        model = Model(shape.mode, tuple(shape.kinds))
        table = mainstem.open_table(path, options)
        made = cls(path, shape, table, model, dict(shape.kinds), without, options)
        for kind, columns in shape.indexes:
            try:
                table.create_index(kind, columns)
            except MainstemError as error:
                made.refusal(f"create_index {kind} at first", error)
        return made

    # -- rows ----------------------------------------------------------------------------------------

    def value(self, kind: Kind, chance: random.Random) -> Any:
        """A value of a column."""
        found = draw(kind, chance)
        if "nan" in self.without and kind.name in ("float", "double") and found != found:
            return kind.ordinary[0]
        return found

    def rows(self, chance: random.Random, names: Sequence[str] | None = None) -> list[Values]:
        """Some rows with these columns (by default all that the table has)."""
        names = self.model.columns_at() if names is None else names
        return [self._row(chance, names) for _ in range(chance.choice((1, 2, 3, 5, 9)))]

    def _row(self, chance: random.Random, names: Sequence[str]) -> Values:
        row: Values = dict(zip(self.shape.keys, chance.choice(self.shape.key_pool), strict=True))
        if self.shape.parts:
            row |= dict(zip(self.shape.parts, chance.choice(self.shape.part_pool), strict=True))
        for name, kind in self.shape.orders.items():
            row[name] = draw(kind, chance, 0.2, 0.0)
            if "nan" in self.without and row[name] != row[name]:
                row[name] = kind.ordinary[0]
        for name in names:
            if name == DELETED:
                row[name] = chance.random() < 0.2
            elif name not in row:
                row[name] = self.value(self.kinds[name], chance)
        return {name: row[name] for name in [*names]}

    def arrow(self, rows: Sequence[Values], names: Sequence[str] | None = None) -> pa.Table:
        """Rows as an Arrow table of the columns' kinds."""
        names = list(rows[0]) if names is None else list(names)
        made = [column([row[name] for row in rows], self.kinds[name]) for name in names]
        return pa.table(made, schema=pa.schema([(name, self.kinds[name].arrow) for name in names]))

    @property
    def key_names(self) -> list[str]:
        """Columns that ``delete`` needs."""
        return [*self.shape.keys, *self.shape.parts]

    def plain(self, rows: Sequence[Values]) -> bool:
        """Whether nothing in keys and partitions gives a reason to refuse the rows."""
        types = {f.name: f.type for f in self.table.schema}
        if any(not _same_type(types[n], k.arrow) for n, k in self.kinds.items() if n in types):
            return False  # a column that an index keeps from being widened
        ordinary = {name: self.kinds[name].ordinary for name in self.key_names}
        return all(row[name] in ordinary[name] for row in rows for name in self.key_names)

    # -- the model ------------------------------------------------------------------------------------

    def operations(
        self, kind: str, rows: Sequence[Values], based: frozenset[Where] = frozenset()
    ) -> list[Operation]:
        """What a write of rows does, as the model keeps it: as in Java, deletes come behind the rows of their
        batch in log files. Rows of base files (``based``) are merged in their order."""
        types = {field.name: field.type for field in self.table.schema}
        wheres = [self.shape.where(row) for row in rows]
        if kind == "delete":
            return [(None, (where, None)) for where in wheres]
        written: list[Operation] = []
        behind: list[Operation] = []
        for row, where in zip(rows, wheres, strict=True):
            order = self.shape.order(row)
            if row.get(DELETED):
                gone = (where, self._delete_order(row, order))
                (written if where in based else behind).append((None, gone))
            else:
                read = self.shape.read_back(row)
                values = {n: stored(v, types[n]) if n in types else v for n, v in read.items()}
                written.append((row_of(where, order, values), None))
        return written + behind

    def _delete_order(self, row: Values, order: Any) -> Any:
        """Hudi's log files cannot tell the int 0 from no ordering value, and that one always deletes."""
        kinds = [kind.name for kind in self.shape.orders.values()]
        return None if kinds == ["int"] and row[next(iter(self.shape.orders))] == 0 else order

    def committed(
        self, outcome: mainstem.Outcome, operations: list[Operation], based: frozenset[Where] = frozenset()
    ) -> None:
        """Note a commit."""
        if not outcome.completion_time:
            return
        names = tuple(self.table.schema.names)
        self.model.events.append(Write(outcome.instant, outcome.completion_time, operations, names, based))

    def placed(self, rows: Sequence[Values]) -> dict[Where, tuple[str, int]]:
        """Partition path and bucket of each row, by the engine's own hash."""
        ctx = self.table.writer_context()
        spec = write_spec(self.table.opened, ctx, "upsert")
        table = self.arrow(rows, self.key_names)
        keys = spec.keys.record_keys(table)
        codes, partitions = spec.keys.partitions(table)
        buckets = bucket_ids(keys.texts, buckets=spec.buckets, hash_fields=spec.hash_fields, parts=keys.parts)
        return {
            self.shape.where(row): (partitions[code], int(bucket))
            for row, code, bucket in zip(rows, codes, buckets, strict=True)
        }

    def occupied(self) -> set[tuple[str, int]]:
        """Partition paths and buckets that have files."""
        storage = self.table.opened.seams.storage
        found = set()
        for listing in list_partitions(storage, partitioned=bool(self.shape.parts)):
            for name in listing.names:
                parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
                if parsed is not None:
                    found.add((listing.partition, file_id_bucket(parsed.file_id)))
        return found

    # -- comparing ------------------------------------------------------------------------------------

    def expected(self, rows: dict[Where, Row], schema: pa.Schema) -> Counter:
        """Rows of the model as a bag of canonical tuples in the columns of ``schema``."""
        return Counter(
            tuple(canonical(stored(values_of(row).get(f.name), f.type)) for f in schema)
            for row in rows.values()
        )

    def check_schema(self, schema: pa.Schema, names: Sequence[str], where: str) -> None:
        """The columns are those of the model, in types that they may have."""
        if set(schema.names) != set(names):
            raise Finding(f"{where}: columns {schema.names}, expected {list(names)}")
        for f in schema:
            kind = self.kinds[f.name]
            allowed = [kind.arrow, *(_kind(wider).arrow for wider in WIDER.get(kind.name, ()))]
            allowed += [k.arrow for k in map(_kind, _narrower(kind.name))]
            if not any(_same_type(f.type, t) for t in allowed):
                raise Finding(f"{where}: column {f.name} is {f.type}, expected one of {allowed}")

    def check_rows(self, found: pa.Table, rows: dict[Where, Row], where: str) -> None:
        """The rows are those of the model, each key once."""
        meta = [name for name in META if name in found.schema.names]
        if len(meta) == 2:
            keys = Counter(zip(*(found.column(name).to_pylist() for name in meta), strict=True))
            doubled = [key for key, count in keys.items() if count > 1]
            if doubled:
                raise Finding(f"{where}: {len(doubled)} keys more than once: {doubled[:3]!r}")
        found = found.select([n for n in found.schema.names if not n.startswith("_hoodie_") or n == DELETED])
        expected, got = self.expected(rows, found.schema), bag(found)
        if expected != got:
            missing, extra = list((expected - got).items()), list((got - expected).items())
            raise Finding(
                f"{where}: {got.total()} rows, expected {expected.total()}\n  columns {found.schema.names}"
                f"\n  missing {_cut(missing)}\n  not expected {_cut(extra)}"
            )

    def check(self, where: str) -> None:
        """The table is what the model says."""
        found = self.table.scan().to_arrow()
        user = pa.schema([f for f in found.schema if not f.name.startswith("_hoodie_") or f.name == DELETED])
        self.check_schema(user, self.model.columns_at(), where)
        self.check_rows(found, self.model.rows(), where)

    def note_now(self) -> None:
        """Remember what the newest completed times answer."""
        last = max((e.completed or "" for e in self.model.events), default="")
        begun = max((e.requested for e in self.model.events), default="")
        if last > self.restored:  # else before a restore, and refused
            self.note_completion(last)
            self.note_requested(begun)

    def note_completion(self, time: str) -> None:
        """Ask for a completion time, hold it against the model and remember the answer."""
        where = f"as_of_completion={time}"
        found = self.table.scan(as_of_completion=time, columns=None).to_arrow()
        self._past(found, where, self.model.columns_at(time), self.model.rows(time))
        self.answers.note("as_of_completion", (time,), answer_of(found))

    def note_requested(self, time: str) -> None:
        """The same for a requested time."""
        where = f"as_of={time}"
        if self.held is not None and self.held.transaction.instant <= time:
            return  # it may still change the answer, and the question is refused
        found = self.table.scan(as_of=time, columns=None).to_arrow()
        self._past(found, where, self.model.columns_at(begun=time), self.model.rows(begun=time))
        planned = self.model.planned()
        if planned is None or planned.requested > time:
            self.answers.note("as_of", (time,), answer_of(found))

    def _past(self, found: pa.Table, where: str, names: Sequence[str], rows: dict[Where, Row]) -> None:
        user = pa.schema([f for f in found.schema if not f.name.startswith("_hoodie_") or f.name == DELETED])
        self.check_schema(user, names, where)
        self.check_rows(found, rows, where)

    # -- refusals -------------------------------------------------------------------------------------

    def refusal(self, action: str, error: MainstemError) -> None:
        """Count a refusal that is allowed."""
        self.refused[f"{action}: {type(error).__name__}: {str(error)[:150]}"] += 1


def bag(table: pa.Table) -> Counter:
    """The rows of a table as canonical tuples."""
    columns = [cells(table.column(name)) for name in table.schema.names]
    return Counter(tuple(map(canonical, row)) for row in zip(*columns, strict=True))


def plan_rows(plan: ScanPlan) -> Counter:
    """The rows of a plan."""
    return bag(plan.to_arrow())


def _cut(rows: list) -> str:
    text = repr(rows[:3])
    return text if len(text) < 1500 else text[:1500] + "..."


def _kind(name: str) -> Kind:
    from tests.fuzz.histories.values import KINDS

    return KINDS[name]


def _narrower(name: str) -> list[str]:
    return [narrow for narrow, wider in WIDER.items() if name in wider]


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_nested(wanted):
        return type(found) is type(wanted) or pa.types.is_list(found) == pa.types.is_list(wanted)
    return found == wanted
