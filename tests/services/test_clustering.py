"""Goal: clustering puts the rows of base files in an order, changes no answer, stops nobody and ends.

Method: small tables in every merge mode are clustered, by calls, by options and by plans of other jobs,
within memory and beyond it; files are read with pyarrow and must be in order; every answer before is
compared with the one after. Row groups that a query reads are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.readers.rows.base_rows import BaseFile
from mainstem.services import compaction
from mainstem.services.clustering_order import RowOrder
from tests.services.city_table import QUICK, content
from tests.services.city_table import make as make_cities
from tests.services.city_table import rows as city_rows

pytestmark = pytest.mark.supports(
    "Services", "clustering of file groups: linear, Z-order or Hilbert, beside running writers"
)

SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64()),
        ("note", pa.string()), ("day", pa.date32()), ("tags", pa.list_(pa.string())),
    ]
)  # fmt: skip
SORT_COLUMNS, STRATEGY = "hoodie.clustering.plan.strategy.sort.columns", "hoodie.layout.optimize.strategy"
SMALL_GROUPS = {"hoodie.parquet.block.size": 22 * 1024}
#: more than two rows groups each, and too few bytes to sort them at once
LITTLE_MEMORY = {"hoodie.memory.compaction.max.size": 1 << 20}
COUNT = 12_000
ORDERS = [
    pytest.param("linear", ["fare", "note"], id="linear"),
    pytest.param("z-order", ["fare", "note"], id="Z-order"),
    pytest.param("hilbert", ["note", "day", "fare"], id="Hilbert"),
]


def rows(ids: Sequence[int], ts: int) -> pa.Table:
    numbers = np.array(ids)
    return pa.table(
        {
            "id": [f"k{n:06d}" for n in ids],
            "city": [("rome", "oslo")[n % 2] for n in ids],
            "ts": [ts] * len(ids),
            "fare": pa.array((numbers * 7919 + ts) % COUNT / 8, mask=numbers % 101 == 0),
            "note": pa.array([f"n{n * 31 % 997:03d}" for n in ids], mask=numbers % 53 == 0),
            "day": pa.array((numbers * 17 % 365).astype(np.int32), pa.int32()).cast(pa.date32()),
            "tags": [[f"t{n % 7}"] * (n % 3) if n % 5 else None for n in ids],
        },
        schema=SCHEMA,
    )


def make(path: Path, ordering: str = "ts", **properties: object) -> mainstem.Table:
    given = {**QUICK, **SMALL_GROUPS, "hoodie.mainstem.services": "off"}
    given |= {key.replace("__", "."): value for key, value in properties.items()}
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering=ordering or (), partition_by="city", buckets=2,
        properties=given,
    )  # fmt: skip


def filled(path: Path, **properties: object) -> mainstem.Table:
    """With base files and no log files."""
    table = make(path, **properties)
    table.upsert(rows(range(COUNT), 1))
    table.compact()
    return table


def newest_bases(table: mainstem.Table) -> list[Path]:
    return [
        Path(table.path) / s.partition / s.base_file for s in table.file_slices() if s.latest and s.base_file
    ]


def is_sorted(file: Path, columns: Sequence[str]) -> bool:
    """Whether rows are in the order of the columns, nulls first."""
    keys = pq.ParquetFile(file).read(columns=list(columns)).combine_chunks()
    rows = [tuple((value is not None, value) for value in row.values()) for row in keys.to_pylist()]
    return rows == sorted(rows)


def width(file: Path, column: str) -> float:
    """How much of the file's values the row groups' ranges cover on average, from 0 to 1."""
    found = pq.ParquetFile(file)
    every = pc.unique(found.read(columns=[column])[column]).drop_null().sort()
    at = found.schema_arrow.get_field_index(column)
    groups = [found.metadata.row_group(n).column(at).statistics for n in range(found.num_row_groups)]
    told = [(pa.scalar(s.min, every.type), pa.scalar(s.max, every.type)) for s in groups]
    assert len(groups) > 7
    covered = [pc.index(every, high).as_py() - pc.index(every, low).as_py() for low, high in told]
    return float(np.mean(covered)) / len(every)


def in_order(table: mainstem.Table, strategy: str, columns: Sequence[str]) -> bool:
    files = newest_bases(table)
    if strategy == "linear":
        return all(is_sorted(file, columns) for file in files)
    # Of k columns, a curve narrows each to about the k-th root of the groups' number.
    most = 0.45 if len(columns) == 2 else 0.65
    return all(width(file, column) < most for file in files for column in columns)


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the row groups that queries decode."""
    read: list[int] = []
    real = BaseFile._group

    def noted(
        self: BaseFile, source: pq.ParquetFile, number: int, names: Sequence[str], *rest: int
    ) -> object:
        read.append(number)
        return real(self, source, number, names, *rest)

    monkeypatch.setattr(BaseFile, "_group", noted)
    return read


