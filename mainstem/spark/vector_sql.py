"""Hudi's table functions ``hudi_vector_search`` and ``hudi_vector_search_batch`` in Spark SQL.

    SELECT id, _hudi_distance FROM hudi_vector_search('t', 'embedding', ARRAY(0.1, 0.9), 10, 'l2')
    SELECT * FROM hudi_vector_search_batch('t', 'embedding', 'questions', 'vector', 10) WHERE price < 5

A Python package cannot add table functions to Spark's parser. So each call in the statement's text is
replaced by a temporary view of its result, which exists while Spark analyses the statement. Spark evaluates
the arguments. The search uses the vector index and the rows that it lacks, unless ``algorithm`` is
``brute_force``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api.given_options import shared_location
from mainstem.errors import Invalid
from mainstem.spark.connect_sql import with_frames
from mainstem.spark.in_tasks import here_or_there, is_connect
from mainstem.spark.index_syntax import Token, place, table_parts, tokens
from mainstem.spark.nearest_join import filter_on, open_search, search_place, vector_join
from mainstem.spark.types import arrow_schema, fit_for_spark, spark_schema
from mainstem.storage.backends import names_place
from mainstem.vectors.search.request import DISTANCE, QUERY_INDEX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.storage.location import Location

SINGLE, BATCH = "hudi_vector_search", "hudi_vector_search_batch"
_MORE = ("metric", "algorithm", "filter", "max_distance")
_PARAMETERS = {
    SINGLE: ("table", "embedding_col", "query_vector", "k", *_MORE),
    BATCH: ("corpus_table", "corpus_col", "query_table", "query_col", "k", *_MORE),
}
_BRUTE, _INDEX = "brute_force", "index"


@dataclass(frozen=True)
class Call:
    """A call in a statement: its range ``start`` to ``end`` in the text, and its arguments' texts by name."""

    function: str
    start: int
    end: int
    arguments: Mapping[str, str]


def calls_in(text: str) -> list[Call]:
    """The search calls in a statement, in order. Raises ``Invalid`` with line and column for wrong calls."""
    if SINGLE not in text.lower():
        return []
    known = [*tokens(text), Token("end", "", len(text))]
    found = []
    at = 0
    while at < len(known) - 1:
        first, second = known[at], known[at + 1]
        if first.is_word(SINGLE.upper(), BATCH.upper()) and second.is_sign("("):
            call, at = _call(text, known, at)
            found.append(call)
        else:
            at += 1
    if found and any(token.is_word("VIEW") for token in known[:6]) and known[0].is_word("CREATE"):
        raise Invalid(
            f"CREATE VIEW ({place(text, found[0].start)}): a view cannot hold a search, which is made when"
            " the statement is; make a table of it (CREATE TABLE ... AS SELECT), or a DataFrame's"
            " temporary view"
        )
    return found


def _call(text: str, known: Sequence[Token], at: int) -> tuple[Call, int]:
    """The call that begins at token number ``at``, and the number of the token after it."""
    function, depth, first = known[at].text.lower(), 0, at + 2
    pieces: list[list[Token]] = [[]]
    for number in range(at + 1, len(known)):
        token = known[number]
        depth += token.is_sign("(") - token.is_sign(")")
        if token.is_sign(")") and not depth:
            end = token.at + 1
            break
        if token.is_sign(",") and depth == 1:
            pieces.append([])
        elif number >= first:
            pieces[-1].append(token)
    else:
        raise Invalid(f"{function} ({place(text, known[at].at)}): expected ) at its end")
    given = _arguments(text, function, pieces, known, known[at])
    return Call(function, known[at].at, end, given), number + 1


def _arguments(
    text: str, function: str, pieces: Sequence[Sequence[Token]], known: Sequence[Token], start: Token
) -> dict[str, str]:
    parameters = _PARAMETERS[function]
    usage = f"{function}({', '.join(parameters[:-4])} [, {'] [, '.join(_MORE)}])"
    where = place(text, start.at)
    if len(pieces) > len(parameters):
        raise Invalid(f"{function} ({where}): {len(pieces)} arguments are given; expected {usage}")
    ends = {id(token): later.at for token, later in zip(known, known[1:], strict=False)}
    found: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        if not piece:
            raise Invalid(f"{function} ({where}): an argument is empty; expected {usage}")
        name, rest = parameters[number], piece
        if len(piece) > 3 and piece[1].is_sign("=") and piece[2].text == ">":
            name, rest = piece[0].text.lower(), piece[3:]
        if name not in parameters or name in found:
            raise Invalid(f"{function} ({place(text, piece[0].at)}): no such argument, or twice: {usage}")
        found[name] = text[rest[0].at : ends[id(rest[-1])]]
    missing = [name for name in parameters[:-4] if name not in found]
    if missing:
        raise Invalid(f"{function} ({where}): {', '.join(missing)} missing; expected {usage}")
    return found


# -- answers -----------------------------------------------------------------------------------------


