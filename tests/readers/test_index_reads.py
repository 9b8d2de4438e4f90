"""Goal: reads that use the indexes of a metadata table give what the full read gives, and read less.

Method: tables that Java wrote with every kind of index are asked hundreds of filters with metadata table and
without it, as of now and as of earlier times; indexes are made incomplete, pending, damaged and unknown by
editing copies of the tables.
"""

from __future__ import annotations

import json
import random
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import mainstem
from mainstem.formats.hfile_write import write_hfile
from mainstem.indexing.check_stats import expression_ranges
from mainstem.indexing.expected_contents import Contents
from mainstem.layout.properties import load_config
from mainstem.metadata.derive.statistics_rows import expression_rows
from mainstem.metadata.index_definitions import Definition
from mainstem.metadata.metadata_partitions import Content, escape
from mainstem.metadata.records.flat_rows import encode
from mainstem.metadata.records.record_schema import schema_of_version
from mainstem.readers.planning.table_state import TableState
from tests.golden_tables.tables import GOLDEN
from tests.storage.steps import storage_at

field = pc.field
PLAIN = {"hoodie.metadata.enable": "false", "hoodie.enable.data.skipping": "false"}
TABLES = (
    "mdt_all", "mdt_all_cow.secondary", "mdt_partitioned_rli", "all_types", "nbcc_two_writers_mdt.pending2",
    "async_index.inflight2", "clean_mor_mdt", "cow_basic_v8",
)  # fmt: skip
COLUMNS = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_commit_time"]


def unpacked(name: str, folder: Path) -> Path:
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    found = (path.parent.parent for path in (folder / name).rglob("hoodie.properties"))
    return min(found, key=lambda path: len(path.parts))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder, made = tmp_path_factory.mktemp("indexed"), {}

    def table(name: str) -> Path:
        if name not in made:
            made[name] = unpacked(name, folder)
        return made[name]

    return table


@pytest.fixture
def copied(tables: Callable[[str], Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tables("mdt_all"), tmp_path / "copy"))


def some_filters(rows: pa.Table, count: int, seed: int = 7) -> list[pc.Expression]:
    chance = random.Random(seed)
    made = []
    for column in (f for f in rows.schema if not pa.types.is_nested(f.type)):
        one, held = field(column.name), rows.column(column.name).drop_null().unique()
        made += [one.is_null(), one.is_valid()]
        for value in chance.sample(held.to_pylist(), min(3, len(held))):
            value = pa.scalar(value, column.type)
            made += [one == value, one > value, one <= value, one.isin(pa.repeat(value, 1))]
    made += [chance.choice(made) & chance.choice(made) for _ in range(40)]
    made += [chance.choice(made) | chance.choice(made) for _ in range(40)]
    return chance.sample(made, min(count, len(made)))


def shown(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.select(COLUMNS).to_pylist()))


def plan(path: Path, expression: pc.Expression, **query: str):
    return mainstem.open_table(path).scan(columns=COLUMNS, filter=expression, **query)


def without(path: Path, expression: pc.Expression) -> list[str]:
    return shown(mainstem.open_table(path, properties=PLAIN).scan(filter=expression).to_arrow())


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_the_same_with_indexes_and_without(tables: Callable[[str], Path], name: str) -> None:
    path = tables(name)
    whole = mainstem.open_table(path, properties=PLAIN).scan().to_arrow()
    for expression in some_filters(whole, 10):
        expected = shown(ds.dataset(whole).to_table(filter=expression))
        assert shown(plan(path, expression).to_arrow()) == expected, str(expression)


@pytest.mark.parametrize("name", ["mdt_all", "mdt_partitioned_rli"])
def test_base_files_alone_are_the_same_with_indexes_and_without(
    tables: Callable[[str], Path], name: str
) -> None:
    path = tables(name)
    whole = mainstem.open_table(path, properties=PLAIN).scan(mode="read_optimized").to_arrow()
    keys = [field("_hoodie_record_key") == key for key in whole["_hoodie_record_key"].to_pylist()]
    for expression in some_filters(whole, 6) + keys[:6]:
        expected = shown(ds.dataset(whole).to_table(filter=expression))
        assert shown(plan(path, expression, mode="read_optimized").to_arrow()) == expected, str(expression)


