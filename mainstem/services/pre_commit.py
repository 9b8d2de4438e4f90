"""Checks a commit by SQL before it is published, as Hudi's ``SqlQuery...PreCommitValidator`` do.

1. ``<TABLE_NAME>`` in a query is the rows of the partitions that the commit changes, with its rows in them
   (Hudi's meaning); ``<ADDED_ROWS>`` is what the commit itself brings, merged by record key.
2. Nothing is locked meanwhile: what others commit between the look and the publishing is not in it.
3. A query that fails ends this transaction, and nobody else's.

DuckDB runs the queries (in Hudi, Spark), and reads the columns and rows that they need from the files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mainstem.errors import Invalid, MainstemError, Unsupported, ValidationFailed
from mainstem.layout.properties import TableConfig
from mainstem.layout.slicing import FileSlice, query_slice
from mainstem.options.writing import (
    VALIDATORS,
    VALIDATORS_DIFFER,
    VALIDATORS_EQUAL,
    VALIDATORS_FAILURE,
    VALIDATORS_VALUE,
)
from mainstem.readers.planning.query_schema import both_filters
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.closed_sql import closed_database
from mainstem.readers.queries.scan_plan import Planned, ScanPlan
from mainstem.readers.queries.snapshot import make_split, read_spec
from mainstem.readers.rows.slice_query import ReadSpec
from mainstem.readers.rows.split import Split
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.bulk_insert import BaseFileStat
from mainstem.writers.write_spec import WriteSpec

TABLE, ADDED = "<TABLE_NAME>", "<ADDED_ROWS>"
_PACKAGE = "org.apache.hudi.client.validator."
_OPTION_OF = {
    "SqlQueryEqualityPreCommitValidator": VALIDATORS_EQUAL,
    "SqlQueryInequalityPreCommitValidator": VALIDATORS_DIFFER,
    "SqlQuerySingleResultPreCommitValidator": VALIDATORS_VALUE,
}
_ONLY_LOGGED = "WARN_LOG"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validators:
    """The queries of a job. Called with what a transaction wrote, before it is published."""

    queries: tuple[tuple[str, str], ...]
    only_logged: bool

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str) -> Validators | None:
        """By Hudi's options; None if they name no validator. Raises ``Unsupported`` for other classes,
        ``Invalid`` for queries that cannot be run."""
        only_logged = VALIDATORS_FAILURE.read(properties) == _ONLY_LOGGED
        queries = []
        for name in filter(None, map(str.strip, VALIDATORS.read(properties).split(","))):
            option = _OPTION_OF.get(name.removeprefix(_PACKAGE))
            if option is None:
                raise Unsupported(
                    f"{VALIDATORS} names {name!r}, which does not run here; known are"
                    f" {', '.join(_PACKAGE + known for known in _OPTION_OF)}", table=table,
                )  # fmt: skip
            found = [text.strip() for text in option.read(properties).split(";") if text.strip()]
            if not found:
                raise Invalid(f"{VALIDATORS} names {name}, whose queries {option} are not given", table=table)
            for text in found:
                _check(option, text, table)
            queries += [(str(option), text) for text in found]
        if not queries:
            return None
        _duckdb()  # before anything is written
        return cls(tuple(queries), only_logged)

    def __call__(
        self, storage: Storage, config: TableConfig, spec: WriteSpec, stats: Sequence[WriteStat]
    ) -> None:
        """Raises ``ValidationFailed`` if a query says that this must not be committed, or cannot be run."""
        views = _Views(TableState.load(storage, config), spec, stats)
        for option, text in self.queries:
            failed = _failure(views, option, text)
            if failed is None:
                continue
            told = f"{option}: {text!r}: {failed}"
            if not self.only_logged:
                raise ValidationFailed(
                    f"{told}. Nothing of this transaction is visible", table=spec.base, instant=spec.instant
                )
            _log.warning("%s of %s is committed although %s", spec.instant, spec.base, told)


def _check(option: str, text: str, table: str) -> None:
    if TABLE not in text and ADDED not in text:
        raise Invalid(f"{option}: {text!r} names neither {TABLE} nor {ADDED}", table=table)
    if option != VALIDATORS_VALUE and TABLE not in text:
        raise Invalid(f"{option}: {text!r} compares {TABLE} before and after a commit", table=table)
    if option == VALIDATORS_VALUE and "#" not in text:
        raise Invalid(f"{option}: {text!r} has no result; expected query#result", table=table)


def _failure(views: _Views, option: str, text: str) -> str | None:
    """What is wrong; None if the query is satisfied."""
    if option == VALIDATORS_VALUE:
        query, _, expected = text.rpartition("#")
        found = views.rows(_named(query, after=True))
        if len(found) != 1 or len(found[0]) != 1:
            return f"expected one row of one column, found {len(found)} rows"
        value = _text(found[0][0])
        return None if value == expected.strip() else f"expected {expected.strip()!r}, found {value!r}"
    before, after = _named(text, after=False), _named(text, after=True)
    # Compared as rows with their numbers, whatever their order.
    differences = " union all ".join(
        f"select count(*) from (select * from ({one}) except all select * from ({other}))"
        for one, other in ((before, after), (after, before))
    )
    changed = sum(count for (count,) in views.rows(differences))
    if option == VALIDATORS_EQUAL and changed:
        return f"{changed} rows of its result differ before and after"
    if option == VALIDATORS_DIFFER and not changed:
        return "its result is the same before and after"
    return None


def _named(query: str, *, after: bool) -> str:
    return query.replace(TABLE, "table_after" if after else "table_before").replace(ADDED, "added_rows")


def _text(value: object) -> str:
    """As Java shows a value."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Views:
    """The rows that queries name, read when a query asks for them."""

    def __init__(self, state: TableState, spec: WriteSpec, stats: Sequence[WriteStat]) -> None:
        self._state, self._spec, self._stats = state, spec, stats
        self._connection: Any = None
        self._unshown = {stat.path: stat.stored_at for stat in stats if stat.unshown}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The result of a query; its failure is a ``ValidationFailed``."""
        duckdb = _duckdb()
        if self._connection is None:
            self._connection = closed_database(duckdb)
            for name, slices in (
                ("table_before", self._before), ("table_after", self._after), ("added_rows", self._added),
            ):  # fmt: skip
                self._connection.register(name, self._plan(list(slices())).to_dataset())
        try:
            return list(self._connection.execute(query).fetchall())
        except MainstemError:
            raise
        except duckdb.Error as error:
            raise ValidationFailed(
                f"{query!r} cannot be run: {error}", table=self._spec.base, instant=self._spec.instant
            ) from error

    def _plan(self, slices: Sequence[FileSlice]) -> ScanPlan:
        state, text = self._state, self._spec.user_schema

        def query(columns: Sequence[str] | None, filter: Any) -> ScanPlan:
            def plan() -> Planned:
                spec = read_spec(state, columns, filter, None, "error", with_columns_of=text)
                return Planned(spec, [self._split(slice_, spec) for slice_ in slices])

            def refined(fewer: Sequence[str] | None, more: Any) -> ScanPlan:
                return query(columns if fewer is None else fewer, both_filters(filter, more))

            return ScanPlan(state.storage, plan, refined=refined)

        return query(None, None)

    def _split(self, slice_: FileSlice, spec: ReadSpec) -> Split:
        split = make_split(slice_, spec, self._state.config)
        if split.base_file in self._unshown:  # it gets its name when it is published
            return replace(split, base_file=self._unshown[split.base_file])
        return split

    def _before(self) -> Iterator[FileSlice]:
        """Partition by partition what a query reads now."""
        replaced = self._state.replaced(None)
        for partition in sorted({stat.partition for stat in self._stats}):
            for group in self._state.group(partition, self._state.storage.names(partition)):
                found = query_slice(group, None)
                if found is not None and (partition, group.file_id) not in replaced:
                    yield found

    def _after(self) -> Iterator[FileSlice]:
        own = {(slice_.partition, slice_.file_id): slice_ for slice_ in self._added()}
        for slice_ in self._before():
            mine = own.pop((slice_.partition, slice_.file_id), None)
            if mine is None:
                yield slice_
            elif mine.base_file is not None:
                yield mine  # it hides what the file group has
            else:
                yield replace(slice_, log_files=(*slice_.log_files, *mine.log_files))
        yield from own.values()

    def _added(self) -> Iterator[FileSlice]:
        """The files of the transaction, as if each file group had no others."""
        groups: dict[tuple[str, str], list[WriteStat]] = {}
        for stat in self._stats:
            groups.setdefault((stat.partition, stat.file_id), []).append(stat)
        for (partition, file_id), stats in sorted(groups.items()):
            bases = [stat.file_name for stat in stats if isinstance(stat, BaseFileStat)]
            names = [paths.parse_log_name(s.file_name) for s in stats if not isinstance(s, BaseFileStat)]
            logs = sorted((name for name in names if name is not None), key=lambda name: name.order)
            yield FileSlice(
                partition, file_id, self._spec.instant, bases[0] if bases else None,
                tuple(name.name for name in logs),
            )  # fmt: skip


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise Invalid(
            f"{VALIDATORS} needs DuckDB, which runs the queries: pip install 'mainstem[validators]'"
        ) from error
    return duckdb
