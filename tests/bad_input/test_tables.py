"""Goal: a table that mainstem cannot read or write right is refused by the name of the feature.

Method: the properties of a good table are changed as another engine would; reading, writing or both
must be refused with key, value found and what to do, and nothing is written. Tables of Java's where
the real thing is at hand.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from bad_input.common import edit_properties, golden, is_clear, picture, rows
from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported

UNREADABLE = {
    "version_6": (
        {"hoodie__table__version": "6"},
        Unsupported,
        ("version 6", "8, 9 and 10", "upgrade"),
    ),
    "version_11": (
        {"hoodie__table__version": "11"},
        Unsupported,
        ("version 11", "8, 9 and 10", "newer"),
    ),
    "storage_layout": (
        {"hoodie__table__version": "10", "hoodie__table__storage__layout": "b_tree"},
        Unsupported,
        ("table.storage.layout", "'b_tree'"),
    ),
    "version_missing": ({"hoodie__table__version": None}, CorruptTable, ("hoodie.table.version",)),
    "version_text": ({"hoodie__table__version": "nine"}, CorruptTable, ("'nine'", "number")),
    "layout_1": (
        {"hoodie__timeline__layout__version": "1"},
        Unsupported,
        ("layout 1", "expected 2"),
    ),
    "layout_3": (
        {"hoodie__timeline__layout__version": "3"},
        Unsupported,
        ("layout 3", "expected 2"),
    ),
    "orc": (
        {"hoodie__table__base__file__format": "ORC"},
        Unsupported,
        ("base.file.format", "'ORC'"),
    ),
    "log_format": (
        {"hoodie__table__log__file__format": "X"},
        Unsupported,
        ("log.file.format", "'X'"),
    ),
    "table_format": (
        {"hoodie__table__format": "iceberg"},
        Unsupported,
        ("table.format", "'iceberg'"),
    ),
    "table_type": (
        {"hoodie__table__type": "READ_MAYBE"},
        Unsupported,
        ("table.type", "READ_MAYBE"),
    ),
    "timeline_path": (
        {"hoodie__timeline__path": "../x"},
        Unsupported,
        ("timeline.path", r"'\.\./x'"),
    ),
    "bootstrap": ({"hoodie__bootstrap__base__path": "/x"}, Unsupported, ("bootstrap.base.path",)),
    "checksum": ({"hoodie__table__checksum": "123"}, CorruptTable, ("123", "expected", "restore")),
    "no_name": ({"hoodie__table__name": None}, Invalid, ("names no table", "create_table")),
}


@pytest.mark.supports("Tables and layouts", "other table versions refused, with the way to upgrade")
@pytest.mark.parametrize("name", UNREADABLE)
def test_a_table_that_cannot_be_read_right_is_refused_by_name(name, table, path: Path) -> None:
    changes, kind, needles = UNREADABLE[name]
    edit_properties(path, **changes)
    with pytest.raises(kind) as caught:
        mainstem.open_table(path)
    is_clear(str(caught.value), (*needles, str(path)))


UNWRITABLE = {
    "version_8_with_a_payload_of_its_own": (
        {"hoodie__table__version": "8",
         "hoodie__compaction__payload__class": "org.apache.hudi.common.model.PartialUpdateAvroPayload"},
        Unsupported,
        (r"compaction\.payload\.class", "PartialUpdateAvroPayload", "EVENT_TIME_ORDERING"),
    ),
    "version_8_with_two_ordering_fields": (
        {"hoodie__table__version": "8", "hoodie__table__ordering__fields": "ts,n"},
        Unsupported,
        ("version 8", "2 ordering fields", "upgrade"),
    ),
    "version_8_with_two_opinions_of_the_order": (
        {"hoodie__table__version": "8", "hoodie__table__precombine__field": "n"},
        Invalid,
        (r"ordering\.fields=ts", r"precombine\.field=n", "differ"),
    ),
    "version_8_with_keys_that_releases_write_differently": (
        {"hoodie__table__version": "8", "hoodie__table__keygenerator__type": "COMPLEX"},
        Unsupported,
        ("version 8", "COMPLEX", "HUDI-7001"),
    ),
    "copy_on_write": ({"hoodie__table__type": "COPY_ON_WRITE"}, Unsupported, ("COPY_ON_WRITE",)),
    "metadata_table": (
        {"hoodie__table__metadata__partitions": "files,vector_index"},
        Unsupported,
        ("files,vector_index", r"hoodie\.metadata\.enable=false"),
    ),
    "metadata_table_in_the_making": (
        {"hoodie__table__metadata__partitions__inflight": "vector_index"},
        Unsupported,
        ("vector_index", r"hoodie\.metadata\.enable=false"),
    ),
    "bloom_index": (
        {"hoodie__index__type": "BLOOM"},
        Invalid,
        ("index.type", "BLOOM", "BUCKET"),
    ),
    "unknown_index": (
        {"hoodie__index__type": "HBASE"},
        Invalid,
        ("index.type", "HBASE", "GLOBAL_SIMPLE"),
    ),
    "consistent_hashing": (
        {"hoodie__index__bucket__engine": "CONSISTENT_HASHING"},
        Invalid,
        ("bucket.engine", "CONSISTENT_HASHING", "SIMPLE"),
    ),
    "hash_field": (
        {"hoodie__bucket__index__hash__field": "amount"},
        Invalid,
        ("hash.field", "'amount'", "record key"),
    ),
    "custom_merger": (
        {"hoodie__record__merge__mode": "CUSTOM"},
        Unsupported,
        ("merge.mode", "CUSTOM"),
    ),
    "partial_update": (
        {"hoodie__table__partial__update__mode": "KEEP_VALUES"},
        Unsupported,
        ("partial.update.mode", "KEEP_VALUES", "IGNORE_DEFAULTS"),
    ),
    "key_generator": (
        {"hoodie__table__keygenerator__type": "USER_PROVIDED"},
        Unsupported,
        ("keygenerator.type", "USER_PROVIDED", "SIMPLE"),
    ),
    "key_generator_without_its_options": (
        {"hoodie__table__keygenerator__type": "TIMESTAMP"},
        Invalid,
        (r"timebased\.timestamp\.type", "EPOCHMILLISECONDS"),
    ),
    "no_meta_fields": (
        {"hoodie__populate__meta__fields": "false"},
        Unsupported,
        ("populate.meta.fields", "'false'", "'true'"),
    ),
    "dropped_partition_columns": (
        {"hoodie__datasource__write__drop__partition__columns": "true"},
        Unsupported,
        ("drop.partition.columns", "'true'"),
    ),
    "change_data_capture": (
        {"hoodie__table__cdc__enabled": "true"},
        Unsupported,
        ("cdc.enabled=true", "of version 9", "or upgrade it"),
    ),
    "no_record_key": (
        {"hoodie__table__recordkey__fields": None},
        Invalid,
        ("recordkey.fields", "BUCKET", "leave hoodie.index.type out"),
    ),
    "no_ordering_field": (
        {"hoodie__table__ordering__fields": None},
        Invalid,
        ("EVENT_TIME_ORDERING", "ordering.fields"),
    ),
    "buckets": (
        {"hoodie__bucket__index__num__buckets": "many"},
        Invalid,
        ("'many'", "1 to 100000"),
    ),
    "local_zone": (
        {"hoodie__table__timeline__timezone": "LOCAL"},
        Invalid,
        ("LOCAL", r"hoodie\.mainstem\.timeline\.zone", "Europe/Paris"),
    ),
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_a_table_that_cannot_be_written_safely_is_refused_by_name(name, table, path: Path) -> None:
    changes, kind, needles = UNWRITABLE[name]
    edit_properties(path, **changes)
    with pytest.raises(kind) as caught:
        mainstem.open_table(path).upsert(rows("d"))
    is_clear(str(caught.value), (*needles, str(path)))
    edit_properties(path, **dict.fromkeys(changes))
    timeline = {p.name for p in (path / ".hoodie" / "timeline").iterdir() if p.is_file()}
    assert len(timeline) == 3, timeline  # the first upsert's three files


def test_no_table_at_all_is_said_in_words(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(Invalid) as caught:
            mainstem.open_table(where)
        is_clear(str(caught.value), ("no Hudi table at", str(where), "create_table"))


@pytest.mark.disk("what shows a server's files in a folder has no file in a table's place")
def test_a_file_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(MainstemError) as caught:
        mainstem.open_table(tmp_path / "file")
    is_clear(str(caught.value), (str(tmp_path / "file"),))


def test_a_place_without_a_storage_is_refused_by_name() -> None:
    with pytest.raises(Unsupported) as caught:
        mainstem.open_table("viewfs://name/table")
    is_clear(str(caught.value), ("viewfs://name/table", "no storage", "s3a"))


def test_unknown_properties_are_kept(table, path: Path) -> None:
    edit_properties(path, hoodie__future__feature="blue", other__key="x")
    reopened = mainstem.open_table(path)
    assert reopened.properties["hoodie.future.feature"] == "blue"
    reopened.upsert(rows("d"))
    text = (path / ".hoodie" / "hoodie.properties").read_text()
    assert "hoodie.future.feature=blue" in text and "other.key=x" in text


CHANGES = {
    "version": ({"hoodie__table__version": "11"}, Unsupported, ("version 11",)),
    "older_version": (
        {"hoodie__table__version": "8"},
        Invalid,
        (r"version: '9' -> '8'", "nothing was published"),
    ),
    "metadata_table": (
        {"hoodie__table__metadata__partitions": "files,vector_index"},
        Unsupported,
        (r"hoodie\.metadata\.enable=false", "vector_index"),
    ),
    "metadata_table_that_is_not_there": (
        {"hoodie__table__metadata__partitions": "files"},
        CorruptTable,
        ("names a metadata table, but there is none",),
    ),
    "bucket_count": (
        {"hoodie__bucket__index__num__buckets": "4"},
        Invalid,
        (r"num\.buckets: '2' -> '4'", "changed while", "open the table again"),
    ),
    "merge_mode": (
        {"hoodie__record__merge__mode": "COMMIT_TIME_ORDERING"},
        Invalid,
        (r"merge\.mode: 'EVENT_TIME_ORDERING' -> 'COMMIT_TIME_ORDERING'", "nothing was published"),
    ),
    "delete_marker": (
        {"hoodie__record__merge__property__hoodie__payload__delete__marker": "D"},
        Invalid,
        (r"delete\.marker: None -> 'D'", "nothing was published"),
    ),
    "record_key": (
        {"hoodie__table__recordkey__fields": "id,city"},
        Invalid,
        (r"recordkey\.fields: 'id' -> 'id,city'",),
    ),
    "gone": ({"hoodie__table__name": None}, Invalid, ("names no table",)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_table_that_changed_while_a_transaction_was_open_gets_nothing(name, table, path) -> None:
    changes, kind, needles = CHANGES[name]
    before = picture(path)
    file = path / ".hoodie" / "hoodie.properties"
    original = file.read_bytes()
    with pytest.raises(kind) as caught, table.begin() as txn:
        txn.write(rows("d"))
        edit_properties(path, **changes)
        txn.commit()
    is_clear(str(caught.value), (*needles, str(path)))
    file.write_bytes(original)
    mainstem.open_table(path).rollback_failed_writes()
    after = picture(path)
    assert after.rows == before.rows
    assert not [i for i in mainstem.open_table(path).timeline() if not i.is_completed]
    left = {f for f in after.files - before.files if ".hoodie_partition_metadata" not in f}
    assert not left


def test_a_harmless_change_while_a_transaction_is_open_does_not_matter(table, path) -> None:
    with table.begin() as txn:
        txn.write(rows("d"))
        edit_properties(path, some__note="hello")
        assert txn.commit().status == "committed"


def test_a_replaced_table_that_java_wrote_is_refused(tmp_path: Path) -> None:
    path = golden("clustering_mor.scheduled", tmp_path)
    with pytest.raises((Invalid, Unsupported)) as caught:
        mainstem.open_table(
            path, {"hoodie.bucket.index.num.buckets": 4, "hoodie.mainstem.timeline.zone": "UTC"}
        ).upsert(rows("d"))
    is_clear(str(caught.value), (str(path),))


@pytest.mark.parametrize("place", ["a/t/oslo", "a/t/.hoodie/metadata", "a/t/x/y", "a", ""])
@pytest.mark.parametrize("kind", ["disk", "store"])
def test_no_table_is_made_inside_another_one_or_around_it(place: str, kind: str, tmp_path: Path) -> None:
    base = {"disk": str(tmp_path / "w"), "store": f"memory://nested-{abs(hash(place))}/w"}[kind]
    columns = pa.schema([("id", pa.string()), ("city", pa.string())])
    mainstem.create_table(f"{base}/a/t", columns, record_key="id", partition_by="city")
    with pytest.raises(Invalid, match="take the other's files for a partition") as refused:
        mainstem.create_table(f"{base}/{place}", columns, record_key="id", partition_by="city")
    named = "the folder" if len(place) < 2 else f"it is inside the table {base}/a/t,"
    assert named in str(refused.value)
    mainstem.create_table(f"{base}/a/t2", columns, record_key="id", partition_by="city")