@pytest.mark.parametrize("name", ["mdt_all", "mdt_partitioned_rli"])
@pytest.mark.parametrize("query", ["as_of", "as_of_completion"])
def test_earlier_times_are_the_same_with_indexes_and_without(
    tables: Callable[[str], Path], name: str, query: str
) -> None:
    path = tables(name)
    bare, asked = mainstem.open_table(path, properties=PLAIN), 0
    for instant in [i for i in bare.timeline() if i.completion and i.action in ("deltacommit", "commit")]:
        moment = {query: instant.requested if query == "as_of" else instant.completion}
        try:
            whole = bare.scan(**moment).to_arrow()
        except mainstem.MainstemError:  # cleaned
            continue
        for expression in some_filters(whole, 2):
            expected = shown(ds.dataset(whole).to_table(filter=expression))
            assert shown(plan(path, expression, **moment).to_arrow()) == expected, str(expression)
            asked += 1
    assert asked > 3


def first_cut(path: Path, expression: pc.Expression) -> str:
    """The index that cut first; the rows must be those of the full read."""
    asked = plan(path, expression)
    found = asked.explain()
    assert shown(asked.to_arrow()) == without(path, expression)
    assert found.file_slices_read < 6
    return found.cuts[0].index


@pytest.mark.supports("Indexes", "column and partition statistics: cut reads")
def test_a_range_is_answered_by_statistics_of_partitions_and_files(tables: Callable[[str], Path]) -> None:
    path = tables("mdt_all")
    assert first_cut(path, field("price") > 1e6) == "partition statistics"
    found = plan(path, field("id") == 4).explain()
    assert found.file_slices_read == 1
    assert first_cut(path, field("_hoodie_commit_time") < "2") == "partition statistics"


@pytest.mark.supports("Indexes", "record index: answers filters on one key and on many")
@pytest.mark.parametrize("keys", [[4], [0, 4, 6], [4, 999]], ids=str)
def test_keys_are_found_by_the_record_index(tables: Callable[[str], Path], keys: list[int]) -> None:
    expression = field("_hoodie_record_key").isin([str(key) for key in keys])
    found = plan(tables("mdt_all"), expression).explain()
    assert "record index" in [cut.index for cut in found.cuts]
    assert found.file_slices_read <= len(keys)
    assert shown(plan(tables("mdt_all"), expression).to_arrow()) == without(tables("mdt_all"), expression)


@pytest.mark.supports("Indexes", "record index, partitioned: answers filters on keys")
def test_keys_are_found_by_the_record_index_of_each_partition(tables: Callable[[str], Path]) -> None:
    path = tables("mdt_partitioned_rli")
    keys = mainstem.open_table(path, properties=PLAIN).scan().to_arrow().column("_hoodie_record_key")
    cuts = set()
    for key in keys.unique().to_pylist()[:6]:
        expression = field("_hoodie_record_key") == key
        cuts |= {cut.index for cut in plan(path, expression).explain().cuts}
        assert shown(plan(path, expression).to_arrow()) == without(path, expression)
    assert cuts & {"record index", "partition statistics"}


@pytest.mark.supports("Indexes", "secondary index: answers filters on its column")
def test_a_value_is_found_by_the_secondary_index(tables: Callable[[str], Path]) -> None:
    expression = field("name").isin(["n4v7", "n6v6"])
    found = plan(tables("mdt_all"), expression).explain()
    assert "secondary index" in [cut.index for cut in found.cuts]
    assert shown(plan(tables("mdt_all"), expression).to_arrow()) == without(tables("mdt_all"), expression)


