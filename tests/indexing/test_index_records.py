"""Goal: index actions on the timeline are read as Java wrote them and written as Java writes them; what
storage claims about them is not believed.

Method: every plan and every completed index action of the golden tables is decoded and encoded again, and
compared field by field and schema by schema; bent records are refused.
"""

from __future__ import annotations

import io
import json
import zipfile
from functools import cache

import fastavro
import pytest

from mainstem.errors import CorruptTable
from mainstem.formats.avro_container import OUR_MARK, decode_container, encode_container
from mainstem.timeline.active import TimelineReader
from mainstem.timeline.commit_metadata import schema_text
from mainstem.timeline.index_records import (
    IndexBuild,
    decode_index_builds,
    encode_index_metadata,
    encode_index_plan,
    is_partition_name,
    load_index_plan,
    pending_index_actions,
)
from tests.formats.golden_logs import GOLDEN
from tests.golden_tables import tables
from tests.storage.steps import storage_at

TABLES = ("async_index", "async_index.inflight", "async_index_nonpart", "mdt_all", "mdt_all_cow")
UPTO = "20261120093430238"


@cache
def java_files() -> dict[str, bytes]:
    found = {}
    for table in TABLES:
        with zipfile.ZipFile(GOLDEN / f"{table}.zip") as archive:
            for info in archive.infolist():
                name = info.filename.rpartition("/")[2]
                if ".indexing" in name and not name.endswith(".crc") and info.file_size:
                    found[f"{table}/{name}"] = archive.read(info)
    return found


def test_plans_and_metadata_come_out_as_java_wrote_them():
    kinds = {True: 0, False: 0}
    for name, data in java_files().items():
        planned = name.endswith(".requested")
        builds = decode_index_builds(data, path=name)
        ours = (encode_index_plan if planned else encode_index_metadata)(builds)
        theirs, their_header = decode_container(data, path=name)
        record, header = decode_container(ours, path=name)
        assert record == theirs and list(record) == list(theirs)
        assert header["avro.schema"] == their_header["avro.schema"]
        # Byte for byte: the record between the sync markers, which Java draws and we compute.
        assert ours[-16 - _datum(ours, record) : -16] == data[-16 - _datum(data, record) : -16]
        kinds[planned] += 1
    assert kinds[True] >= 5 and kinds[False] >= 4


def _datum(data: bytes, record: dict) -> int:
    out = io.BytesIO()
    schema = "HoodieIndexCommitMetadata" if "operationType" in record else "HoodieIndexPlan"
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema_text(schema))), record)
    return len(out.getvalue())


def test_what_a_plan_of_two_partitions_says():
    name = "async_index.inflight/20261120093446897.indexing.requested"
    assert decode_index_builds(java_files()[name], path=name) == [
        IndexBuild("column_stats", UPTO), IndexBuild("partition_stats", UPTO),
    ]  # fmt: skip


def test_the_planner_may_add_to_a_plan_and_it_shows_whose_it_is():
    build = IndexBuild("column_stats", UPTO, {"columns": "a,b"})
    for data in (encode_index_plan([build]), encode_index_metadata([build])):
        assert decode_index_builds(data, path="") == [build]
        assert OUR_MARK in decode_container(data, path="")[1]


def test_pending_actions_and_their_plans_are_found_on_the_timeline(tmp_path):
    at = "20261120093446897"
    for copy, is_pending in (("requested", True), ("inflight", True), ("", False)):
        base = tables.unpack(f"async_index.{copy}".rstrip("."), tmp_path / (copy or "done"))
        storage = storage_at(base)
        assert pending_index_actions(TimelineReader(storage).load()) == ([at] if is_pending else [])
        plan = load_index_plan(storage, at)
        assert plan is not None and [b.partition for b in plan] == ["column_stats", "partition_stats"]
        assert load_index_plan(storage, "20260101000000000") is None


def test_an_inflight_file_whose_plan_is_gone_is_no_action(tmp_path):
    base = tables.unpack("async_index.inflight", tmp_path)
    (base / ".hoodie/timeline/20261120093446897.indexing.requested").unlink()
    timeline = TimelineReader(storage_at(base)).load()
    assert pending_index_actions(timeline) == []
    assert [i.requested for i in timeline.marks_without_plan] == ["20261120093446897"]


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a\\b", "a,b", "a b", "a\n", "x" * 300])
def test_a_plan_of_what_is_no_partition_name_is_refused(name):
    assert not is_partition_name(name)
    record = {"version": 1, "indexPartitionInfos": [
        {"version": 1, "metadataPartitionPath": name, "indexUptoInstant": UPTO, "extraMetadata": {}}
    ]}  # fmt: skip
    with pytest.raises(CorruptTable, match="which is no name"):
        decode_index_builds(encode_container(schema_text("HoodieIndexPlan"), record), path="p")


def test_a_plan_up_to_no_time_is_refused():
    record = {"version": 1, "indexPartitionInfos": [
        {"version": 1, "metadataPartitionPath": "files", "indexUptoInstant": "../1", "extraMetadata": None}
    ]}  # fmt: skip
    with pytest.raises(CorruptTable, match="expected an instant time"):
        decode_index_builds(encode_container(schema_text("HoodieIndexPlan"), record), path="p")


def test_an_empty_plan_builds_nothing_and_half_a_plan_is_refused():
    assert decode_index_builds(b"", path="p") == []
    data = encode_index_plan([IndexBuild("column_stats", UPTO)])
    with pytest.raises(CorruptTable):
        decode_index_builds(data[:-20], path="p")