def searched(
    spark: SparkSession,
    text: str,
    calls: Sequence[Call],
    table_path: Callable[[Sequence[str], str], str | None],
    properties: Mapping[str, object],
    arguments: Mapping[str, Any],
) -> DataFrame:
    """Runs the statement with its calls replaced by their results.

    ``table_path(parts, what)``: base path of a table of this source, None for others.
    """
    if is_connect(spark):
        found = [_answer(spark, call, table_path, properties, arguments) for call in calls]
        frames = [(call.start, call.end, frame, "") for call, frame in zip(calls, found, strict=True)]
        return with_frames(spark, text, frames, arguments)
    views: list[str] = []
    try:
        for call in reversed(calls):
            answer = _answer(spark, call, table_path, properties, arguments)
            view = f"mainstem_search_{uuid.uuid4().hex}"
            answer.createOrReplaceTempView(view)
            views.append(view)
            text = f"{text[: call.start]}`{view}`{text[call.end :]}"
        return spark.sql(text, **arguments)
    finally:
        for view in views:
            spark.catalog.dropTempView(view)


def _answer(
    spark: SparkSession,
    call: Call,
    table_path: Callable[[Sequence[str], str], str | None],
    properties: Mapping[str, object],
    arguments: Mapping[str, Any],
) -> DataFrame:
    row = spark.sql("SELECT " + ", ".join(call.arguments.values()), **arguments).collect()[0]
    given = _Given(call, dict(zip(call.arguments, row, strict=True)))
    algorithm = given.text("algorithm", _INDEX).lower()
    if algorithm not in (_BRUTE, _INDEX):
        raise Invalid(f"{call.function}: unknown algorithm {algorithm!r}; there are {_BRUTE} and {_INDEX}")
    exact, k = algorithm == _BRUTE, given.count("k")
    metric, filter = given.text("metric") or None, given.text("filter") or None
    most = given.number("max_distance")
    if call.function == BATCH:
        path = _path(given.text("corpus_table"), table_path)
        found = vector_join(
            path, given.text("corpus_col"), _queries(spark, given.text("query_table")),
            given.text("query_col"), k, metric=metric, filter=filter, exact=exact, max_distance=most,
            properties=properties,
        )  # fmt: skip
        return found.orderBy(QUERY_INDEX, DISTANCE)
    path = _path(given.text("table"), table_path)
    column, query = given.text("embedding_col"), given.vector("query_vector")
    place = search_place(spark, path, properties)
    rows = here_or_there(spark, partial(_found, *place, column, query, k, filter, metric, exact))
    if most is not None:
        rows = rows.filter(pc.less_equal(rows.column(DISTANCE), most))
    return _shown(spark, rows)


def _found(
    location: Location,
    given: tuple[tuple[str, str], ...],
    column: str,
    query: list[float],
    k: int,
    filter: str | None,
    metric: str | None,
    exact: bool,
) -> pa.Table:
    table = open_search(location, given)
    return table.search(column, query, k, filter=filter_on(table, filter), metric=metric, exact=exact)


def _shown(spark: SparkSession, rows: pa.Table) -> DataFrame:
    schema = spark_schema(rows.schema)
    target = arrow_schema(schema)
    return spark.createDataFrame(pa.Table.from_batches(fit_for_spark(rows, target), target), schema)


def _path(name: str, table_path: Callable[[Sequence[str], str], str | None]) -> str:
    if names_place(name):
        return shared_location(name).base
    path = table_path(table_parts(name), SINGLE)
    if path is None:
        raise Invalid(f"{SINGLE}: {name!r} is no table of this source that Spark knows, and no path")
    return path


def _queries(spark: SparkSession, name: str) -> DataFrame:
    if names_place(name):
        return spark.read.format("mainstem").load(name)
    return spark.table(name)


@dataclass(frozen=True)
class _Given:
    """Arguments as Spark evaluated them."""

    call: Call
    values: Mapping[str, Any]

    def text(self, name: str, otherwise: str = "") -> str:
        value = self.values.get(name)
        if value is None and name in _MORE:
            return otherwise
        if not isinstance(value, str) or not value:
            raise self._wrong(name, "a text", value)
        return value

    def count(self, name: str) -> int:
        value = self.values[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self._wrong(name, "a whole number from 1 on", value)
        return value

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        return next(self._numbers(name, [value]))

    def vector(self, name: str) -> list[float]:
        value = self.values[name]
        if not isinstance(value, (list, tuple)) or not value:
            raise self._wrong(name, "an array of numbers", value)
        return list(self._numbers(name, value))

    def _numbers(self, name: str, values: Sequence[Any]) -> Iterator[float]:
        for value in values:
            try:
                if isinstance(value, (str, bool)):
                    raise TypeError
                yield float(value)
            except (TypeError, ValueError):
                raise self._wrong(name, "numbers", value) from None

    def _wrong(self, name: str, expected: str, value: Any) -> Invalid:
        return Invalid(f"{self.call.function}: argument {name} must be {expected}, not {value!r}")
