"""Goal: version 8 tables of one key and several partition columns are made, written and read as Java does it,
and no wrong option doubles a row (HUDI-7001: keys are ``field:value`` or ``value``, by release).

Method: tables of both encodings live through writes, deletes, bulk inserts, compactions and queries, in which
each key must be there once; Java's own table, put to version 8, is written on; what would mix the encodings
is refused: other options, other writers, keys of both kinds.
"""

from __future__ import annotations

import json
import warnings
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem import Invalid, Unsupported
from mainstem.api.given_options import sorted_out
from mainstem.api.job_table import open_or_create
from mainstem.layout.key_generator import KeyGenerator
from mainstem.storage.backends import location_of

GOLDEN = Path(__file__).parents[1] / "golden"
SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("hour", pa.int32()), ("ts", pa.int64())])
FAST = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"}
LET_THROUGH = {"hoodie.write.complex.keygen.validation.enable": "false"}
NEW = "hoodie.write.complex.keygen.new.encoding"
ENCODING = "hoodie.table.complex.keygen.encoding"
OURS = (ENCODING, NEW, *LET_THROUGH)


def rows(*values: tuple[str, str, int, int]) -> pa.Table:
    return pa.table([list(column) for column in zip(*values, strict=True)], schema=SCHEMA)


def create(path: Path, **properties: str) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by=["day", "hour"], buckets=3,
        table_version=8, properties={**FAST, **properties},
    )  # fmt: skip


def found(table: mainstem.Table) -> list[tuple[str, str, int]]:
    columns = table.scan().to_arrow().select(["_hoodie_record_key", "_hoodie_partition_path", "ts"])
    return sorted(tuple(row.values()) for row in columns.to_pylist())


def without(path: Path, *keys: str, made_by_others: bool = True, **changed: str) -> Path:
    """``hoodie.properties`` without these keys, as another engine leaves them."""
    file = path / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if line.split("=")[0] not in (*keys, *changed)]
    file.write_text("\n".join([*lines, *(f"{k}={v}" for k, v in changed.items())]) + "\n")
    note = path / ".hoodie" / ".mainstem" / "fence" / "made-here"
    if made_by_others and note.exists():
        note.unlink()
    return path


@pytest.mark.supports(
    "Keys and partitions", "one key and several partition columns at version 8, both key encodings"
)
@pytest.mark.parametrize(("new", "shape"), [(None, "id:{}"), ("false", "id:{}"), ("true", "{}")])
def test_a_new_table_is_written_and_read_in_either_encoding(
    new: str | None, shape: str, tmp_path: Path
) -> None:
    table = create(tmp_path / "t", **LET_THROUGH, **({NEW: new} if new else {}))
    table.bulk_insert(rows(*((f"k{i}", "mon", i % 2, 1) for i in range(9))))
    table.upsert(rows(("k0", "mon", 0, 5), ("k0", "tue", 0, 5), ("id:x", "mon", 0, 1)))
    table.compact()
    table = mainstem.open_table(table.path, FAST)  # the table says how: no option is needed any more
    table.upsert(rows(("k0", "mon", 0, 6), ("k1", "mon", 1, 6), ("id:x", "mon", 0, 2)))
    table.delete(pa.table({"id": ["k2"], "day": ["mon"], "hour": pa.array([0], pa.int32())}))
    expected = [(shape.format(f"k{i}"), f"mon/{i % 2}", 6 if i < 2 else 1) for i in range(9) if i != 2]
    expected += [(shape.format("k0"), "tue/0", 5), (shape.format("id:x"), "mon/0", 2)]
    assert found(table) == sorted(expected)
    by_key = table.scan(filter=pc.field("id") == "k0", columns=["ts"]).to_arrow()["ts"].to_pylist()
    assert sorted(by_key) == [5, 6]
    assert table.properties[ENCODING] == ("VALUE_ONLY" if new == "true" else "FIELD_PREFIXED")
    assert table.properties[NEW] == (new or "false")


def test_without_the_option_such_a_table_is_neither_made_nor_written_as_in_java(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"HUDI-7001.*validation.enable=false.*new.encoding"):
        create(tmp_path / "t")
    path = without(Path(create(tmp_path / "t", **LET_THROUGH).path), *OURS)
    for options in ({}, {"hoodie.write.complex.keygen.validation.enable": "true"}, {NEW: "true"}):
        with pytest.raises(Unsupported, match=r"HUDI-7001.*validation.enable=false.*new.encoding"):
            mainstem.open_table(path, options).upsert(rows(("a", "x", 1, 1)))
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("new", ["false", "true"])
def test_an_option_that_would_double_the_keys_of_a_table_is_refused(new: str, tmp_path: Path) -> None:
    table = create(tmp_path / "t", **LET_THROUGH, **{NEW: new})
    table.upsert(rows(("a", "x", 1, 1), ("b", "y", 2, 1)))
    other = {"true": "false", "false": "true"}[new]
    with pytest.raises(Invalid, match="contradicts the table"):
        mainstem.open_table(table.path, {NEW: other}).begin()
    path = without(Path(table.path), *OURS)
    options = {**FAST, **LET_THROUGH}
    for _ in (False, True):
        with pytest.raises(Invalid, match=rf"every row would be doubled.*set {NEW}={new}"):
            mainstem.open_table(path, {**options, NEW: other}).begin()
        mainstem.open_table(path, {**options, NEW: new}).upsert(rows(("a", "x", 1, 2)))
        mainstem.open_table(path, {**options, NEW: new}).compact()
    assert [ts for _, _, ts in found(mainstem.open_table(path))] == [2, 1]


