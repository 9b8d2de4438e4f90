"""SQL on one table by DuckDB, which must be installed: bounded in rows, time and memory, and read-only.

The database is in memory and knows the table as ``t``. No file, no extension, no setting and no variable of
this process is within reach: ``enable_external_access`` and the rest of ``_CLOSED`` are locked before the
user's text is seen. One statement that selects is run, nothing else. Columns and filters go down to the files
(``Table.dataset``); what was skipped is told by the plan of that very scan.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.api.table import Table
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.readers.queries.arrow_dataset import PlanDataset
from mainstem.readers.queries.closed_sql import closed_database
from mainstem.truetime.clock import Clock

if TYPE_CHECKING:
    from mainstem.readers.queries.scan_plan import ScanPlan

ROWS_MAX, SQL_CHARS_MAX = 1_000, 20_000
CELL_CHARS_MAX, ANSWER_CHARS_MAX = 10_000, 4_000_000
NAME = "t"
_EXPLAIN = re.compile(r"\A\s*explain\b(\s+analyze\b)?(\s*\([^()]*\))?", re.I)
_MEMORY = "512MB"


def is_there() -> bool:
    """Whether DuckDB can be imported."""
    try:
        import duckdb  # noqa: F401
    except ImportError:
        return False
    return True


def run_query(table: Table, sql: str, rows: int, seconds: float) -> dict[str, Any]:
    """``columns``, their ``types``, at most ``rows`` rows, whether it was ``cut``, and ``scans``: what each
    scan of the table read and skipped (``ScanPlan.explain``).

    Raises ``Invalid`` for SQL that is wrong, does more than select, or takes longer than ``seconds``;
    ``Unsupported`` without DuckDB; and what a query of the table raises.
    """
    try:
        import duckdb
    except ImportError:
        raise Unsupported("queries need DuckDB: pip install 'mainstem[ui]'") from None
    if not isinstance(sql, str) or not sql.strip() or len(sql) > SQL_CHARS_MAX:
        raise Invalid(f"expected one SELECT statement of at most {SQL_CHARS_MAX:,} characters")
    if not 0 < rows <= ROWS_MAX:
        raise Invalid(f"limit={rows}: expected 1 to {ROWS_MAX:,} rows")
    watch = _Watch(table.opened.seams.clock, seconds)
    with closed_database(duckdb, memory_limit=_MEMORY, threads="2") as database:
        late = threading.Timer(seconds, database.interrupt)
        late.daemon = True
        late.start()
        try:
            _check_selects(database, sql, duckdb)
            database.register(NAME, PlanDataset(_Watched(table.scan(), watch)))
            result = database.execute(sql)
            columns = [(str(one[0]), str(one[1])) for one in result.description or ()]
            fetched = result.fetchmany(rows + 1)
        except duckdb.Error as error:
            raise _told(error, watch, seconds) from None
        finally:
            late.cancel()
    told, cut = _bounded(fetched[:rows])
    return {
        "columns": [name for name, _ in columns], "types": [kind for _, kind in columns], "rows": told,
        "cut": cut or len(fetched) > rows, "scans": watch.scans,
    }  # fmt: skip


def _check_selects(database: Any, sql: str, duckdb: Any) -> None:
    # EXPLAIN ANALYZE runs what it explains, a COPY too.
    statements = database.extract_statements(_EXPLAIN.sub("", sql))
    if len(statements) != 1:
        raise Invalid(f"{len(statements)} statements; expected one SELECT")
    kind = statements[0].type
    if kind != duckdb.StatementType.SELECT:
        raise Invalid(f"{str(kind).rpartition('.')[2]} is no SELECT; the page only reads")


@dataclass
class _Watch:
    """How long a query may take, what it scanned, and what went wrong in the files."""

    clock: Clock
    seconds: float
    scans: list[dict[str, Any]] = field(default_factory=list)
    trouble: MainstemError | None = None

    def __post_init__(self) -> None:
        self._until_ms = self.clock.monotonic_ms() + self.seconds * 1000

    @property
    def is_late(self) -> bool:
        return self.clock.monotonic_ms() >= self._until_ms


class _Watched:
    """A plan that tells what it reads, and ends when its time is over."""

    def __init__(self, plan: ScanPlan, watch: _Watch) -> None:
        self._plan, self._watch = plan, watch

    @property
    def schema(self) -> pa.Schema:
        return self._plan.schema

    def refined(self, columns: Sequence[str] | None, filter: pc.Expression | None) -> _Watched:
        return _Watched(self._plan.refined(columns, filter), self._watch)

    def to_arrow(self) -> pa.Table:
        return self.to_reader().read_all()

    def to_reader(self) -> pa.RecordBatchReader:
        try:
            self._watch.scans.append({**self._plan.explain().to_dict(), "columns": self._plan.schema.names})
            reader = self._plan.to_reader()
        except MainstemError as error:
            self._watch.trouble = error
            raise
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader))

    def count_rows(self) -> int:
        return self._plan.count_rows()

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                if self._watch.is_late:  # no more rows: an answer made of some of them would be wrong
                    raise too_late(self._watch.seconds)
                yield batch
        except MainstemError as error:
            self._watch.trouble = error
            raise


def _told(error: Exception, watch: _Watch, seconds: float) -> MainstemError:
    if watch.trouble is not None:
        return watch.trouble
    if watch.is_late:
        return too_late(seconds)
    text = str(error).partition("\n\nLINE")[0] if len(str(error)) > CELL_CHARS_MAX else str(error)
    return Invalid(text[:CELL_CHARS_MAX])


def too_late(seconds: float) -> Invalid:
    """What a query says that was ended."""
    return Invalid(f"the query took longer than {seconds:g} s and was ended: select less")


def _bounded(rows: Sequence[Sequence[Any]]) -> tuple[list[list[Any]], bool]:
    """Rows as JSON data, as many as an answer may hold; whether any was left out."""
    told: list[list[Any]] = []
    left = ANSWER_CHARS_MAX
    for row in rows:
        cells = [_plain(value) for value in row]
        left -= sum(len(cell) if isinstance(cell, str) else 8 for cell in cells)
        if left < 0:
            return told, True
        told.append(cells)
    return told, False


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value[:CELL_CHARS_MAX]).hex()
    elif isinstance(value, Mapping):
        text = str(dict(value))
    else:
        text = str(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}… ({len(text):,} characters)"