# -- orders ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [{}, LITTLE_MEMORY], ids=["in memory", "spilled"])
@pytest.mark.parametrize("strategy, columns", ORDERS)
def test_the_rows_of_each_file_are_in_order_and_the_same_as_before(tmp_path, strategy, columns, memory):
    table = filled(tmp_path / "t")
    table.upsert(rows(range(0, COUNT, 3), 2))
    table.delete(rows(range(60, 90), 0).select(["id", "city"]))
    assert not in_order(table, strategy, columns)
    snapshot, changes = content(table), table.changes().to_arrow().num_rows
    newest = max(i.requested for i in table.timeline() if i.completion)
    job = mainstem.open_table(table.path, {**QUICK, **SMALL_GROUPS, **memory})
    (done,) = job.cluster(columns, strategy=strategy)
    assert done.rows == snapshot.num_rows and len(done.files) == 4
    assert done.describe().endswith(f" in the order {strategy}:{','.join(columns)}")
    assert in_order(table, strategy, columns)
    assert content(table).equals(snapshot)
    assert content(table, mode="read_optimized").equals(snapshot)
    assert content(table, as_of=newest).equals(snapshot)
    assert table.changes().to_arrow().num_rows == changes
    assert table.scan().count_rows() == snapshot.num_rows
    assert table.cluster(columns, strategy=strategy) == [], "what is in order is left alone"


@pytest.mark.parametrize(
    "ordering, properties",
    [
        pytest.param("", {}, id="commit time"),
        pytest.param("", {"hoodie__table__partial__update__mode": "IGNORE_DEFAULTS"}, id="partial"),
        pytest.param("ts", {"hoodie__logfile__data__block__format": "parquet"}, id="parquet blocks"),
        pytest.param("ts", {"hoodie__metadata__enable": True}, id="metadata table"),
    ],
)
def test_later_writes_and_compactions_go_on_as_if_nothing_had_been(tmp_path, ordering, properties):
    tables = [make(tmp_path / name, ordering, **properties) for name in ("ordered", "plain")]
    for number, table in enumerate(tables):
        table.upsert(rows(range(3000), 1))
        table.compact()
        table.upsert(rows(range(1000, 4000), 2))
        if number == 0:
            assert table.cluster(["note", "fare"], strategy="hilbert")
        table.upsert(rows(range(500, 1500, 2), 3))
        table.delete(rows(range(40, 80), 0).select(["id", "city"]))
        if number == 0:
            assert table.cluster("day")
        table.compact()
        table.upsert(rows(range(3900, 4100), 4))
    meta = ["_hoodie_commit_time", "_hoodie_commit_seqno"]
    ordered, plain = (content(table).drop_columns(meta) for table in tables)
    assert ordered.equals(plain)
    if properties.get("hoodie__metadata__enable"):
        assert tables[0].validate_metadata().ok


def test_options_of_the_table_make_every_compaction_order_its_rows(tmp_path):
    table = make(tmp_path / "t", **{SORT_COLUMNS: "fare, note"})
    assert f"{SORT_COLUMNS}=fare, note" in (tmp_path / "t/.hoodie/hoodie.properties").read_text()
    table.upsert(rows(range(COUNT), 1))
    job = mainstem.open_table(table.path, {**QUICK, **SMALL_GROUPS})
    (done,) = job.compact()
    assert done.order == "linear:fare,note" and in_order(table, "linear", ["fare", "note"])
    assert job.cluster() == [], "it is the order that the options ask for"
    job.upsert(rows([7], 2))
    (done,) = job.cluster()
    assert len(done.files) == 1 and in_order(table, "linear", ["fare", "note"])


def test_a_plan_is_executed_in_its_own_order_by_jobs_that_have_none_or_another(tmp_path):
    table = filled(tmp_path / "t")
    planned = table.schedule_clustering(["day", "note"])
    other = mainstem.open_table(table.path, {**QUICK, **SMALL_GROUPS, SORT_COLUMNS: "fare"})
    (done,) = other.run_compaction(planned)
    assert done.order == "linear:day,note" and in_order(table, "linear", ["day", "note"])
    table.upsert(rows(range(COUNT), 2))
    planned = table.schedule_compaction()
    (done,) = other.run_compaction(planned)
    assert done.order == "linear:fare" and in_order(table, "linear", ["fare"])