def test_writers_of_an_empty_table_must_agree(tmp_path: Path) -> None:
    path = without(Path(create(tmp_path / "t", **LET_THROUGH).path), *OURS)
    first = mainstem.open_table(path, {**FAST, **LET_THROUGH, NEW: "true"}).begin()
    with pytest.raises(Invalid, match="other writers of the table write 'value'"):
        mainstem.open_table(path, {**FAST, **LET_THROUGH}).begin()
    first.write(rows(("a", "x", 1, 1)))
    first.commit()
    assert found(mainstem.open_table(path)) == [("a", "x/1", 1)]


def test_a_table_with_keys_of_both_kinds_is_refused(tmp_path: Path) -> None:
    path = without(Path(create(tmp_path / "t", **LET_THROUGH).path), *OURS)
    for new in ("true", "false"):
        (path / ".hoodie" / ".mainstem" / "key-encoding").unlink(missing_ok=True)
        options = {**FAST, **LET_THROUGH, NEW: new}
        if new == "false":  # as Hudi 0.14.1 to 1.0.2 did to tables of older releases
            without(path, **{ENCODING: "FIELD_PREFIXED"})
            found_here = mainstem.open_table(path, options)
            found_here.writer_context().keys_agreed = True
        else:
            found_here = mainstem.open_table(path, options)
        found_here.upsert(rows(("a", "x", 1, 1)))
    assert len(found(mainstem.open_table(path))) == 2  # doubled already
    with pytest.raises(Unsupported, match=r"'id:a' in .*'a' in .*HUDI-7001"):
        mainstem.open_table(path, {**FAST, **LET_THROUGH}).begin()


def test_javas_table_is_written_on_at_version_8_with_its_encoding_only(tmp_path: Path) -> None:
    name = "keys_complex_single_key"
    java = json.loads((GOLDEN / f"{name}.json").read_text())
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path / name)
    path = next((tmp_path / name).rglob(".hoodie")).parent
    without(path, "hoodie.table.format", **{"hoodie.table.version": "8", "hoodie.table.initial.version": "8"})
    buckets = {"hoodie.bucket.index.num.buckets": java["writer_options"]["hoodie.bucket.index.num.buckets"]}
    options = {**FAST, **LET_THROUGH, **buckets}
    table = mainstem.open_table(path, options)
    before = table.scan().to_arrow()
    again = before.select(table.schema.names)
    raised = pa.array([ts + 1_000_000 for ts in again["ts"].to_pylist()], pa.int64())
    table.upsert(again.set_column(again.schema.get_field_index("ts"), "ts", raised))
    after = mainstem.open_table(path).scan().to_arrow()
    places = ["_hoodie_partition_path", "_hoodie_record_key"]
    order = [(name, "ascending") for name in places]
    assert after.select(places).sort_by(order) == before.select(places).sort_by(order)
    assert min(after["ts"].to_pylist()) >= 1_000_000
    with pytest.raises(Invalid, match="every row would be doubled"):
        mainstem.open_table(path, {**options, NEW: "true"}).begin()


def test_a_job_with_hudis_options_makes_and_writes_such_a_table(tmp_path: Path) -> None:
    given = {
        "hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day,hour", "hoodie.write.table.version": "8",
        "hoodie.datasource.write.precombine.field": "ts", **FAST,
    }  # fmt: skip
    for name, more in (("refused", {}), ("t", LET_THROUGH), ("bare", {**LET_THROUGH, NEW: "true"})):
        table, names, passed = sorted_out({**given, **more})
        job = SimpleNamespace(
            location=location_of(tmp_path / name), operation="upsert", table=table, given=names, passed=passed
        )
        if not more:
            with pytest.raises(Unsupported, match=r"validation\.enable=false"):
                open_or_create(job, SCHEMA)
            continue
        for ts in (1, 2):
            open_or_create(job, SCHEMA).upsert(rows(("a", "x", 1, ts)))
        assert found(mainstem.open_table(job.location)) == [("a" if NEW in more else "id:a", "x/1", 2)]


def test_a_table_of_version_9_follows_what_newer_hudi_stored_in_it_and_not_the_option(tmp_path: Path) -> None:
    def create_9(name: str, **properties: str) -> mainstem.Table:
        return mainstem.create_table(
            tmp_path / name, SCHEMA, record_key="id", ordering="ts", partition_by=["day", "hour"], buckets=1,
            properties={**FAST, **properties},
        )  # fmt: skip

    with pytest.raises(Unsupported, match=r"VALUE_ONLY.*version 8"):
        create_9("refused", **{ENCODING: "VALUE_ONLY"})
    table = create_9("t")
    with pytest.warns(UserWarning, match=f"{NEW} has no effect"):
        mainstem.open_table(table.path, {**FAST, NEW: "true"}).upsert(rows(("a", "x", 1, 1)))
    assert found(table) == [("id:a", "x/1", 1)]
    path = without(Path(table.path), **{ENCODING: "VALUE_ONLY"})
    with pytest.raises(Invalid, match=rf"every row would be doubled.*set {ENCODING}=FIELD_PREFIXED"):
        mainstem.open_table(path).begin()
    upgraded = without(Path(create_9("upgraded").path), **{ENCODING: "VALUE_ONLY"})  # by Hudi, from version 8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mainstem.open_table(upgraded, FAST).upsert(rows(("a", "x", 1, 1)))
    assert found(mainstem.open_table(upgraded)) == [("a", "x/1", 1)]
    assert KeyGenerator.of(mainstem.open_table(upgraded).config).plain_key == "id"
    with pytest.raises(Invalid, match="expected FIELD_PREFIXED or VALUE_ONLY"):
        mainstem.open_table(without(upgraded, **{ENCODING: "BOTH"})).begin()
