"""Goal: Java and mainstem agree on every kind of table, whatever is combined with what.

Method: a pairwise cover of the matrix of layouts, merge kinds, table versions, formats of log blocks and
checks, on a local disk, on MinIO by `s3a://` and on HDFS (`matrix_cells.py`). Every table holds base rows
and log rows; what Java reads and what mainstem reads are compared with a model in plain Python
(`matrix_model.py`), Hudi's meta columns included. Where `make stores` was not run, the cells of stores are
skipped. The whole matrix is run by `make interop-matrix`, its last result is in docs/interop.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from java_hudi import JavaHudi
from matrix_cells import (
    CHECKS,
    COMPACTION,
    HDFS,
    INCREMENTAL,
    JAVA_TABLE,
    LOCAL,
    OWN_LOCK,
    READ_OPTIMIZED,
    S3A,
    SNAPSHOT,
    STORES,
    TIME_TRAVEL,
    ZOOKEEPER,
    Cell,
    Kind,
    all_cells,
    all_kinds,
    missing_in_hudi,
    pairs,
    pairwise_cover,
)
from matrix_checks import Result, against, expected_table, run_kind, zookeeper_options
from matrix_model import Compaction, Model
from matrix_stores import Places, missing_here
from matrix_tables import row, schema_of, shape_of

from tests.servers.zookeeper import ZooKeeperServer

MISSING = {store: missing_here(store) for store in STORES}
#: pairs of all stores; where one of them cannot run, all pairs of the local disk too
WHOLE = pairwise_cover(all_cells())
COVER = WHOLE if not any(MISSING.values()) else [
    *pairwise_cover(all_cells([LOCAL])),
    *(cell for cell in WHOLE if cell.kind.store != LOCAL),
]  # fmt: skip
READS_OURS = ("Engines", "Java Hudi 1.2.0 reads our tables")
WRITES_BESIDE = ("Engines", "Java Hudi 1.2.0 writes the same keys at the same moment")
PROVES = {
    SNAPSHOT: [READS_OURS, ("Queries", "snapshot queries")],
    READ_OPTIMIZED: [READS_OURS, ("Queries", "read optimized queries")],
    TIME_TRAVEL: [READS_OURS, ("Queries", "time travel by requested time")],
    INCREMENTAL: [READS_OURS, ("Queries", "incremental queries")],
    COMPACTION: [("Engines", "Java Hudi 1.2.0 compacts our tables, and we write on")],
    OWN_LOCK: [WRITES_BESIDE],
    ZOOKEEPER: [WRITES_BESIDE, ("Locks", "ZooKeeper lock beside Java's ZookeeperBasedLockProvider")],
    JAVA_TABLE: [("Engines", "Java Hudi 1.2.0 makes a table, and we write on")],
}
MERGING = {
    "event time": "event time ordering",
    "commit time": "commit time ordering",
    "partial update": "partial updates: IGNORE_DEFAULTS",
    "deletes": "deletes by row flag, with their ordering value",
    "several ordering fields": "several ordering fields",
}
LAYOUTS = {
    "non-partitioned": "non-partitioned tables",
    "hive-style": "hive-style partitions",
    "two levels": "partitions of several levels",
}
OWN_LOCKS = {
    LOCAL: "file-system lock beside Java's FileSystemBasedLockProvider",
    S3A: "storage lock beside Java's StorageBasedLockProvider",
    HDFS: "file-system lock on HDFS beside Java's FileSystemBasedLockProvider",
}
BESIDE_IN = {
    LOCAL: [],
    S3A: [("Engines", "Java Hudi 1.2.0 and mainstem on the same tables in S3 (s3a, MinIO)")],
    HDFS: [("Engines", "Java Hudi 1.2.0 and mainstem on the same tables on HDFS")],
}
VERSIONS = {8: "table version 8 (write)", 9: "table version 9 (write)"}


def parameter(cell: Cell) -> object:
    """A cell with the lines of the support table that it proves."""
    kind = cell.kind
    lines = [
        *PROVES[cell.check],
        *BESIDE_IN[kind.store],
        *([("Locks", OWN_LOCKS[kind.store])] if cell.check == OWN_LOCK else []),
        ("Merging", MERGING[kind.merge]),
        ("Tables and layouts", LAYOUTS[kind.layout]),
        ("Tables and layouts", VERSIONS[kind.version]),
        ("Writing", "log blocks as Avro or Parquet"),
    ]
    marks = [pytest.mark.supports(*line) for line in lines]
    if reason := MISSING[kind.store]:
        marks.append(pytest.mark.skip(reason=reason))
    return pytest.param(cell, id=str(cell), marks=marks)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[dict[str, str]]:
    """Lock options of a running ZooKeeper."""
    with ZooKeeperServer() as server:
        yield zookeeper_options(server.connect_string)


class Results:
    """Results by cell; a table is made when the first of its cells is asked for."""

    def __init__(self, places: Places, zookeeper: dict[str, str]) -> None:
        self._places, self._zookeeper = places, zookeeper
        self._asked: dict[Kind, list[str]] = {}
        self._found: dict[Cell, Result] = {}

    def expect(self, cells: list[Cell]) -> None:
        """The cells of this run."""
        for cell in cells:
            self._asked.setdefault(cell.kind, []).append(cell.check)

    def of(self, cell: Cell) -> Result:
        """Runs all that is asked of the cell's table, once."""
        if cell not in self._found:
            place = self._places.fresh(cell.kind.store)
            checks = [check for check in CHECKS if check in self._asked[cell.kind]]
            found = run_kind(place, cell.kind, checks, self._zookeeper, every=False)
            for result in found:
                self._found[Cell(result.kind, result.check)] = result
        return self._found[cell]


