"""Goal: records of timeline files have the bytes that Avro's library writes.

Method: random records of every schema of Hudi's timeline, some fields left out, against ``fastavro``.
"""

from __future__ import annotations

import io
import json
from importlib import resources
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_datum import datum_writer, writer_of_some
from mainstem.timeline.commit_metadata import WriteStat, decode_commit, encode_commit

SCHEMAS = {
    file.name: file.read_text("utf-8")
    for file in (resources.files("mainstem.timeline") / "schemas").iterdir()
    if file.name.endswith(".avsc")
}
PLAIN = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 200),
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "string": st.text(max_size=90),
    "bytes": st.binary(max_size=5),
}


def values(node: Any, named: dict[str, Any]) -> st.SearchStrategy[Any]:
    if isinstance(node, list):
        return st.one_of([values(branch, named) for branch in node])
    if isinstance(node, str):
        return PLAIN[node] if node in PLAIN else values(named[node.rpartition(".")[2]], named)
    if node["type"] == "array":
        return st.lists(values(node["items"], named), max_size=3)
    if node["type"] == "map":
        return st.dictionaries(st.text(max_size=4), values(node["values"], named), max_size=3)
    if node["type"] != "record":
        return values(node["type"], named)
    named[node["name"].rpartition(".")[2]] = node
    must, may = {}, {}
    for field in node["fields"]:
        (may if "default" in field else must)[field["name"]] = values(field["type"], named)
    return st.fixed_dictionaries(must, optional=may)


@pytest.mark.parametrize("name", sorted(SCHEMAS))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_records_of_the_timeline_are_what_avros_library_writes(name, data) -> None:
    schema = json.loads(SCHEMAS[name])
    record = data.draw(values(schema, {}))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    assert datum_writer(SCHEMAS[name])(record) == out.getvalue()


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_record_with_some_fields_encoded_before_has_the_same_bytes(data) -> None:
    text = SCHEMAS["HoodieCommitMetadata.avsc"]
    outer = {"partitionToWriteStats", "compacted", "extraMetadata", "version", "operationType"}
    record = {"compacted": False, **data.draw(values(json.loads(text), {}))}
    before = data.draw(st.sets(st.sampled_from(sorted(outer & set(record)))))
    encode = writer_of_some(text, "HoodieCommitMetadata", {name: record[name] for name in before})
    assert encode(record) == datum_writer(text)(record)


NUMBERS = st.integers(0, 2**40)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.builds(
            WriteStat, st.sampled_from(["", "a", "b/c"]), st.text(max_size=9), st.text(max_size=9),
            st.text(max_size=9), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS,
        ), min_size=1, max_size=9,
    )
)  # fmt: skip
def test_the_files_of_a_commit_are_encoded_as_their_records_are(stats: list[WriteStat]) -> None:
    class AsRecord(WriteStat):
        """What is no ``WriteStat`` itself is encoded by its record."""

    plain = [AsRecord(**vars(stat)) for stat in stats]
    assert encode_commit(stats, {"a": "b"}, "UPSERT") == encode_commit(plain, {"a": "b"}, "UPSERT")


def test_inflight_files_tell_what_was_given_for_each() -> None:
    for _ in range(2):
        for extra, operation in (({}, "UPSERT"), ({"w": "1"}, "UPSERT"), ({"w": "2"}, "DELETE")):
            found = decode_commit(encode_commit([], extra, operation), path="x")
            assert (found.stats, found.extra, found.operation) == ({}, extra, operation)


def test_a_null_where_the_schema_has_none_is_refused_by_name() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    with pytest.raises(Invalid, match="'n'"):
        datum_writer(json.dumps(schema))({})


@pytest.mark.parametrize("kind", [["null", "int", "string"], {"type": "enum", "name": "E", "symbols": ["A"]}])
def test_schemas_that_no_timeline_file_has_are_refused(kind) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind}]}
    with pytest.raises(Unsupported, match="'n'"):
        datum_writer(json.dumps(schema))
