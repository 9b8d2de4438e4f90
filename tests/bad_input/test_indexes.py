"""Goal: whatever is wrong with a metadata table or with what is asked of it, the error names it, the data
stays as it is and can be read, and dropping or building the index anew heals the table.

Method: files of the metadata table are damaged, rows made to point at what is not there, lists and
definitions changed by hand. Each time: a read (right, or an error by name), a write, and the way back.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.metadata.commits import key_rows
from tests.services.city_table import QUICK, content, make, rows

METADATA = ".hoodie/metadata"
EVERY_COMMIT = {"hoodie.metadata.compact.max.delta.commits": "1"}
WITHOUT = {"hoodie.metadata.enable": "false"}
LOOK_UPS = (
    pc.field("ts") > 1,
    pc.field("id") == "k03",
    pc.field("value") == "v3",
)

pytestmark = pytest.mark.supports("Indexes", "reads: a damaged index is left out, with a warning")


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make(tmp_path_factory.mktemp("healthy") / "t")
    made.upsert(rows(range(8), 1))
    opened(made).compact()
    opened(made).create_index("column_stats")
    opened(made).create_index("secondary_index", ["value"])
    opened(made).upsert(rows(range(4), 2))
    return Path(made.path)


@pytest.fixture
def table(healthy: Path, tmp_path: Path) -> mainstem.Table:
    return mainstem.open_table(shutil.copytree(healthy, tmp_path / "t"), QUICK)


def opened(table: mainstem.Table, **more: str) -> mainstem.Table:
    return mainstem.open_table(table.path, {**QUICK, **more})


def check_reads(table: mainstem.Table) -> None:
    """Filtered reads give what reads of everything without any index give."""
    whole = content(opened(table, **WITHOUT))
    for wanted in LOOK_UPS:
        found = opened(table).scan(filter=wanted).to_arrow().drop_columns(["_hoodie_file_name"])
        order = [("_hoodie_record_key", "ascending"), ("_hoodie_partition_path", "ascending")]
        assert found.sort_by(order).equals(whole.filter(wanted).sort_by(order))


def damage(table: mainstem.Table, partition: str) -> None:
    for file in Path(table.path, METADATA, partition).glob("*.hfile"):
        data = bytearray(file.read_bytes())
        data[40:200] = bytes(160)
        file.write_bytes(data)


@pytest.mark.filterwarnings("ignore:.*cannot be used.*")
@pytest.mark.parametrize("partition", ["column_stats", "record_index", "secondary_index_value"])
def test_an_index_of_damaged_blocks_is_read_around_written_on_and_built_anew(table, partition) -> None:
    """Although a compaction of the metadata table that names them is pending, and cannot be executed."""
    damage(table, partition)
    check_reads(table)
    with pytest.warns(UserWarning, match=f"metadata of .* failed: .*{METADATA}/{partition}/"):
        opened(table, **EVERY_COMMIT).upsert(rows(range(8), 3))
    check_reads(table)
    opened(table).reindex_all()
    opened(table, **EVERY_COMMIT).upsert(rows(range(2), 4))
    check_reads(table)
    assert opened(table).validate_metadata().ok
    own = Path(table.path, METADATA, ".hoodie/timeline")
    planned = {file.name[:17] for file in own.glob("*.compaction.requested")}
    assert planned and planned == {file.name[:17] for file in own.glob("*.commit")}


@pytest.mark.filterwarnings("ignore:.*cannot be used.*", "ignore:table service metadata")
def test_a_damaged_listing_is_switched_off_and_made_anew(table) -> None:
    damage(table, "files")
    check_reads(table)
    opened(table, **EVERY_COMMIT).upsert(rows(range(8), 3))
    for name in ("value", "record_index", "column_stats", "files"):
        opened(table).drop_index(name)
    opened(table).create_index("column_stats")
    opened(table, **EVERY_COMMIT).upsert(rows(range(8), 4))
    check_reads(table)
    assert opened(table).validate_metadata().ok


def test_a_listed_file_that_is_gone_is_an_error_that_names_it(table) -> None:
    newest = max(Path(table.path, "a").glob(".*.log.*"), key=lambda file: file.name)
    newest.unlink()
    for options in ({}, WITHOUT):
        with pytest.raises(CorruptTable, match=newest.name):
            opened(table, **options).scan().to_arrow()
    skipping = opened(table, **WITHOUT, **{"mainstem.read.damaged": "skip"})
    assert skipping.scan().to_arrow().num_rows == 8  # as Java: without what it held
    assert any(newest.name in d.key for d in opened(table).validate_metadata().differences)


def test_a_key_that_an_index_places_where_nothing_is_is_found_where_it_lies(table, monkeypatch) -> None:
    opened(table).upsert(rows([3, 5], 2).set_column(1, "city", pa.array(["a", "a"])))
    real = key_rows.placed_rows

    def misplaced(keys, numbers, places):
        found = real(keys, numbers, places)
        at = found.schema.get_field_index("file_id")
        nowhere = pc.replace_substring_regex(found.column(at), "^0{7}.", "00000009")
        return found.set_column(at, found.schema.field(at), nowhere)

    monkeypatch.setattr(key_rows, "placed_rows", misplaced)
    opened(table).upsert(rows([3, 5], 3))
    check_reads(table)
    (note,) = opened(table).scan(filter=pc.field("id") == "k03").explain().notes
    assert "record_index names the file group 00000009" in note
    report = opened(table).validate_metadata()
    assert not report.ok and all(d.partition == "record_index" for d in report.differences)
    opened(table).reindex_all()
    assert opened(table).validate_metadata().ok


def change_definitions(table: mainstem.Table, change: Callable[[dict], None]) -> None:
    file = Path(table.path, ".hoodie/.index_defs/index.json")
    known = json.loads(file.read_text())
    change(known)
    file.write_text(json.dumps(known))


@pytest.mark.filterwarnings("ignore:.*cannot be used.*")
def test_a_definition_that_names_a_class_is_never_used_and_nothing_else_is_lost(table) -> None:
    change_definitions(table, lambda known: known.update({"@class": "java.lang.Runtime"}))
    check_reads(table)
    before = content(opened(table, **WITHOUT))
    for act in (
        lambda: opened(table).upsert(rows([1], 9)),
        lambda: opened(table).create_index("column_stats", ["ts"]),
        lambda: opened(table).drop_index("value"),
        lambda: opened(table).indexes(),
    ):
        with pytest.raises(Unsupported, match=r"index\.json name a class \('@class'\)"):
            act()
    assert content(opened(table, **WITHOUT)).equals(before)
    change_definitions(table, lambda known: known.pop("@class"))
    opened(table).upsert(rows([1], 9))
    assert opened(table).validate_metadata().ok


def test_a_partition_of_an_unknown_kind_is_not_written_is_read_without_and_dropped(table) -> None:
    file = Path(table.path, ".hoodie/hoodie.properties")
    listed = "hoodie.table.metadata.partitions="
    file.write_text(file.read_text().replace(listed, f"{listed}bitmap_index_x,"))
    check_reads(table)
    before = content(opened(table, **WITHOUT))
    for act in (lambda: opened(table).upsert(rows([1], 9)), lambda: opened(table).compact()):
        with pytest.raises(Unsupported, match="does not maintain bitmap_index_x"):
            act()
    assert content(opened(table, **WITHOUT)).equals(before)
    opened(table).drop_index("bitmap_index_x")
    opened(table).upsert(rows([1], 9))
    assert opened(table).validate_metadata().ok


def test_of_two_indexes_of_one_name_the_second_is_refused(table) -> None:
    with pytest.raises(Invalid, match="secondary_index_value is there already"):
        opened(table).create_index("secondary_index", ["city"], name="value")
    (index,) = [index for index in opened(table).indexes() if index.kind == "secondary_index"]
    assert index.columns == ("value",)
    upper = {"expr": "upper", "hoodie.mainstem.index.unsafe.for.java": "true"}
    opened(table).create_index("expr_index", ["city"], name="value", options=upper)
    with pytest.raises(Invalid, match="expr_index_value and secondary_index_value: say which"):
        opened(table).drop_index("value")
    opened(table).drop_index("expr_index_value")
    check_reads(table)
