"""The table that a stream is written to: opened, or made from the first rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from mainstem.api.create import create_table
from mainstem.api.job_table import exists
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, TableExists, Unavailable, naming
from mainstem.layout.schema_evolution import needed_fields
from mainstem.layout.schema_fit import fit_batch
from mainstem.merge.rules import marks_deletes, merge_rules
from mainstem.storage.backends import Place, location_of
from mainstem.storage.store_options import split
from mainstem.writers.fit_rows import delete_flags
from mainstem.writers.outcome import Outcome
from mainstem.writers.placed_rows import KeyTaken
from mainstem.writers.staged_rows import in_turns
from mainstem.writers.stream_positions import Positions, StreamPositions
from mainstem.writers.transaction import Transaction
from mainstem.writers.write_spec import INSERT_OVERWRITE_TABLE

_TAKEN_MAX = 10
_TYPES = {
    "string": pa.string(), "text": pa.string(), "varchar": pa.string(),
    "int": pa.int32(), "integer": pa.int32(), "bigint": pa.int64(), "long": pa.int64(),
    "float": pa.float32(), "real": pa.float32(), "double": pa.float64(),
    "boolean": pa.bool_(), "bool": pa.bool_(), "binary": pa.binary(), "bytes": pa.binary(),
    "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip


@dataclass(frozen=True)
class NewTable:
    """How to make the table if there is none. ``schema``: its columns, None: those of the first rows."""

    record_key: Sequence[str] = ()
    ordering: Sequence[str] = ()
    partition_by: Sequence[str] = ()
    buckets: int | None = None
    name: str | None = None
    schema: pa.Schema | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    #: chooses the ordering columns among those of the first rows
    ordering_of: Callable[[Sequence[str]], Sequence[str]] | None = None


def parse_schema(text: str) -> pa.Schema:
    """Columns as SQL writes them: ``id bigint, price decimal(10,2), at timestamp``. Raises ``Invalid``."""
    fields = []
    for part in re.split(r",(?![^(]*\))", text):
        name, _, kind = part.strip().partition(" ")
        kind = kind.strip().lower()
        found = _TYPES.get(kind)
        if (digits := re.fullmatch(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", kind)) is not None:
            found = pa.decimal128(int(digits[1]), int(digits[2]))
        if not name or found is None:
            types = ", ".join([*_TYPES, "decimal(P,S)"])
            raise Invalid(f"column {part.strip()!r}: expected NAME TYPE, with one of {types}")
        fields.append(pa.field(name, found))
    return pa.schema(fields)


class TargetTable:
    """A table by its path, which may not exist yet."""

    def __init__(self, path: Place, properties: Mapping[str, object], new: NewTable) -> None:
        self._path, self._properties, self._new = path, dict(properties), new
        of_store, _ = split({str(k): str(v) for k, v in self._properties.items()})
        self._location = location_of(path, options=of_store)
        self._table: Table | None = None
        self._suggested = False

    @property
    def base(self) -> str:
        """Base path."""
        return self._location.base

    @property
    def table(self) -> Table | None:
        """None as long as there is none."""
        with naming(self.base, "the table cannot be looked for", "try again"):
            there = self._table is not None or exists(self._location)
        if self._table is None and there:
            table = open_table(self._path, self._properties)
            raw = table.config
            if not self._suggested:
                self._check("record key", self._new.record_key, raw.record_key)
            self._check("ordering", self._new.ordering, raw.ordering)
            fields = [name.partition(":")[0] for name in raw.partition_fields]
            self._check("partitions", self._new.partition_by, fields)
            self._table = table
        return self._table

    def _check(self, what: str, wanted: Sequence[str], found: Sequence[str]) -> None:
        if wanted and list(wanted) != list(found):
            raise Invalid(
                f"{what} {','.join(wanted)!r} contradicts the table, which has {','.join(found)!r}; leave it"
                " out",
                table=self.base,
            )

    @property
    def schema(self) -> pa.Schema | None:
        """The table's columns by now, or those that it is to be made with; None: nobody said."""
        table = self.table
        with naming(self.base, "the table's columns cannot be read", "try again"):
            return self._new.schema if table is None else table.schema

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the record key."""
        table = self.table
        return tuple(self._new.record_key if table is None else table.config.record_key)

    def suggest_key(self, columns: Sequence[str]) -> None:
        """The record key of a table that is to be made, if nobody said it."""
        if not self._new.record_key:
            self._new = replace(self._new, record_key=tuple(columns))
            self._suggested = True

    def suggest_properties(self, properties: Mapping[str, str]) -> None:
        """Properties of a table that is to be made, below those that somebody said."""
        more = {name: value for name, value in properties.items() if name not in self._properties}
        self._new = replace(self._new, properties={**self._new.properties, **more})

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the table, or those that it is to be made with."""
        table = self.table
        if table is not None:
            return table.config.raw
        return {**{str(k): str(v) for k, v in self._properties.items()}, **self._new.properties}

    @property
    def placing(self) -> tuple[str, ...]:
        """The columns that say which row a row is, and in which partition it lies."""
        table = self.table
        if table is None:
            fields = tuple(name.partition(":")[0] for name in self._new.partition_by)
        else:
            fields = tuple(name.partition(":")[0] for name in table.config.partition_fields)
        return tuple(dict.fromkeys((*self.key_columns, *fields)))

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns in which no row may have null."""
        table = self.table
        ordering = self._new.ordering if table is None else table.config.ordering
        return (*self.key_columns, *ordering)

    def fit(self, rows: pa.Table, known: pa.Schema | None, *, fill: bool) -> tuple[pa.Table, pa.Schema]:
        """The rows in types that their write takes, and the table's columns after it. ``known``: those
        before it, None: there is no table. Raises ``Invalid`` if a row does not fit."""
        for name in self.needed:
            if name not in rows.column_names or rows.column(name).null_count:
                raise Invalid(f"it has no value of column {name!r}, which every row needs")
        if known is None:
            return rows, rows.schema
        more = needed_fields(known, rows, fixed={*self.placing, *self.needed}, fill=fill)
        kinds = {field.name: field.with_nullable(True) for field in (*known, *more)}
        schema = pa.schema(list(kinds.values()))
        return fit_batch(rows, schema, fill=schema.names if fill else (), table=self.base), schema

    def positions(self, source: str) -> Positions:
        """Where a stream stands in the table."""
        table = self.table
        return Positions() if table is None else table.opened.stream_positions(source)

    def write(self, rows: pa.Table, guard: StreamPositions) -> Outcome:
        """Upsert the rows and commit them with their offsets; without rows, the offsets alone."""
        return self.write_parts(lambda: iter([rows] if rows.num_rows else []), rows.schema, guard, whole=True)

    def write_parts(
        self,
        rows: Callable[[], Iterator[pa.Table]],
        schema: pa.Schema,
        guard: StreamPositions,
        *,
        whole: bool = False,
        emptied: bool = False,
    ) -> Outcome:
        """Upsert the tables that ``rows()`` gives, one after another, in one commit. ``schema``: that of the
        first one; ``whole``: there is one at most; ``emptied``: they take the place of all rows that the
        table has. ``rows`` may be called again."""
        operation = INSERT_OVERWRITE_TABLE if emptied else "upsert"
        table = self.table or self._made(schema)
        deletes = marks_deletes(merge_rules(table.config.raw), schema.names)
        for left in range(_TAKEN_MAX, -1, -1):
            try:
                with table.begin(operation, guard=guard, at_once=whole and not deletes) as txn:
                    for batch in () if txn.already_committed else rows():
                        for part in self._in_turns(txn, batch) if deletes else [batch]:
                            txn.write(part)
                    return txn.commit()
            except KeyTaken:  # on a table without buckets others placed its keys at the last moment
                if not left:
                    raise
        raise AssertionError

    @staticmethod
    def _in_turns(txn: Transaction, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows in parts: within one, deletes come last, and a row may follow its key's deletion."""
        spec = txn.task_spec()
        return (part for part, _ in in_turns(spec, rows, delete_flags(rows, spec)))

    def _made(self, rows: pa.Schema) -> Table:
        new = self._new
        if not new.record_key:
            raise Invalid(
                f"there is no table at {self.base}; to make one, say which columns are its record key"
                " (--record-key), and --ordering, --partition-by and --buckets as needed",
                table=self.base,
            )
        schema = pa.unify_schemas([new.schema, rows]) if new.schema is not None else rows
        ordering = new.ordering if new.ordering_of is None else new.ordering_of(schema.names)
        given = {**self._properties, **new.properties}
        try:
            create_table(
                self._path, schema, record_key=new.record_key, ordering=ordering,
                partition_by=new.partition_by, buckets=new.buckets, name=new.name, properties=given,
            )  # fmt: skip
        except TableExists as error:  # these rows may lack columns that it has
            raise Unavailable(f"another process made the table {self.base} meanwhile") from error
        table = self.table
        assert table is not None
        return table
