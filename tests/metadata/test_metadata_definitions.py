"""Goal: index.json is read whole, written whole, and refused where it is damaged or dangerous.

Method: Java's files read and written again; each rule of validity broken; files that name a class.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.layout.properties import TableConfig, load_config
from mainstem.metadata import index_definitions as defs
from mainstem.options.metadata import DEFINITIONS_PATH
from tests.golden_tables.tables import unpack
from tests.metadata.metadata_tables import WITH_METADATA
from tests.storage.steps import Proxy, storage_at


def parsed(content: object) -> defs.Definitions:
    return defs.parse_definitions(json.dumps(content).encode(), path="index.json")


def one(**fields: object) -> dict:
    return {"indexDefinitions": {"column_stats": {"indexType": "column_stats", "version": "V2", **fields}}}


@pytest.mark.parametrize("name", WITH_METADATA)
def test_definitions_of_javas_tables_come_back_as_they_were(name: str, unpacked: Path) -> None:
    path = unpack(name, unpacked)
    storage, file = storage_at(path), path / ".hoodie/.index_defs/index.json"
    config = load_config(storage)
    found = defs.read_definitions(storage, config)
    if not file.exists():
        assert found == defs.Definitions()
        return
    before = json.loads(file.read_text())
    assert set(found.by_partition) == set(before["indexDefinitions"])
    defs.check(found, config.version)
    assert json.loads(defs.encode_definitions(found)) == before


def test_fields_that_are_not_known_are_kept() -> None:
    content = {**one(newField={"a": [1, None]}), "formatVersion": 3}
    found = parsed(content)
    assert found.get("column_stats").other == {"newField": {"a": [1, None]}}
    again = json.loads(defs.encode_definitions(found))
    assert again["formatVersion"] == 3
    assert again["indexDefinitions"]["column_stats"]["newField"] == {"a": [1, None]}


def test_versions_follow_the_definition_and_not_the_table() -> None:
    nothing = defs.Definitions()
    assert (nothing.stats_version("column_stats", 9), nothing.stats_version("column_stats", 8)) == (
        "V2",
        "V1",
    )
    first = parsed(one(version="V1"))
    assert first.stats_version("column_stats", 9) == first.stats_version("partition_stats", 9) == "V1"
    assert first.secondary_version("secondary_index_a") == "V1"
    entry = {"secondary_index_a": {"version": "V2", "sourceFields": ["a"]}}
    assert parsed({"indexDefinitions": entry}).secondary_version("secondary_index_a") == "V2"


def test_definitions_are_added_and_taken_away() -> None:
    made = defs.Definitions().with_definition(defs.Definition("record_index", "record_index", version="V1"))
    assert made.partitioned_record_index is None
    split = made.with_definition(
        defs.Definition("record_index", "record_index", options={"isPartitioned": "true"}, version="V1")
    )
    assert split.partitioned_record_index
    assert split.without(["record_index"]) == defs.Definitions()


@pytest.mark.parametrize("key", ["@class", "class", "className", "hoodie.index.class"])
def test_a_file_that_names_a_class_is_refused(key: str) -> None:
    for content in (one(**{key: "java.lang.Runtime"}), one(indexOptions={key: "a.B"}), {key: "x"}):
        with pytest.raises(Unsupported, match="never runs code"):
            parsed(content)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{", b'{"indexDefinitions": []}', b'{"indexDefinitions": {"a": 1}}', b"\xff\xfe",
        b'{"indexDefinitions": {"a": {"indexName": "b"}}}',
        b'{"indexDefinitions": {"a": {"sourceFields": "x"}}}',
        b'{"indexDefinitions": {"a": {"sourceFields": [1]}}}', b'{"indexDefinitions": {"a": {"version": 2}}}',
        b'{"indexDefinitions": {"a": {"indexOptions": {"k": 1}}}}', b"[" * 100_000,
        b'{"indexDefinitions": {"a": {}, "a": {}}}',
    ],
    ids=range(13),
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(CorruptTable, match=r"index\.json"):
        defs.parse_definitions(data, path="x/index.json")


@pytest.mark.parametrize(
    ("entry", "version"),
    [("column_stats", None), ("column_stats", "V3"), ("secondary_index_a", None)],
)
def test_what_would_stop_java_from_changing_indexes_is_named(entry: str, version: str | None) -> None:
    made = defs.Definitions().with_definition(defs.Definition(entry, "x", version=version))
    with pytest.raises(Invalid, match=entry):
        defs.check(made, 9)
    if version is None:
        defs.check(made, 8)


def test_a_secondary_index_of_a_version_8_table_has_version_1() -> None:
    made = defs.Definitions().with_definition(defs.Definition("secondary_index_a", "x", version="V2"))
    with pytest.raises(Invalid, match="version 8"):
        defs.check(made, 8)


def test_a_path_of_definitions_outside_the_table_is_refused(tmp_path: Path) -> None:
    for path in ("../index.json", "/etc/index.json", "a/../../x"):
        with pytest.raises(MainstemError, match="leaves the table"):
            defs.read_definitions(storage_at(tmp_path), TableConfig({DEFINITIONS_PATH: path}))


def test_a_file_that_java_is_writing_is_read_when_it_is_whole(tmp_path: Path) -> None:
    whole = json.dumps({"indexDefinitions": {}, "by": "Java"}).encode()

    states = [b"", b"", whole[:9], whole]

    class BeingWritten(Proxy):
        def read(self, path: str, **bounds: int) -> bytes:
            return states.pop(0)

    found = defs.read_definitions(BeingWritten(storage_at(tmp_path)), TableConfig({}))
    assert found.other == {"by": "Java"} and not states
