"""The checks of the interop matrix: what Java reads, what we read and what the model says are equal.

`run_kind` makes one kind of table and gives the result of each check that was asked for. Compared are
all user columns with their types, and of Hudi's meta columns the commit time, the record key, the
partition path and the file: its file id, and for rows of base files the instant of the file. Of the
sequence number the instant in it.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from compare import differences
from java_hudi import READ_OPTIMIZED as READ_OPTIMIZED_QUERY
from java_hudi import JavaFailed, as_of_options, changes_options
from matrix_cells import (
    COMPACTION,
    INCREMENTAL,
    JAVA_TABLE,
    OWN_LOCK,
    READ_OPTIMIZED,
    READS,
    SNAPSHOT,
    TIME_TRAVEL,
    ZOOKEEPER,
    Kind,
)
from matrix_model import Entry
from matrix_stores import Place
from matrix_tables import (
    PATIENCE,
    Bench,
    Step,
    crossing_batch,
    first_steps,
    last_steps,
    later_steps,
)

import mainstem

KEY = ("_hoodie_partition_path", "_hoodie_record_key")
BASE_NAME = re.compile(r"(?P<id>[^_]+)_(?P<token>\d+-\d+-\d+)_(?P<instant>\d{17})\.parquet")
META = {
    "_hoodie_commit_time": pa.string(),
    "_hoodie_record_key": pa.string(),
    "_hoodie_partition_path": pa.string(),
    "file id": pa.string(),
    "base instant": pa.string(),
}
JAVA_TURNS = 3
OUR_TURNS_MIN, OUR_TURNS_MAX = 5, 40


def zookeeper_options(url: str) -> dict[str, str]:
    """The table lock in ZooKeeper, for both sides."""
    return {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": url,
        "hoodie.write.lock.zookeeper.base_path": "/interop",
        "hoodie.write.lock.zookeeper.lock_key": "matrix",
    }


@dataclass
class Result:
    """What one check of one kind of table showed. ``problem`` is empty where everything was equal."""

    kind: Kind
    check: str
    problem: str = ""
    #: queries that were compared, and rows that were expected in all of them together
    queries: int = 0
    rows: int = 0
    #: rows of the expected snapshot that lie in base files, and in log files
    base_rows: int = 0
    log_rows: int = 0
    #: pairs of transactions, one of Java and one of ours, that were open at the same time
    overlaps: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Query:
    """One query: Java's options, our plan and the model's answer."""

    name: str
    java: Mapping[str, str]
    ours: Callable[[mainstem.Table], pa.Table]
    expected: Sequence[Entry]
    may_be_empty: bool = False


@dataclass
class _Comparison:
    """Problems and numbers of the queries of one check."""

    problems: list[str] = field(default_factory=list)
    queries: int = 0
    rows: int = 0


def run_kind(
    place: Place,
    kind: Kind,
    checks: Iterable[str],
    zookeeper: Mapping[str, str] | None = None,
    *,
    every: bool = True,
) -> Iterator[Result]:
    """Makes the table in a fresh place, runs the checks in the order of the matrix, gives their results.

    ``zookeeper``: lock options of a running server, needed for the check of that name. Without ``every``
    time travel and incremental queries visit every other instant.
    """
    wanted = list(checks)
    if set(wanted) - {ZOOKEEPER, JAVA_TABLE}:
        yield from _on_our_table(place, kind, wanted, 1 if every else 2)
    if ZOOKEEPER in wanted:
        assert zookeeper is not None, "no ZooKeeper server"

        def under_zookeeper(result: Result) -> list[str]:
            bench = _prepared(place, kind, "zookeeper", zookeeper)
            return _same_moment(bench, result)

        yield _timed(kind, ZOOKEEPER, under_zookeeper)
    if JAVA_TABLE in wanted:
        yield _timed(kind, JAVA_TABLE, lambda result: _javas_table(place, result))


def _timed(kind: Kind, check: str, run: Callable[[Result], list[str]]) -> Result:
    """A check's result; a failure of any kind is a problem of this cell, not of the run."""
    result = Result(kind, check)
    start = time.perf_counter()
    try:
        result.problem = "\n".join(run(result))
    except Exception as error:
        result.problem = f"{type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
    result.seconds = round(time.perf_counter() - start, 2)
    return result