def test_groups_that_are_in_order_and_have_no_logs_are_left_out(tmp_path):
    table = filled(tmp_path / "t")
    assert len(table.cluster("fare", partitions=["rome"])[0].files) == 2
    assert table.cluster("fare", partitions=["rome"]) == []
    assert len(table.cluster("fare")[0].files) == 2, "those of the other partition"
    assert table.cluster("fare") == [] and table.compact() == []
    table.upsert(rows([3], 2))
    assert len(table.cluster("fare")[0].files) == 1
    assert len(table.cluster("day")[0].files) == 4, "another order"
    table.upsert(rows([3], 3))
    table.compact()
    assert len(table.cluster("day")[0].files) == 1, "a compaction without an order ended the group's"


def test_what_was_bulk_inserted_is_clustered_without_any_log(tmp_path):
    table = make(tmp_path / "t")
    table.bulk_insert(rows(range(COUNT), 1))
    snapshot = content(table)
    assert table.compact() == []
    (done,) = table.cluster(["fare", "note"], strategy="z-order")
    assert done.log_files == 0 and len(done.files) == 4
    assert in_order(table, "z-order", ["fare", "note"]) and content(table).equals(snapshot)


def test_row_groups_are_small_unless_their_size_was_given(tmp_path):
    path = tmp_path / "t"
    mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=1, properties=QUICK)
    table = mainstem.open_table(path, QUICK)
    table.upsert(pa.concat_tables([rows(range(n, n + 50_000), 1) for n in (0, 50_000, 100_000)]))
    table.compact()
    assert pq.read_metadata(newest_bases(table)[0]).num_row_groups == 1
    table.cluster("fare")
    assert pq.read_metadata(newest_bases(table)[0]).num_row_groups > 1
    large = mainstem.open_table(path, {**QUICK, "hoodie.parquet.block.size": 512 << 20})
    large.cluster("day")
    assert pq.read_metadata(newest_bases(table)[0]).num_row_groups == 1


# -- what it is for --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy, columns", ORDERS)
def test_a_filter_reads_few_row_groups(tmp_path, groups_read, strategy, columns):
    table = filled(tmp_path / "t")
    fare = pc.field("fare")
    wanted = (fare >= 1000) & (fare < 1020)

    def read() -> int:
        groups_read.clear()
        found = mainstem.open_table(table.path).scan(columns=["id", "fare"], filter=wanted).to_arrow()
        assert found.num_rows == len(expected)
        return len(groups_read)

    expected = [value for value in content(table)["fare"].to_pylist() if value and 1000 <= value < 1020]
    before = read()
    table.cluster(columns, strategy=strategy)
    assert before / read() > {"linear": 5, "z-order": 1.5, "hilbert": 1.2}[strategy]


# -- beside others ---------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_across_it_loses_nothing(tmp_path):
    table = make_cities(tmp_path / "t")
    table.upsert(city_rows(range(12), 1))
    table.compact()
    with table.begin() as early, table.begin() as never:
        early.write(city_rows([0, 1, 20], 5, "early"))
        never.write(city_rows([2], 9, "never"))
        planned = table.schedule_clustering("value")
        with table.begin() as between:
            between.write(city_rows([3, 9], 5, "between"))
            between.commit()
        expected = content(table)
        (done,) = table.run_compaction(planned)
        assert done.completion and done.log_files == 0 and content(table).equals(expected)
        early.commit()
        never.abort()
    found = dict(zip(*table.scan(columns=["id", "value"]).to_arrow().to_pydict().values(), strict=True))
    assert [found[f"k{n:02d}"] for n in (0, 1, 2, 3, 9, 20)] == [
        "early0", "early1", "v2", "between3", "between9", "early20",
    ]  # fmt: skip
    expected = content(table)
    assert table.cluster("value") and content(table).equals(expected)


def test_services_clean_roll_back_and_restore_what_was_clustered(tmp_path):
    table = make_cities(tmp_path / "t", hoodie__clean__commits__retained="1")
    table.upsert(city_rows(range(12), 1))
    saved = table.savepoint()
    table.compact()
    expected = content(table)
    (done,) = table.cluster("value")
    table.rollback(done.requested)
    assert content(table).equals(expected)
    assert table.cluster("value")
    for ts in (2, 3):
        table.upsert(city_rows(range(12), ts))
        table.cluster("value")
    expected = content(table)
    job = mainstem.open_table(table.path, {**QUICK, "hoodie.clean.commits.retained": 1})
    job.clean()
    assert content(table).equals(expected)
    table.restore(saved.instant)
    assert content(table).num_rows == 12
    assert not [i for i in table.timeline() if i.action == "compaction"]