def change_lists(path: Path, ready: Callable[[list[str]], list[str]]) -> None:
    properties = path / ".hoodie/hoodie.properties"
    lines = []
    for line in properties.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "hoodie.table.metadata.partitions":
            line = f"{key}={','.join(ready(value.split(',')))}"
        lines.append(line)
    properties.write_text("\n".join(lines) + "\n")


def only(*names: str) -> Callable[[list[str]], list[str]]:
    return lambda ready: [name for name in ready if name in names]


@pytest.mark.supports("Indexes", "bloom filters: answer filters on keys")
def test_base_files_are_ruled_out_by_bloom_filters(copied: Path) -> None:
    change_lists(copied, only("files", "bloom_filters"))
    shown_by = {}
    for key in ("0", "4", "absent"):
        expression = field("_hoodie_record_key") == key
        shown_by[key] = {cut.index: cut.left_out for cut in plan(copied, expression).explain().cuts}
        assert shown(plan(copied, expression).to_arrow()) == without(copied, expression)
    assert shown_by["absent"] == {"bloom filters": 4}  # two slices have log files, which have no filters


def test_an_index_that_is_not_listed_is_not_used(copied: Path) -> None:
    change_lists(copied, only("files"))
    found = plan(copied, (field("_hoodie_record_key") == "4") & (field("price") > 1e6)).explain()
    assert not found.cuts


def test_a_column_that_the_definition_does_not_list_is_not_used(copied: Path) -> None:
    definitions = copied / ".hoodie/.index_defs/index.json"
    changed = json.loads(definitions.read_text())
    changed["indexDefinitions"]["column_stats"]["sourceFields"].remove("price")
    definitions.write_text(json.dumps(changed))
    assert not plan(copied, field("price") > 1e6).explain().cuts


@pytest.mark.parametrize("name", ["async_index.inflight", "async_index.inflight2"])
def test_an_index_whose_action_is_pending_is_not_used_although_it_is_listed(
    tables: Callable[[str], Path], name: str
) -> None:
    table = mainstem.open_table(tables(name))
    pending = [i for i in table.timeline() if i.action == "indexing" and i.completion is None]
    assert pending
    found = plan(tables(name), field("_hoodie_commit_time") < "2").explain()
    assert any("still being built" in note for note in found.notes)


def test_a_write_that_the_metadata_table_does_not_know_switches_indexes_of_the_newest_state_off(
    copied: Path,
) -> None:
    timeline = copied / ".hoodie/metadata/.hoodie/timeline"
    last = max(timeline.glob("*.deltacommit"), key=lambda path: path.name)
    last.rename(last.with_name("00" + last.name[2:]))
    with pytest.warns(UserWarning, match="folders are listed instead"):
        found = plan(copied, field("_hoodie_record_key") == "4").explain()
    assert "record index" not in [cut.index for cut in found.cuts]
    assert any("does not know instant" in note for note in found.notes)