def _on_our_table(place: Place, kind: Kind, wanted: Sequence[str], step: int) -> Iterator[Result]:
    """The reads, the compaction and the store's own lock share one table, in this order."""
    start = time.perf_counter()
    try:
        bench = _prepared(place, kind, "ours", None)
        reads = [check for check in wanted if check in READS]
        answers = _ask(bench, {check: _queries(bench, check)[::step] for check in reads}) if reads else {}
    except Exception as error:
        text = f"{type(error).__name__}: {error}\n{traceback.format_exc()[-3000:]}"
        for check in wanted:
            if check not in (ZOOKEEPER, JAVA_TABLE):
                yield Result(kind, check, problem=text)
        return
    spent = (time.perf_counter() - start) / max(len(reads), 1)
    for check in reads:
        found = answers[check]
        result = Result(kind, check, "\n".join(found.problems), found.queries, found.rows)
        result.problem = "\n".join(filter(None, [*_base_and_log_rows(bench, result), result.problem]))
        result.seconds = round(spent, 2)
        yield result
    if COMPACTION in wanted:
        yield _timed(kind, COMPACTION, lambda result: _compaction(bench, result))
    if OWN_LOCK in wanted:
        yield _timed(kind, OWN_LOCK, lambda result: _same_moment(bench, result))


def _prepared(place: Place, kind: Kind, name: str, lock: Mapping[str, str] | None) -> Bench:
    """A table of ours with base files by Java and our log files on them."""
    bench = Bench(place, kind, name, lock)
    bench.we_write(first_steps(kind))
    bench.java_compacts()
    bench.we_write(later_steps(kind))
    return bench


# ---------------------------------------------------------------- queries


def _queries(bench: Bench, check: str) -> list[Query]:
    """All queries of one of the reading checks."""
    model, writes = bench.model, bench.writes()
    if check == SNAPSHOT:
        return [_snapshot(bench)]
    if check == READ_OPTIMIZED:
        return [_read_optimized(bench)]
    if check == TIME_TRAVEL:
        return [
            Query(
                f"as of {write.requested}",
                as_of_options(write.requested),
                lambda table, instant=write.requested: table.scan(as_of=instant).to_arrow(),
                model.snapshot(as_of=write.requested),
            )
            for write in sorted(writes, key=lambda w: w.requested)
        ]
    assert check == INCREMENTAL
    ends = [write.completion for write in writes]
    windows = [("000", None), *((end, None) for end in ends[1:-1:2])]
    windows += [("000", end) for end in ends[:1]] + list(zip(ends[:-1], ends[1:], strict=True))
    return [_changes(bench, after, until) for after, until in dict.fromkeys(windows)]


def _snapshot(bench: Bench) -> Query:
    return Query("snapshot", {}, lambda table: table.scan().to_arrow(), bench.model.snapshot())


def _read_optimized(bench: Bench) -> Query:
    return Query(
        "read optimized",
        READ_OPTIMIZED_QUERY,
        lambda table: table.scan(mode="read_optimized").to_arrow(),
        bench.model.read_optimized(),
    )


def _changes(bench: Bench, after: str, until: str | None) -> Query:
    return Query(
        f"changes in ({after}, {until or 'now'}]",
        changes_options(after, until),
        lambda table: table.changes(after=after, until=until).to_arrow(),
        bench.model.changes(after, until),
        may_be_empty=True,  # a commit of deletes, a compaction: single windows, never a whole check
    )


def check_reads(bench: Bench, checks: Sequence[str]) -> dict[str, str]:
    """What differs in each of some reading checks of a table as it is; empty where nothing does."""
    found = _ask(bench, {check: _queries(bench, check) for check in checks})
    return {check: "\n".join(comparison.problems) for check, comparison in found.items()}