def test_of_executors_at_once_each_group_gets_one_file(tmp_path):
    table = filled(tmp_path / "t")
    planned = table.schedule_clustering("fare")
    snapshot = content(table)
    ctx = table.writer_context()
    with compaction.executing(ctx, planned) as execution:
        assert execution is not None
        for task in execution.tasks:
            task.run("aa")
        again = [task.run("bb") for task in execution.tasks]
        done = execution.complete(again)
    assert done.rows == COUNT and content(table).equals(snapshot) and in_order(table, "linear", ["fare"])


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns, more, error, said",
    [
        (None, {}, Invalid, ("no columns", SORT_COLUMNS)),
        ("", {}, Invalid, ("no columns",)),
        ("fare,fare", {}, Invalid, ("twice", "fare,fare")),
        ("fare,what", {}, Invalid, ("'what'", "note", "day")),
        ("_hoodie_file_name", {}, Invalid, ("'_hoodie_file_name'",)),
        ("tags", {}, Unsupported, ("'tags'", "list", "no order")),
        ("fare", {"strategy": "snake"}, Invalid, (STRATEGY, "'snake'", "z-order, hilbert")),
        ("fare", {"partitions": "rome"}, Invalid, ("'rome'", "a list")),
    ],
)
def test_an_order_that_cannot_be_is_refused_with_its_reason(tmp_path, columns, more, error, said):
    table = filled(tmp_path / "t")
    before = sorted(i.requested for i in table.timeline())
    with pytest.raises(error) as caught:
        table.cluster(columns, **more)
    assert all(word in str(caught.value) for word in said), caught.value
    assert sorted(i.requested for i in table.timeline()) == before


@pytest.mark.parametrize(
    "properties, error, said",
    [
        ({SORT_COLUMNS: "what"}, Invalid, "'what'"),
        ({SORT_COLUMNS: "tags"}, Unsupported, "no order"),
        ({SORT_COLUMNS: "fare", STRATEGY: "snake"}, Invalid, STRATEGY),
        ({"hoodie.layout.optimize.curve.build.method": "sample"}, Unsupported, "expected direct"),
        ({"hoodie.clustering.plan.strategy.sort.colums": "fare"}, Invalid, SORT_COLUMNS),
    ],
)
def test_no_table_is_made_with_options_of_an_order_that_cannot_be(tmp_path, properties, error, said):
    with pytest.raises(error, match=said.replace(".", r"\.")):
        make(tmp_path / "t", **properties)
    assert not (tmp_path / "t/.hoodie/hoodie.properties").exists()


def test_a_plan_whose_columns_are_gone_is_executed_nevertheless(tmp_path, monkeypatch):
    table = filled(tmp_path / "t")
    snapshot = content(table)
    with monkeypatch.context() as patch:
        patch.setattr(RowOrder, "check", lambda *given: None)
        planned = table.schedule_clustering(["gone", "fare"])
    (done,) = table.run_compaction(planned)
    assert done.completion and done.order == "linear:fare"
    assert content(table).equals(snapshot) and in_order(table, "linear", ["fare"])
    with monkeypatch.context() as patch:
        patch.setattr(RowOrder, "notes", {SORT_COLUMNS: "fare", STRATEGY: "of a later release"})
        planned = table.schedule_clustering("day")
    (done,) = table.run_compaction(planned)
    assert done.completion and done.order == "" and content(table).equals(snapshot)


def test_words_of_hudi_for_strategies_are_understood(tmp_path):
    meant = {"ZORDER": "z-order", "z-order": "z-order", "Hilbert": "hilbert", "LINEAR": "linear"}
    for word, name in meant.items():
        order = RowOrder.from_properties({SORT_COLUMNS: "a,b", STRATEGY: word})
        assert order is not None and order.strategy == name
    assert RowOrder.from_properties({STRATEGY: "hilbert"}) is None
    assert str(RowOrder.of("a", "hilbert")) == "linear:a", "one column has one order"
    with pytest.raises(MainstemError, match="at most 16"):
        RowOrder.of([f"c{n}" for n in range(17)], "z-order")
