"""Goal: where every partition has keys of its own, record and secondary indexes name the partitions of a key,
and never too few.

Method: small tables whose keys are in several partitions, with the same and with different values, asked
before and after updates; the full read is the truth.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.indexing.index_build import create
from mainstem.indexing.index_spec import IndexSpec
from mainstem.metadata.index_definitions import PARTITIONED, Definition
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.readers.planning.explain import Explanation
from mainstem.storage import paths

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("driver", pa.string())])
CITIES = ("bari", "oslo", "rome")
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}


def rows(ids: list[str], city: str, driver: str, ts: int = 1) -> pa.Table:
    columns = {"id": ids, "city": [city] * len(ids), "ts": [ts] * len(ids), "driver": [driver] * len(ids)}
    return pa.table(columns, schema=SCHEMA)


def made(path: Path) -> mainstem.Table:
    """Keys a0 to a9 in bari, b0 to b9 in oslo, c0 to c9 in rome, each city with a driver; and the key "twice"
    with one driver in two cities."""
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2, properties=FAST
    )
    for city, letter in zip(CITIES, "abc", strict=True):
        table.upsert(rows([f"{letter}{n}" for n in range(10)], city, f"of {city}"))
    for city in ("bari", "oslo"):
        table.upsert(rows(["twice"], city, "tove"))
    table.create_index("record_index")
    table.create_index("secondary_index", ["driver"])
    return table


def asked(table: mainstem.Table, wanted: pc.Expression) -> tuple[list[tuple[str, str]], Explanation]:
    """Keys and cities of the rows, which are those of the full read; and what was read for them."""
    plan = table.scan(columns=["id", "city"], filter=wanted)
    found = sorted(map(tuple, (row.values() for row in plan.to_arrow().to_pylist())))
    plain = mainstem.open_table(table.path, {"hoodie.enable.data.skipping": "false"})
    full = plain.scan(columns=["id", "city"], filter=wanted).to_arrow().to_pylist()
    assert found == sorted(tuple(row.values()) for row in full)
    return found, plan.explain()


@pytest.mark.supports("Indexes", "record index, partitioned: names the partitions of a key beside its bucket")
def test_the_record_index_names_the_partitions_of_a_key_whose_bucket_is_known(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    found, read = asked(table, pc.field("id") == "b7")
    assert found == [("b7", "oslo")]
    assert (read.file_slices_read, read.file_slices) == (1, 6)
    assert [cut.index for cut in read.cuts] == ["bucket hash", "record index"]
    found, read = asked(table, pc.field("id") == "twice")
    assert found == [("twice", "bari"), ("twice", "oslo")]
    assert read.file_slices_read == 2
    found, read = asked(table, pc.field("id") == "nobody")
    assert (found, read.file_slices_read) == ([], 0)


def test_a_partition_that_came_after_the_build_is_found(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(["twice", "d1"], "turin", "tove"))
    found, read = asked(table, pc.field("id") == "twice")
    assert [city for _, city in found] == ["bari", "oslo", "turin"]
    assert read.file_slices_read == 3
    found, _ = asked(table, pc.field("driver") == "tove")
    assert len(found) == 4


@pytest.mark.supports("Indexes", "secondary index: of a partitioned table, until another engine writes it")
def test_a_secondary_index_finds_a_value_that_one_key_has_in_two_partitions(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    found, read = asked(table, pc.field("driver") == "tove")
    assert found == [("twice", "bari"), ("twice", "oslo")]
    assert read.file_slices_read == 2
    table.upsert(rows(["twice"], "bari", "anna", ts=2))
    assert asked(table, pc.field("driver") == "tove")[0] == [("twice", "oslo")]
    assert asked(table, pc.field("driver") == "anna")[0] == [("twice", "bari")]
    table.compact()
    assert asked(table, pc.field("driver") == "tove")[0] == [("twice", "oslo")]


def test_it_is_not_asked_once_another_engine_has_written_and_says_so(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(["e1"], "bari", "eve"))
    as_by_another_engine(table)
    read = asked(mainstem.open_table(table.path), pc.field("driver") == "tove")[1]
    assert read.file_slices_read == 6
    assert any("written by another engine" in note for note in read.notes)


def test_nor_where_another_engine_wrote_while_it_was_being_built(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.drop_index("secondary_index_driver")
    told: list[str] = []

    def beside(what: str, done: int, total: int) -> None:
        if not told:
            table.upsert(rows(["e1"], "bari", "eve"))
            as_by_another_engine(table)
        told.append(what)

    mainstem.open_table(table.path).create_index("secondary_index", ["driver"], progress=beside)
    read = asked(mainstem.open_table(table.path), pc.field("driver") == "tove")[1]
    assert told and read.file_slices_read == 6
    assert any("written by another engine" in note for note in read.notes)


def as_by_another_engine(table: mainstem.Table) -> None:
    """Make the newest write look so."""
    newest = max(i.file_name for i in table.timeline() if i.action == "deltacommit")
    path = Path(table.path) / paths.timeline_file(newest)
    path.write_bytes(path.read_bytes().replace(b"mainstem.writer", b"strangers.write"))


def test_a_global_record_index_of_java_is_kept_up_and_never_asked(tmp_path: Path) -> None:
    """The commit that brings a key to a second partition replaces its entry; nobody notices until the index
    is compared with the data, so no look-up before that could be right."""
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties=FAST,
    )  # fmt: skip
    table.upsert(rows(["a0", "a1"], "bari", "anna"))
    mainstem.open_table(table.path).create_index("files")
    definition = Definition(RECORD_INDEX, RECORD_INDEX, "", (), {PARTITIONED: "false"}, "V1")
    create(table.index_context(), IndexSpec(RECORD_INDEX, 2, definition=definition))
    mainstem.open_table(table.path).upsert(rows(["new"], "bari", "anna"))
    mainstem.open_table(table.path).upsert(rows(["new"], "oslo", "berta"))
    found, read = asked(mainstem.open_table(table.path), pc.field("id") == "new")
    assert len(found) == 2 and "record index" not in [cut.index for cut in read.cuts]
    (report,) = (p for p in table.validate_metadata().partitions if p.partition == RECORD_INDEX)
    assert report.counts["ambiguous"] == 1 and not report.counts["missing"] and not report.counts["different"]
    mainstem.open_table(table.path).reindex(RECORD_INDEX)  # one for each partition
    assert mainstem.open_table(table.path).validate_metadata().ok


def test_values_that_readers_take_from_the_path_are_not_looked_up_as_files_hold_them(tmp_path: Path) -> None:
    slashes = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2,
        properties=FAST | slashes,
    )  # fmt: skip
    table.upsert(rows(["a", "b"], "2026-01-02", "anna"))
    table.create_index("secondary_index", ["city"])
    table.upsert(rows(["c", "d"], "2026-01-03", "anna"))
    for day, keys in (("2026/01/02", ["a", "b"]), ("2026/01/03", ["c", "d"])):
        found, _ = asked(table, pc.field("city") == day)
        assert [key for key, _ in found] == keys
    assert table.validate_metadata().ok
    table.compact()
    mainstem.open_table(table.path).reindex("secondary_index_city")
    assert mainstem.open_table(table.path).validate_metadata().ok


def test_keys_of_partitions_with_dots_and_dashes_in_their_names_are_found(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    for step, city in enumerate(["v1.2", "a.log.b", ".x", "a-0000-0", "x_1"]):
        table.upsert(rows([f"e{step}"], city, "eve"))
        assert asked(table, pc.field("id") == f"e{step}")[0] == [(f"e{step}", city)]
    table.reindex_all()
    table.upsert(rows(["f1"], "v1.2", "eve"))
    assert asked(table, pc.field("id") == "f1")[0] == [("f1", "v1.2")]
    assert len(asked(table, pc.field("driver") == "eve")[0]) == 6
    assert table.validate_metadata().ok