def _ask(bench: Bench, checks: Mapping[str, Sequence[Query]]) -> dict[str, _Comparison]:
    """Asks Java everything at once, then us; compares each answer with the model's."""
    queries = [query for of_check in checks.values() for query in of_check]
    answers = iter(bench.java.read_many(bench.path, [query.java for query in queries]))
    table = bench.table()
    results = {}
    for check, of_check in checks.items():
        comparison = results[check] = _Comparison()
        for query in of_check:
            _compare(comparison, bench, query, next(answers), table)
        if not comparison.rows:
            comparison.problems.append("no row was expected in any query of this cell")
    return results


def _compare(
    into: _Comparison, bench: Bench, query: Query, java: pa.Table | JavaFailed, table: mainstem.Table
) -> None:
    into.queries += 1
    into.rows += len(query.expected)
    if not query.expected and not query.may_be_empty:
        into.problems.append(f"{query.name}: no row is expected, so nothing is shown")
    expected = expected_table(query.expected, bench.schema)
    if isinstance(java, JavaFailed):
        into.problems.append(f"{query.name}: Java fails: {java}")
    else:
        into.problems += against(f"{query.name}: Java", expected, java)
    into.problems += against(f"{query.name}: mainstem", expected, query.ours(table))


def against(who: str, expected: pa.Table, found: pa.Table) -> list[str]:
    """How a query's rows differ from `expected_table`; empty where they do not."""
    shown, strange = comparable(found)
    lines = [*strange, *differences(expected, shown, KEY)]
    if lines and expected.num_rows != shown.num_rows:
        lines += _rows_apart(expected, shown)
    return [f"{who}: {line}" for line in lines]


def _rows_apart(expected: pa.Table, found: pa.Table) -> list[str]:
    """Which rows are missing or too many, by key and commit time; a few of them."""
    names = [*KEY, "_hoodie_commit_time"]

    def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
        return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))

    wanted, shown = rows_of(expected), rows_of(found)
    missing = [row for row in wanted if row not in shown]
    extra = [row for row in shown if row not in wanted]
    return [f"missing {missing[:5]}, unexpected {extra[:5]}"]


def expected_table(entries: Sequence[Entry], schema: pa.Schema) -> pa.Table:
    """What the model says, with the columns of `comparable`."""
    rows = [
        {
            **(entry.row or {}),
            "_hoodie_commit_time": entry.instant,
            "_hoodie_record_key": entry.place[1],
            "_hoodie_partition_path": entry.place[0],
            "file id": entry.file_id,
            "base instant": entry.base,
        }
        for entry in entries
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([*META.items(), *schema]))


def comparable(found: pa.Table) -> tuple[pa.Table, list[str]]:
    """A query's rows with the file's id and instant for its name; what is strange about the rest."""
    names = found.column("_hoodie_file_name").to_pylist()
    matches = [BASE_NAME.fullmatch(name) for name in names]
    ids = [name if m is None else m["id"] for name, m in zip(names, matches, strict=True)]
    instants = [None if m is None else m["instant"] for m in matches]
    numbers = found.column("_hoodie_commit_seqno").to_pylist()
    commits = found.column("_hoodie_commit_time").to_pylist()
    strange = []
    if len(set(numbers)) != len(numbers):
        strange.append("_hoodie_commit_seqno occurs twice")
    wrong = [(c, n) for c, n in zip(commits, numbers, strict=True) if not n.startswith(f"{c}_")]
    if wrong:
        strange.append(f"_hoodie_commit_seqno {wrong[0][1]} in a row of {wrong[0][0]}")
    kept = found.drop_columns(["_hoodie_file_name", "_hoodie_commit_seqno"])
    kept = kept.append_column("file id", pa.array(ids, pa.string()))
    return kept.append_column("base instant", pa.array(instants, pa.string())), strange