@pytest.mark.supports("Indexes", "reads: a damaged index is left out, with a warning")
def test_a_damaged_index_is_left_out_with_a_warning(copied: Path) -> None:
    change_lists(copied, only("files", "column_stats"))
    for file in (copied / ".hoodie/metadata/column_stats").glob("*.hfile"):
        data = bytearray(file.read_bytes())
        data[40 : len(data) // 2] = bytes(len(data) // 2 - 40)
        file.write_bytes(data)
    expression = field("price") > 1e6
    with pytest.warns(UserWarning, match="more files are read instead"):
        found = plan(copied, expression).explain()
    assert not found.cuts
    with pytest.warns(UserWarning, match="more files are read instead"):
        assert shown(plan(copied, expression).to_arrow()) == without(copied, expression)


def test_the_metadata_table_is_not_opened_where_it_is_switched_off(copied: Path) -> None:
    shutil.rmtree(copied / ".hoodie/metadata")
    table = mainstem.open_table(copied, properties={"hoodie.metadata.enable": "false"})
    assert table.scan(filter=field("id") == 4).count_rows() == 1


def add_expression_index(path: Path, function: str, column: str) -> None:
    """An expression index of column statistics, as Java would have built it over all files."""
    partition = f"expr_index_by_{function}"
    storage = storage_at(path)
    state = TableState.load(storage, load_config(storage))
    definition = Definition(partition, "column_stats", function, (column,), {"expr": function}, "V2")
    made = expression_ranges(Contents(state), definition)
    keys, values = encode(
        Content.STATS,
        expression_rows([(f.partition, f.name, found) for f, found in made]),
        schema_of_version(9),
    )
    metadata = state.metadata_table
    instant = max(i.requested for i in metadata.timeline.completed if i.action == "deltacommit")
    folder = path / ".hoodie/metadata" / partition
    folder.mkdir()
    name = f"expr-index-by-{function}-0000-0_0-0-0_{instant}.hfile"
    (folder / name).write_bytes(write_hfile(keys, values, schema_text=schema_of_version(9), base_file=True))
    file = path / ".hoodie/.index_defs/index.json"
    definitions = json.loads(file.read_text())
    definitions["indexDefinitions"][partition] = {
        "indexName": partition, "indexType": "column_stats", "indexFunction": function,
        "sourceFields": [column], "indexOptions": {"expr": function}, "version": "V2",
    }  # fmt: skip
    file.write_text(json.dumps(definitions))
    change_lists(path, lambda ready: ["files", partition])


@pytest.mark.supports("Indexes", "expression indexes: answer filters on their function")
@pytest.mark.parametrize(
    ("function", "hit", "miss"),
    [
        ("upper", pc.utf8_upper(field("name")) == "N4V7", pc.ascii_upper(field("name")).isin(["Z", "ZZ"])),
        ("lower", pc.ascii_lower(field("name")) == "n4v7", pc.ascii_lower(field("name")) == "z"),
        ("length", pc.utf8_length(field("name")) == 4, pc.utf8_length(field("name")) > 90),
        ("identity", field("name") == "n4v7", field("name") > "zz"),
    ],
    ids=["upper", "lower", "length", "identity"],
)
def test_a_function_of_a_column_is_answered_by_its_expression_index(
    copied: Path, function: str, hit: pc.Expression, miss: pc.Expression
) -> None:
    add_expression_index(copied, function, "name")
    assert shown(plan(copied, hit).to_arrow()) == without(copied, hit) != []
    found = plan(copied, miss).explain()
    assert found.file_slices_read == 0
    assert [cut.index for cut in found.cuts] == ["expression index"]


@pytest.mark.parametrize(
    "expression",
    [
        pc.utf8_upper(field("name")) > "ZZ",
        pc.utf8_upper(field("name")) == "É",
        pc.utf8_lower(field("name")) == "z",
        pc.utf8_length(field("name")) > 90,
    ],
    ids=str,
)
def test_an_expression_index_is_not_asked_what_it_cannot_decide(
    copied: Path, expression: pc.Expression
) -> None:
    add_expression_index(copied, "upper", "name")
    assert not plan(copied, expression).explain().cuts
    assert shown(plan(copied, expression).to_arrow()) == without(copied, expression)


def test_a_partition_that_the_record_index_does_not_know_is_read(
    tables: Callable[[str], Path], tmp_path: Path
) -> None:
    path = Path(shutil.copytree(tables("mdt_partitioned_rli"), tmp_path / "copy"))
    rows = mainstem.open_table(path, properties=PLAIN).scan().to_arrow()
    key, partition = (rows[name][0].as_py() for name in COLUMNS[:2])
    for file in (path / ".hoodie/metadata/record_index").iterdir():
        if f"record-index-{escape(partition)}-" in file.name:
            file.unlink()
    change_lists(path, only("files", "record_index"))
    expression = field("_hoodie_record_key") == key
    with pytest.warns(UserWarning, match="cannot be used, more files are read instead"):  # files are missed
        assert shown(plan(path, expression).to_arrow()) == without(path, expression)
