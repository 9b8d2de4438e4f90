"""Goal: a count is the number of rows that a read gives, in every kind of table and query, also where the
footers of base files tell it.

Method: every query of the golden tables is counted and read. Filters on each column that has few values,
partition columns among them, are counted and read, too. Where reading fails, counting fails with the same
error. How many slices were counted by their footer is told by the function itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import MainstemError
from mainstem.layout.properties import load_config
from mainstem.readers.queries import scan_plan
from mainstem.readers.queries.scan_plan import ScanPlan
from mainstem.storage.local import LocalStorage
from tests.golden_tables.features import marked
from tests.golden_tables.tables import NAMES, expectations, plan_of, unpack

pytestmark = pytest.mark.versions
KINDS = ("snapshot", "read_optimized", "time_travel", "incremental")
FEW = 4
COUNTED = ("keys_simple_hive", "keys_simple_plain", "keys_simple_urlencode", "cow_basic")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What footers told, slice by slice."""
    found: list[int | None] = []
    real = scan_plan.told_count

    def noted(*given: Any) -> int | None:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(scan_plan, "told_count", noted)
    return found


def outcome(work: Any) -> Any:
    try:
        return work()
    except (MainstemError, pa.ArrowException) as error:
        return type(error), str(error)


def agree(plan: ScanPlan) -> None:
    assert outcome(plan.count_rows) == outcome(lambda: plan.to_arrow().num_rows)


def with_few_values(rows: pa.Table, always: list[str]) -> list[tuple[str, list[Any]]]:
    """The columns ``always`` and some others that have few values, and these values."""
    found = []
    for name in [*always, *(name for name in rows.schema.names if name not in always)]:
        kind = rows.schema.field(name).type
        if pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date(kind):
            values = pc.unique(rows[name]).to_pylist()
            if len(values) <= FEW:
                found.append((name, values))
    return found[: len(always) + 2]


@pytest.mark.parametrize("name", marked(NAMES))
def test_every_query_counts_the_rows_that_it_reads(name: str, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    for query in expectations(name)["queries"]:
        if query["kind"] in KINDS:
            plan = outcome(lambda: plan_of(path, name, query))  # noqa: B023 - called at once
            if isinstance(plan, ScanPlan):
                agree(plan)


@pytest.mark.parametrize("name", marked(NAMES))
def test_filters_on_columns_of_few_values_count_the_rows_that_pass(name: str, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    table = mainstem.open_table(path, {"mainstem.read.damaged": "skip"})
    for mode in ("snapshot", "read_optimized"):
        rows = outcome(lambda: table.scan(mode=mode).to_arrow())  # noqa: B023 - called at once
        if not isinstance(rows, pa.Table):
            continue
        for column, values in with_few_values(rows, partition_columns(path)):
            field = pc.field(column)
            asked = [field.is_null(), *(field == value for value in values if value is not None)]
            asked += [~one for one in asked[-1:]]
            for condition in asked:
                count = table.scan(mode=mode, filter=condition).count_rows()
                assert count == rows.filter(condition).num_rows, (mode, condition)


def partition_columns(path: Path) -> list[str]:
    return list(load_config(LocalStorage(str(path))).partition_fields)


@pytest.mark.parametrize("name", COUNTED)
def test_base_files_of_java_are_counted_by_their_footers(
    name: str, unpacked: Path, told: list[int | None]
) -> None:
    path = unpack(name, unpacked)
    table = mainstem.open_table(path)
    rows = table.scan(mode="read_optimized").to_arrow()
    assert table.scan(mode="read_optimized").count_rows() == rows.num_rows
    assert told and None not in told
    for column in partition_columns(path):
        for value in pc.unique(rows[column]).to_pylist():
            told.clear()
            alike = pc.field(column) == value
            count = table.scan(mode="read_optimized", filter=alike).count_rows()
            assert count == rows.filter(alike).num_rows and told and None not in told


def test_a_base_file_that_is_gone_or_cut_off_is_the_same_error(tmp_path: Path, unpacked: Path) -> None:
    for damage in (Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9])):
        path = shutil.copytree(unpack("cow_basic", unpacked), tmp_path / damage.__name__)
        table = mainstem.open_table(path)
        base = next(iter(table.scan().splits())).base_file
        damage(path / base)
        counted = outcome(table.scan().count_rows)
        assert counted == outcome(lambda: table.scan().to_arrow().num_rows)  # noqa: B023 - called at once
        assert counted[0] is mainstem.CorruptTable