def _base_and_log_rows(bench: Bench, result: Result) -> list[str]:
    """Counts the rows of both kinds in the expected snapshot; each must be there."""
    shown = bench.model.snapshot()
    result.base_rows = sum(entry.base is not None for entry in shown)
    result.log_rows = len(shown) - result.base_rows
    if result.base_rows and result.log_rows:
        return []
    return [f"{result.base_rows} base rows and {result.log_rows} log rows: both are needed"]


def _both_read(bench: Bench, result: Result, queries: Sequence[Query]) -> list[str]:
    found = _ask(bench, {result.check: queries})[result.check]
    result.queries += found.queries
    result.rows += found.rows
    return found.problems


# ---------------------------------------------------------------- the checks that write


def _compaction(bench: Bench, result: Result) -> list[str]:
    problems = _base_and_log_rows(bench, result)
    bench.java_compacts()
    bench.java_cleans()
    problems += _cleaned(bench, 1)
    problems += _both_read(bench, result, [_snapshot(bench), _read_optimized(bench)])
    since = bench.writes()[-1].completion
    bench.we_write(last_steps(bench.kind))
    problems += _both_read(bench, result, [_snapshot(bench), _changes(bench, since, None)])
    problems += _base_and_log_rows(bench, result)
    return problems


def _same_moment(bench: Bench, result: Result) -> list[str]:
    """Java commits in its process while we commit in ours, until Java is done; clock waits as by default."""
    kind, java = bench.kind, bench.java
    since = bench.writes()[-1].completion
    javas = [Step("upsert", crossing_batch(kind, 1, turn)) for turn in range(JAVA_TURNS)]
    files = [java.rows_file(bench.arrow(step.rows)) for step in javas]
    table = bench.table(**PATIENCE)
    java.send("write_loop", path=bench.path, files=files, options=bench.java_options())
    turn = 0
    while not java.answered() and turn < OUR_TURNS_MAX:
        if turn >= OUR_TURNS_MIN and not bench.has_foreign_instant():
            time.sleep(0.1)  # a busy machine lets Java begin late
            continue
        step = Step("upsert", crossing_batch(kind, 2, turn))
        with table.begin() as txn:
            txn.write(bench.arrow(step.rows))
            outcome = txn.commit()
        bench.record(outcome.instant, outcome.completion_time, step)
        turn += 1
    java.receive()
    bench.record_java(javas)
    result.overlaps, _ = bench.overlaps()
    problems = _base_and_log_rows(bench, result)
    if not result.overlaps:
        problems.append(f"no transaction of Java overlapped one of our {turn}: nothing is shown")
    queries = [_snapshot(bench), _read_optimized(bench), _changes(bench, since, None)]
    return problems + _both_read(bench, result, queries)


def _cleaned(bench: Bench, times: int) -> list[str]:
    found = bench.cleans()
    return [] if found == times else [f"{found} cleans were to be {times}: nothing is shown"]


def _javas_table(place: Place, result: Result) -> list[str]:
    kind = result.kind
    bench = Bench(place, kind, "javas", by_java=True)
    before = [step for step in first_steps(kind) if step.operation != "update"]
    bench.java_writes(before)
    bench.java_compacts()
    later = list(later_steps(kind))
    bench.java_writes(later[1:2])
    bench.we_write([later[0], *later[2:]])
    problems = _base_and_log_rows(bench, result)
    ends = [write.completion for write in bench.writes()]
    queries = [_snapshot(bench), _read_optimized(bench), _changes(bench, "000", None)]
    queries += [_changes(bench, ends[-4], None), _changes(bench, ends[1], ends[-2])]
    problems += _both_read(bench, result, queries)
    bench.we_compact_and_clean()
    problems += _cleaned(bench, 1)
    problems += _both_read(bench, result, [_snapshot(bench), _read_optimized(bench)])
    bench.java_writes(list(last_steps(kind))[:1])
    bench.java_compacts()
    return problems + _both_read(bench, result, [_snapshot(bench), _read_optimized(bench)])