@pytest.fixture(scope="session")
def results(
    request: pytest.FixtureRequest,
    java: JavaHudi,
    zookeeper: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Results]:
    """Of the cells that pytest was asked for."""
    chosen = [item.callspec.params.get("cell") for item in request.session.items if hasattr(item, "callspec")]
    with Places(tmp_path_factory.mktemp("matrix"), java) as places:
        made = Results(places, zookeeper)
        made.expect([cell for cell in chosen if isinstance(cell, Cell)])
        yield made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cell", [parameter(cell) for cell in COVER])
def test_java_and_we_answer_as_the_model_says(results: Results, cell: Cell) -> None:
    result = results.of(cell)
    assert not result.problem, result.problem
    assert result.base_rows > 0 and result.log_rows > 0 and result.rows > 0
    if cell.check in (OWN_LOCK, ZOOKEEPER):
        print(f"\n{cell}: {result.overlaps} pairs of transactions overlapped")
        assert result.overlaps


def test_a_difference_in_any_column_type_or_row_is_a_problem() -> None:
    kind = COVER[0].kind
    schema, model = schema_of(kind), Model(shape_of(kind))
    times = [f"{second:017}" for second in range(6)]
    model.add(times[0], times[1], [row(number, 100, 1) for number in range(3)])
    model.compactions.append(Compaction(times[2], times[3]))
    model.add(times[4], times[5], [row(1, 200, 2)])
    expected = expected_table(model.snapshot(), schema)
    names = [
        entry.file_id if entry.base is None else f"{entry.file_id}_0-1-2_{entry.base}.parquet"
        for entry in model.snapshot()
    ]
    found = expected.drop_columns(["file id", "base instant"])
    found = found.append_column("_hoodie_file_name", pa.array(names))
    numbers = [
        f"{commit}_0_{at}" for at, commit in enumerate(found.column("_hoodie_commit_time").to_pylist())
    ]
    found = found.append_column("_hoodie_commit_seqno", pa.array(numbers))
    assert against("it", expected, found) == []
    for at, name in enumerate(found.column_names):
        shifted = pa.concat_tables([found.select([name]).slice(1), found.select([name]).slice(0, 1)])
        if shifted.column(name) != found.column(name):
            assert against("it", expected, found.set_column(at, name, shifted.column(name))), name
    assert against("it", expected, found.slice(1))
    assert against("it", expected, pa.concat_tables([found, found.slice(0, 1)]))
    wider = found["price"].cast(pa.float32())
    assert against("it", expected, found.set_column(found.column_names.index("price"), "price", wider))


def test_every_pair_of_values_that_some_cell_has_is_in_a_cell_that_runs_here() -> None:
    everything = {pair for cell in all_cells() for pair in pairs(cell)}
    assert {pair for cell in COVER for pair in pairs(cell)} == everything
    assert len(COVER) < len(all_cells()) / 3


def test_what_hudi_does_not_have_is_named_with_its_reason_and_is_no_cell() -> None:
    missing = {(kind.merge, kind.version) for kind in all_kinds() if missing_in_hudi(kind)}
    assert missing == {("partial update", 8), ("several ordering fields", 8)}
    assert not [cell for cell in all_cells() if missing_in_hudi(cell.kind)]
    kinds = len(all_kinds()) - len(missing) * 3 * 2 * len(STORES)
    assert len(all_cells()) == kinds * len(CHECKS)
