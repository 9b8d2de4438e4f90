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
from mainstem.formats.avro_datum import datum_writer

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


def test_a_null_where_the_schema_has_none_is_refused_by_name() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    with pytest.raises(Invalid, match="'n'"):
        datum_writer(json.dumps(schema))({})


@pytest.mark.parametrize("kind", [["null", "int", "string"], {"type": "enum", "name": "E", "symbols": ["A"]}])
def test_schemas_that_no_timeline_file_has_are_refused(kind) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": kind}]}
    with pytest.raises(Unsupported, match="'n'"):
        datum_writer(json.dumps(schema))
