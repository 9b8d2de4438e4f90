"""DELETE FROM, UPDATE and MERGE INTO a table of this source.

    1. Spark parses the statement; its parts are cut out of the text (``row_syntax``) and compared with what
       Spark found.
    2. The table is read as of the newest completion time: a view that never changes, however often Spark
       evaluates the plan.
    3. One query: the table, joined with the source for MERGE; each row's clause is the first that fits; the
       values of its clause. It is analysed on a stand-in first, which tells what must be read
       (``pushed_down``); of a MERGE the keys of a small source tell which rows (``source_looks``).
    4. Values are cast as Spark casts what INSERT stores, and each row gets an action (``row_actions``).
    5. The rows are written like any batch (``sink``), in the driver or in tasks, which check that no two rows
       of the statement meet: one instant with rows and deletes.

Nobody waits for a statement, and it waits for nobody. What others complete after step 2 is not seen, and
merges with what the statement wrote by the table's rules: docs/sql.md says which anomalies that leaves.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.key_generator import KEY_COLUMN
from mainstem.merge.modes import FILL_UNAVAILABLE, IGNORE_DEFAULTS
from mainstem.options.engines import MERGE_PARTIAL
from mainstem.options.reading import AS_OF_COMPLETION
from mainstem.spark.in_tasks import is_connect
from mainstem.spark.index_syntax import tokens
from mainstem.spark.looked_at import Looked, newest_moment, opened
from mainstem.spark.options import COLUMNS, FILTER, WriteOptions
from mainstem.spark.pushed_down import needs, quoted, stand_in, widened
from mainstem.spark.reads_in_tasks import read_in_tasks
from mainstem.spark.row_actions import ACTION, Action, RowActions
from mainstem.spark.row_syntax import (
    BY_SOURCE,
    DELETE,
    INSERT,
    MATCHED,
    MERGE,
    NOT_MATCHED,
    UPDATE,
    Assignment,
    Clause,
    RowStatement,
    equal_sides,
    name_parts,
    named_columns,
    normal,
)
from mainstem.spark.session_options import session_options
from mainstem.spark.sink import write_statement
from mainstem.spark.source_looks import Keys, is_fixed, is_sent
from mainstem.spark.statement_parts import check_parts
from mainstem.spark.stored_values import Storing, same_values, texts_of
from mainstem.spark.types import spark_schema
from mainstem.writers.outcome import Outcome
from mainstem.writers.write_spec import DELETE_ROWS, MERGE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_CLAUSE, _VALUE, _OLD = "_mainstem_clause", "_mainstem_value_{}", "_mainstem_old_{}"
_IN_SOURCE = "_mainstem_in_source"
# Joins that show no row of the table without a match.
_OF_MATCHED = ("INNER", "RIGHT OUTER")


def run(
    spark: SparkSession,
    statement: RowStatement,
    path: str,
    properties: Mapping[str, object],
    arguments: Mapping[str, Any],
) -> Outcome:
    """Carries out a statement on the table at ``path``. ``properties`` are those of ``open_table``.

    Raises ``Invalid`` for what the table cannot hold and for rows that meet, ``Unsupported`` for clauses that
    there are not; nothing is written then.
    """
    check_parts(spark, statement)
    options = WriteOptions.parse(dict(properties), path=path, below=session_options(spark))
    table = opened(statement.verb, options)
    plan = Plan.of(spark, statement, Looked.at(table, newest_moment(table)), properties)
    return write_statement(plan.rows(properties, arguments), table, plan.written(options), plan.step)


# -- the plan -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Given:
    """The value of one column in one clause: a text of the statement, or a column of the source."""

    text: str
    at: int


@dataclass
class Plan:
    """One statement on one table."""

    spark: SparkSession
    statement: RowStatement
    table: Looked
    schema: StructType
    #: per clause what it assigns, by column; DELETE and UPDATE have one clause
    clauses: list[tuple[Clause, dict[str, _Given]]]
    key: tuple[str, ...]
    partial: str | None

    @classmethod
    def of(
        cls, spark: SparkSession, statement: RowStatement, table: Looked, properties: Mapping[str, object]
    ) -> Plan:
        """Raises ``Invalid`` and ``Unsupported`` for what cannot be assigned."""
        from pyspark.sql.types import StringType, StructField, StructType

        config = table.config
        made_up = not config.record_key
        key = tuple(dict.fromkeys((*(config.record_key or (KEY_COLUMN,)), *config.partition_fields)))
        asked = {name: text for name in MERGE_PARTIAL.names if (text := spark.conf.get(name, None))}
        asked |= {name: str(value) for name, value in properties.items()}
        partial = table.rules.partial if MERGE_PARTIAL.read(asked) else None
        schema = spark_schema(table.schema)
        if made_up:  # rows are told by the key that each has in the table
            schema = StructType([StructField(KEY_COLUMN, StringType()), *schema.fields])
        made = cls(spark, statement, table, schema, [], key, partial)
        made.clauses = made._clauses()
        return made

    @property
    def step(self) -> RowActions:
        """What checks the rows."""
        deletes, merges = self.statement.verb == DELETE, self.statement.verb == MERGE
        return RowActions(
            self.statement.verb, self.key, marks=not deletes, once=merges, table=self.table.path
        )

    def written(self, options: WriteOptions) -> WriteOptions:
        """The options with the operation that writes the rows."""
        operation = DELETE_ROWS if self.statement.verb == DELETE else MERGE_ROWS
        return replace(options, operation=operation, chosen=True)

    def _clauses(self) -> list[tuple[Clause, dict[str, _Given]]]:
        statement = self.statement
        if statement.verb == DELETE:
            return [(Clause(MATCHED, DELETE), {})]
        if statement.verb == UPDATE:
            given = self._assigned(statement.assignments)
            for name in given:
                if name in self.key:
                    raise Invalid(
                        f"UPDATE ({statement.place(given[name].at)}): {name!r} is a record key or partition"
                        " column, which tells where a row lies: INSERT the row with its new value, and DELETE"
                        " the old one",
                        table=self.table.path,
                    )
            return [(Clause(MATCHED, UPDATE), given)]
        found = []
        for clause in statement.clauses:
            given = {} if clause.star else self._assigned(clause.assignments)
            found.append((clause, self._star() if clause.star else given))
        return found

    def _assigned(self, assignments: Sequence[Assignment]) -> dict[str, _Given]:
        found: dict[str, _Given] = {}
        for one in assignments:
            name = self._column(one)
            if name in found:
                raise Invalid(f"{name!r} is assigned twice ({self.statement.place(one.at)})")
            text = "NULL" if one.value.strip().upper() == "DEFAULT" else str(one.value)
            found[name] = _Given(text, one.at)
        return found

    def _column(self, one: Assignment) -> str:
        """The table's column that is assigned, in the table's own case."""
        parts, where = one.column, self.statement.place(one.at)
        if len(parts) > 1 and self._alike(parts[0], self.statement.qualifier):
            parts = parts[1:]
        name = next((n for n in self.schema.names if self._alike(n, parts[0])), None)
        if name is None or parts[0] in META_FIELDS:
            raise Invalid(
                f"{self.statement.verb} ({where}): the table has no column {'.'.join(one.column)!r} to"
                f" assign; it has {', '.join(self.schema.names)}",
                table=self.table.path,
            )
        if len(parts) > 1:
            raise Unsupported(
                f"{self.statement.verb} ({where}): a field of the struct {name!r} is assigned; assign"
                " the whole column (named_struct)",
                table=self.table.path,
            )
        return name

    def _alike(self, one: str, other: str) -> bool:
        return self._storing.alike(one, other)

    def _star(self) -> dict[str, _Given]:
        """Every column from the source's column of its name (Spark's UPDATE SET * and INSERT *)."""
        name = self.statement.source_name
        prefix = f"{quoted(name)}." if name else ""
        names = [column for column in self.schema.names if column != KEY_COLUMN]
        return {column: _Given(f"{prefix}{quoted(column)}", 0) for column in names}

    # -- its query -----------------------------------------------------------------------------------

    def rows(self, properties: Mapping[str, object], arguments: Mapping[str, Any]) -> DataFrame:
        """The rows to write, with their actions."""
        if self._is_upsert() and self._names_its_source():
            upserted = self._upserted(arguments)
            if upserted is not None:
                return upserted
        schema, moment = spark_schema(self.table.shown), self.table.moment
        fixed, keys = False, None
        if self.statement.verb == MERGE:
            fixed = is_fixed(self.spark, self.statement, arguments)
        guess = stand_in(self.spark, schema)
        view = _new_view()
        with _viewed(self.spark, view, guess):
            text = self._query(view, twice=False)
            query = self.spark.sql(text, **arguments)
            upserted = self._upserted(arguments) if self._is_upsert() else None
            if upserted is not None:
                return upserted
            acted = self._acted(query)
            if fixed and moment is not None and self._join in _OF_MATCHED:
                schemas = schema, self.table.shown
                keys = Keys.of(self.spark, self.statement, self._storing, schemas, arguments)
            if fixed and keys is None and self._join == "RIGHT OUTER":
                before = self._query(view, twice=True)
                of_two = self._acted(self.spark.sql(before, **arguments))
                text, acted = (before, of_two) if is_sent(self.spark, of_two) else (text, acted)
            wanted = needs(acted, guess)
        if moment is None:
            return self._shaped(text, view, guess, arguments)
        # Never no columns: a row must be there for each of the table's.
        columns = wanted.columns or self.key[:1]
        options = {AS_OF_COMPLETION: moment, COLUMNS: ",".join(columns)}
        if wanted.filter:
            options[FILTER] = wanted.filter
        given = {str(name): str(value) for name, value in properties.items()}
        among = None if keys is None else keys.filter()
        read = read_in_tasks(self.spark, self.table.path, {**given, **options}, among)
        return self._shaped(text, view, widened(read, schema), arguments)

    def _is_upsert(self) -> bool:
        """Whether a MERGE does the same to a row whether or not the table has its key: UPDATE and INSERT of
        the same values for all columns, matched by the whole key. Then nothing of the table is read.
        """
        kinds = [(clause.kind, clause.action, clause.condition) for clause, _ in self.clauses]
        if sorted(kinds) != [(MATCHED, UPDATE, ""), (NOT_MATCHED, INSERT, "")]:
            return False
        if self.table.rules.partial == IGNORE_DEFAULTS or self._may_miss():
            return False
        floats = any(self.schema[name].dataType.typeName() in ("float", "double") for name in self.key)
        if floats or not set(self.key) <= set(self._equalities or {}):
            return False  # 0.0 equals -0.0 and is another key
        given = {
            clause.kind: {name: self._normal(one.text) for name, one in values.items()}
            for clause, values in self.clauses
        }
        updated, inserted = given[MATCHED], given[NOT_MATCHED]
        updated = {**{name: inserted.get(name, "") for name in self.key}, **updated}
        return set(inserted) == set(self.schema.names) and updated == inserted

    def _names_its_source(self) -> bool:
        """Whether each value of an upsert is a column of the source, and said to be: then it means the same
        where there is nothing but the source, and need not be looked at beside the table."""
        name = self.statement.source_name
        if not name or self._alike(name, self.statement.qualifier):
            return False
        texts = [given.text for _, _, given in self._values()]
        for pair in equal_sides(self.statement.condition) or ():
            texts += [side for side in pair if not self._alike(_first(side), self.statement.qualifier)]
        return all(len(name_parts(text)) == 2 and self._alike(_first(text), name) for text in texts)

    def _upserted(self, arguments: Mapping[str, Any]) -> DataFrame | None:
        """The rows of a MERGE that ``_is_upsert``; None if a key is stored as another value than ON compares:
        1.5 is not 1."""
        from pyspark.sql import functions as F

        ((_, given),) = [one for one in self.clauses if one[0].kind == NOT_MATCHED]
        values = [f"({given[name].text}\n) AS {quoted(name)}" for name in self.schema.names]
        selected = ", ".join([*values, f"{int(Action.UPDATE)} AS {ACTION}"])
        text = f"{self.statement.head}SELECT {selected} FROM {self.statement.source}"
        found = self.spark.sql(text, **arguments)
        kinds = {field.name: field.dataType for field in found.schema}
        if not all(same_values(kinds[name], self.schema[name].dataType) for name in self.key):
            return None
        if all(kinds[name] == self.schema[name].dataType for name in self.schema.names):
            return found
        stored = [self._stored(found, name, name, given[name].text).alias(name) for name in self.schema.names]
        return found.select(*stored, F.col(ACTION))

    @contextmanager
    def rows_by_words(
        self, properties: Mapping[str, object], arguments: Mapping[str, Any]
    ) -> Iterator[DataFrame]:
        """``rows`` on Spark Connect, where no plan is seen: a column is read if the statement names it. They
        can be evaluated as long as the block lasts."""
        view = _new_view()
        text = self._query(view, twice=False)
        schema = spark_schema(self.table.shown)
        read = self.spark.createDataFrame([], schema)
        if self.table.moment is not None:
            whole = self.statement.verb != DELETE and self.partial is None
            wanted = {*named_columns(self.statement.text, schema.names), *self._of_deletes}
            wanted |= set(self.schema.names) if whole else set()
            columns = [name for name in schema.names if name in wanted]
            options = {AS_OF_COMPLETION: self.table.moment, COLUMNS: ",".join(columns)}
            given = {str(name): str(value) for name, value in properties.items()}
            read = self.spark.read.format("mainstem").options(**given, **options).load(self.table.path)
        with _viewed(self.spark, view, widened(read, schema)):
            query = self.spark.sql(text, **arguments)
            upserted = self._upserted(arguments) if self._is_upsert() else None
            yield self._acted(query) if upserted is None else upserted

    def _shaped(self, text: str, view: str, frame: DataFrame, arguments: Mapping[str, Any]) -> DataFrame:
        with _viewed(self.spark, view, frame):
            return self._acted(self.spark.sql(text, **arguments))

    @property
    def _join(self) -> str:
        """How a MERGE joins the table with its source."""
        kinds = {clause.kind for clause, _ in self.clauses}
        if NOT_MATCHED not in kinds and BY_SOURCE in kinds:
            return "LEFT OUTER"
        return "INNER" if kinds == {MATCHED} else "RIGHT OUTER" if BY_SOURCE not in kinds else "FULL OUTER"

    def _query(self, view: str, *, twice: bool) -> str:
        """The query's text. ``view`` stands for the table in it; ``twice``: a MERGE looks at its source
        before it joins it, too."""
        statement = self.statement
        qualifier = quoted(statement.qualifier)
        target = f"{quoted(view)} AS {qualifier}"
        old = [f"{qualifier}.{quoted(name)} AS {_OLD.format(i)}" for i, name in enumerate(self.schema.names)]
        named = [(number, given, _VALUE.format(n)) for n, (number, _, given) in enumerate(self._values())]
        if statement.verb != MERGE:
            values = [f"({given.text}\n) AS {name}" for _, given, name in named]
            where = f" WHERE (\n{statement.condition}\n)" if statement.condition else ""
            selected = ", ".join(["0 AS " + _CLAUSE, *values, *old])
            return f"{statement.head}SELECT {selected} FROM {target}{where}"
        here = f"{qualifier}.{quoted(self.key[0])} IS NOT NULL"
        source, there = statement.source, "true"
        kinds = {clause.kind for clause, _ in self.clauses}
        if BY_SOURCE in kinds:
            name = statement.source_name
            alias = quoted(name) if name else "_mainstem_source"
            source = f"(SELECT *, true AS {_IN_SOURCE} FROM {statement.source}\n) AS {alias}"
            there = f"({_IN_SOURCE} IS NOT NULL)"
        by_kind = {
            MATCHED: f"{here} AND {there}", NOT_MATCHED: f"NOT ({here})", BY_SOURCE: f"NOT {there}",
        }  # fmt: skip
        cases = []
        for kind, fits in by_kind.items():
            whens = [
                f"WHEN {f'({clause.condition}{chr(10)})' if clause.condition else 'true'} THEN {number}"
                for number, (clause, _) in enumerate(self.clauses)
                if clause.kind == kind
            ]
            if whens:
                cases.append(f"WHEN {fits} THEN CASE {' '.join(whens)} END")
        values = [
            f"CASE WHEN {_CLAUSE} = {number} THEN ({given.text}\n) END AS {name}"
            for number, given, name in named
        ]
        selected = ",\n".join([f"CASE {' '.join(cases)} END AS {_CLAUSE}", *values, *old])
        on = f"ON (\n{statement.condition}\n)"
        if twice:
            target = f"(SELECT {qualifier}.* FROM {target} LEFT SEMI JOIN {source}\n{on}\n) AS {qualifier}"
        joined = f"{target} {self._join} JOIN {source}\n{on}"
        return f"{statement.head}SELECT {selected}\nFROM {joined}"

    def _values(self) -> list[tuple[int, str, _Given]]:
        """(number of the clause, column, value) of every assignment."""
        return [
            (number, name, given)
            for number, (_, assigned) in enumerate(self.clauses)
            for name, given in assigned.items()
        ]

    # -- its rows --------------------------------------------------------------------------------------

    def _acted(self, query: DataFrame) -> DataFrame:
        """The table's columns, and what becomes of each row."""
        from pyspark.sql import functions as F

        values = {
            (number, name): self._stored(query, _VALUE.format(n), name, given.text)
            for n, (number, name, given) in enumerate(self._values())
        }
        rows = query.where(F.col(_CLAUSE).isNotNull())
        shown = [
            self._of_clauses(name, old, values).alias(name)
            for name, old in zip(self.schema.names, map(self._old, self.schema.names), strict=True)
            if self.statement.verb != DELETE or name in self._of_deletes
        ]
        found = rows.select(*shown, self._action(values).cast("int").alias(ACTION))
        collides = self._may_collide(query)
        return self._told_from_there(found) if collides else found

    def _old(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return F.col(_OLD.format(self.schema.names.index(name)))

    @property
    def _of_deletes(self) -> set[str]:
        return {*self.key, *self.table.config.ordering}

    def _of_clauses(self, name: str, old: Column, values: Mapping[tuple[int, str], Column]) -> Column:
        """A column of the rows to write, whatever their clause."""
        from pyspark.sql import functions as F

        kind = self.schema[name].dataType
        nothing = F.lit(None).cast(kind)
        found = nothing
        for number, (clause, _) in reversed(list(enumerate(self.clauses))):
            given = values.get((number, name))
            if clause.action == DELETE:
                value = old if name in self._of_deletes or not self._nullable(name) else nothing
            elif clause.action == INSERT:
                value = nothing if given is None else given
            elif given is not None and name not in self.key:
                value = given
            else:
                value = old if name in self.key else self._kept(name, kind, old, nothing)
            found = F.when(F.col(_CLAUSE) == number, value).otherwise(found)
        return found

    def _kept(self, name: str, kind: DataType, old: Column, nothing: Column) -> Column:
        """A column that an update does not set. On a table with partial updates it is left out, so that what
        others write to it meanwhile stays."""
        from pyspark.sql import functions as F

        if self.partial is None or name in self.table.config.ordering or not self._nullable(name):
            return old
        if self.partial == FILL_UNAVAILABLE:
            told = kind.typeName() in ("string", "binary") and self.table.rules.unavailable is not None
            return F.lit(self.table.rules.unavailable).cast(kind) if told else old
        return nothing

    def _nullable(self, name: str) -> bool:
        return name == KEY_COLUMN or bool(self.table.schema.field(name).nullable)

    def _action(self, values: Mapping[tuple[int, str], Column]) -> Column:
        from pyspark.sql import functions as F

        found = F.lit(None).cast("int")
        for number, (clause, _) in reversed(list(enumerate(self.clauses))):
            action = F.lit(int(Action[clause.action]))
            if clause.action == UPDATE:
                for why, wrong in self._wrong(number, values):
                    action = F.when(wrong, int(why)).otherwise(action)
            found = F.when(F.col(_CLAUSE) == number, action).otherwise(found)
        return found

    def _wrong(
        self, number: int, values: Mapping[tuple[int, str], Column]
    ) -> Iterator[tuple[Action, Column]]:
        """(why an update cannot be, the condition)."""
        from pyspark.sql import functions as F

        given = {name: value for (n, name), value in values.items() if n == number}
        if self.table.rules.partial == IGNORE_DEFAULTS:
            defaults = self.table.defaults
            for name, value in given.items():
                kept = value.isNull()
                if name in defaults:
                    kept = kept | (value == F.lit(defaults[name]))
                unchanged = self._old(name).eqNullSafe(value)
                if name not in self._of_deletes:
                    yield Action.SETS_NULL, kept & ~unchanged
        ordering = self.table.rules.ordering
        if self.statement.verb == UPDATE and any(name in given for name in ordering):
            new = F.struct(*(given.get(name, self._old(name)).alias(name) for name in ordering))
            yield Action.GOES_BACK, new < F.struct(*(self._old(name).alias(name) for name in ordering))
        for name in self.key:
            if name in given:
                yield Action.MOVES, ~self._old(name).eqNullSafe(given[name])

    def _stored(self, query: DataFrame, value: str, name: str, text: str) -> Column:
        """A value as Spark would store it in this column (``spark.sql.storeAssignmentPolicy``)."""
        from pyspark.sql import functions as F

        found, wanted = query.schema[value].dataType, self.schema[name].dataType
        literal = found.typeName() == "string" and found != wanted and self._fits(query, value, wanted, text)
        return self._storing(F.col(quoted(value)), found, wanted, name, literal=literal)

    def _fits(self, query: DataFrame, value: str, wanted: DataType, text: str) -> bool:
        """Whether a value is a text in the statement that is one of this type."""
        if is_connect(self.spark):
            known = list(tokens(text))
            texts = [known[0].text] if len(known) == 1 and known[0].kind == "text" else None
        else:
            texts = texts_of(query, value)
        if not texts:
            return False
        named = {f"t{number}": text for number, text in enumerate(texts)}
        cast = " AND ".join(f"try_cast(:{one} AS {wanted.simpleString()}) IS NOT NULL" for one in named)
        return bool(self.spark.sql(f"SELECT {cast}", args=named).collect()[0][0])

    @property
    def _storing(self) -> Storing:
        return Storing(self.spark, self.statement.verb, self.table.path)

    # -- inserts of keys that are there ----------------------------------------------------------------

    def _may_collide(self, query: DataFrame) -> bool:
        """Whether a row that ON does not match may have a key that the table has.

        Not if ON is nothing but equalities of the whole record key, perhaps with partition columns, with
        what is inserted there, as it is stored.
        """
        for n, (number, name, _) in enumerate(self._values()):
            if name not in self.key or self.clauses[number][0].action != INSERT:
                continue
            if not same_values(query.schema[_VALUE.format(n)].dataType, self.schema[name].dataType):
                return True  # 1.5 is not 1, and stored as it
        return self._may_miss()

    def _may_miss(self) -> bool:
        """``_may_collide`` where all values are stored as they are."""
        inserts = [given for clause, given in self.clauses if clause.action == INSERT]
        if not inserts or not self.table.config.record_key:
            return False
        equal = self._equalities
        if equal is None or not set(self.table.config.record_key) <= set(equal):
            return True
        for given in inserts:
            for name, expression in equal.items():
                value = given.get(name)
                if value is None or self._normal(value.text) != expression:
                    return True
        return False

    @cached_property
    def _equalities(self) -> dict[str, str] | None:
        """Key column -> what it equals, if ON is nothing else."""
        sides = equal_sides(self.statement.condition)
        found: dict[str, str] = {}
        for pair in sides or ():
            name = ""
            for one, other in (pair, pair[::-1]):
                parts = name_parts(one)
                if not name and len(parts) == 2 and self._alike(parts[0], self.statement.qualifier):
                    name = next((key for key in self.key if self._alike(key, parts[1])), "")
                    found |= {name: self._normal(other)} if name else {}
            if not name:
                return None
        return found or None

    def _normal(self, text: str) -> str:
        """A text that equal expressions have in common. The source's columns may stand without its name."""
        parts = name_parts(text)
        if len(parts) == 2 and self._alike(parts[0], self.statement.source_name):
            parts = parts[1:]
        return ".".join(parts).lower() if parts else normal(text)

    def _told_from_there(self, found: DataFrame) -> DataFrame:
        """The rows, with the action of inserts whose key the table has."""
        from pyspark.sql import functions as F

        if self.table.moment is None:
            return found
        names = [n for n in self.key if not self.table.is_global or n in self.table.config.record_key]
        read = self.spark.read.format("mainstem").options(**{AS_OF_COMPLETION: self.table.moment})
        there = read.option(COLUMNS, ",".join(names)).load(self.table.path)
        there = there.select(*(F.col(quoted(n)).alias(f"_mainstem_there_{i}") for i, n in enumerate(names)))
        there = there.withColumn("_mainstem_there", F.lit(True))
        same = F.col(ACTION) == int(Action.INSERT)
        for i, name in enumerate(names):
            same = same & F.col(quoted(name)).eqNullSafe(F.col(f"_mainstem_there_{i}"))
        joined = found.join(there, same, "left")
        action = F.when(F.col("_mainstem_there").isNotNull(), int(Action.IS_THERE)).otherwise(F.col(ACTION))
        kept = [F.col(quoted(name)) for name in found.columns if name != ACTION]
        return joined.select(*kept, action.alias(ACTION))


def _first(text: str) -> str:
    """The first part of a name."""
    return next(iter(name_parts(text)), "")


def _new_view() -> str:
    """The name of a view that stands for the table."""
    return f"mainstem_target_{uuid.uuid4().hex}"


@contextmanager
def _viewed(spark: SparkSession, name: str, frame: DataFrame) -> Iterator[None]:
    frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        spark.catalog.dropTempView(name)
