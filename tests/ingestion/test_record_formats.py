"""Goal: records become the rows they stand for, or are told apart with a reason; none is lost between.

Method: bytes as producers write them, by json and fastavro; a real HTTP server on loopback speaks the
registry's protocol.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro
import pyarrow as pa
import pytest

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.ingestion.avro_messages import AvroDecoder, DebeziumAvro
from mainstem.ingestion.debezium import DebeziumJson
from mainstem.ingestion.json_rows import JsonDecoder
from mainstem.ingestion.records import Records
from mainstem.ingestion.schema_registry import Registry
from mainstem.ingestion.target_table import parse_schema

KNOWN = pa.schema([("id", pa.int64()), ("city", pa.string()), ("fare", pa.float64())])


def records(*values, keys=None):
    data = [v if v is None or isinstance(v, bytes) else json.dumps(v).encode() for v in values]
    count = len(data)
    return Records(keys or [None] * count, data, [0] * count, list(range(count)), [-1] * count)


def from_json(*values, known=KNOWN, keys=None):
    return JsonDecoder(lambda: ["id"], "_hoodie_is_deleted").decode(records(*values, keys=keys), known)


def test_json_objects_become_rows_in_the_types_of_the_table():
    made = from_json({"id": 1, "fare": 2}, {"city": "rome", "id": 2, "fare": None}, b' {\n"id" : 3}\n')
    assert made.rows.to_pylist() == [
        {"id": 1, "city": None, "fare": 2.0},
        {"id": 2, "city": "rome", "fare": None},
        {"id": 3, "city": None, "fare": None},
    ]
    assert made.places == [0, 1, 2] and not made.bad


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"  ", b"{", b'{"id": 1', b'{"id": 1}}', b'{"id": 1}{"id": 2}', b'{"id": 1}\n{"id": 2}', b"7",
        b"null", b"[]", b'"x"', b'{"id": 1}, "o2": 5', b'{"id": 1}, "v": {"id": 2}', b'{"id": 1, "id": 2}',
        b'{"id": "x"}', b'{"id": 1.5}', b'{"id": true}', b'{"city": 7}', b'{"city": "\xff"}',
        b'{"city": "a\nb"}', b"\x00\x01",
        b'{"id": 99999999999999999999}', b'{"id": 1}}\n{"o":1,"v":{"id":2}', b'{"new": "\xff"}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_not_exactly_one_object_is_told_apart_and_the_others_stay(bad, at):
    values = [{"id": 10}, {"id": 11}]
    values.insert(at, bad)
    made = from_json(*values)
    assert [item.at for item in made.bad] == [at] and made.bad[0].reason
    assert made.rows["id"].to_pylist() == [10, 11]
    assert made.places == [i for i in range(3) if i != at]


def test_two_bad_records_that_make_up_for_each_other_are_both_found():
    made = from_json(b'{"id": 1, "city":', b'{"id": 2}}', b'{"id": 3}{"id": 4}', {"id": 5})
    assert [item.at for item in sorted(made.bad, key=lambda item: item.at)] == [0, 1, 2]
    assert made.rows["id"].to_pylist() == [5]


def test_new_fields_are_inferred_and_times_stay_text():
    new = {"at": "2026-01-01T00:00:00Z", "n": 1, "list": [], "deep": {"when": "2026-01-01", "none": None}}
    made = from_json({"id": 1}, {"id": 2, **new, "none": None})
    assert made.rows.schema.names == ["id", "city", "fare", "at", "n", "deep"]
    assert made.rows.schema.field("at").type == pa.string()
    assert made.rows["deep"].to_pylist() == [None, {"when": "2026-01-01"}]


def test_dates_decimals_and_times_are_read_as_the_table_has_them():
    known = parse_schema("d date, p decimal(10, 2), t timestamp, b binary, r int")
    row = {"d": "2026-01-31", "p": "12.50", "t": "2026-01-31T10:00:00Z", "b": "xy", "r": 3}
    made = from_json(row, known=known)
    assert made.rows.schema.types == known.types and not made.bad
    found = made.rows.to_pylist()[0]
    assert (str(found["d"]), str(found["p"]), found["b"], found["r"]) == ("2026-01-31", "12.50", b"xy", 3)
    assert from_json({"d": "31.1.2026"}, known=known).bad
    with pytest.raises(Unsupported, match="map"):
        from_json({"m": {}}, known=pa.schema([("m", pa.map_(pa.string(), pa.string()))]))


def test_records_without_value_delete_by_their_key_in_the_order_of_the_records():
    keys = [b"1", b"7", b'{"id": 8, "more": 1}', b'"9"', None, b"x"]
    made = from_json({"id": 1}, None, None, None, None, None, keys=keys)
    assert made.rows.select(["id", "_hoodie_is_deleted"]).to_pylist() == [
        {"id": 1, "_hoodie_is_deleted": False},
        *({"id": n, "_hoodie_is_deleted": True} for n in (7, 8, 9)),
    ]
    assert made.places == [0, 1, 2, 3] and sorted(item.at for item in made.bad) == [4, 5]


def test_keys_are_taken_as_they_stand_and_json_texts_as_what_they_say():
    keys = [b'a"', b'"a\\"b"', b'"', b'"C:\\\\x"', b'"\\u00e9"', b"plain", b'"a" "b"']
    known = pa.schema([("id", pa.string())])
    made = from_json(*[None] * len(keys), keys=keys, known=known)
    assert made.rows["id"].to_pylist() == ['a"', 'a"b', '"', "C:\\x", "é", "plain"]
    assert [item.at for item in made.bad] == [6]


def test_new_fields_within_objects_and_lists_of_them_are_kept():
    known = KNOWN.append(pa.field("at", pa.struct([("x", pa.int64())])))
    known = known.append(pa.field("stops", pa.list_(pa.struct([("x", pa.int64())]))))
    made = from_json(
        {"id": 1, "at": {"x": 1, "more": {"y": 2}}, "stops": [{"x": 1}, {"new": True}]}, {"id": "bad"},
        {"id": 2, "at": {"x": 2}, "stops": None}, {"id": 3, "at": {"z": "a"}, "stops": []},
        known=known,
    )  # fmt: skip
    assert made.places == [0, 2, 3] and [item.at for item in made.bad] == [1]
    assert made.rows.select(["at", "stops"]).to_pylist() == [
        {
            "at": {"x": 1, "more": {"y": 2}, "z": None},
            "stops": [{"x": 1, "new": None}, {"x": None, "new": True}],
        },
        {"at": {"x": 2, "more": None, "z": None}, "stops": None},
        {"at": {"x": None, "more": None, "z": "a"}, "stops": []},
    ]


# -- Avro ---------------------------------------------------------------------------------------------


def schema(*fields, name="row"):
    return {"type": "record", "name": name, "fields": [
        {"name": field, "type": ["null", kind], "default": None} for field, kind in fields
    ]}  # fmt: skip


V1 = schema(("id", "long"), ("city", "string"))
V2 = schema(("id", "long"), ("city", "string"), ("fare", "double"))


def avro(number, text, row):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(text), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


@pytest.fixture
def registry(tmp_path):
    for number, text in ((1, V1), (2, V2)):
        (tmp_path / f"{number}.avsc").write_text(json.dumps(text))
    return Registry(str(tmp_path))


def from_avro(registry, *values, known=None, fill=False, keys=None):
    decoder = AvroDecoder(registry, lambda: ["id"], "_hoodie_is_deleted", fill=fill)
    return decoder.decode(records(*values, keys=keys), known)


def test_avro_messages_of_several_schemas_become_one_table_in_order(registry):
    values = [avro(1 + n % 2, (V1, V2)[n % 2], {"id": n, "city": f"c{n}", "fare": n / 2}) for n in range(600)]
    made = from_avro(registry, *values)
    assert made.rows.to_pylist() == [
        {"id": n, "city": f"c{n}", "fare": n / 2 if n % 2 else None} for n in range(600)
    ]
    assert made.places == list(range(600))


@pytest.mark.parametrize("bad", [b"", b"\0\0", b'{"id": 1}', b"\0\0\0\0\1", "cut", "long"])
def test_an_avro_message_that_is_no_record_is_told_apart(registry, bad):
    whole = avro(1, V1, {"id": 1, "city": "rome"})
    bad = {"cut": whole[:-1], "long": whole + b"\0"}.get(bad, bad)
    made = from_avro(registry, whole, bad, whole)
    assert [item.at for item in made.bad] == [1] and made.places == [0, 2]


def test_a_schema_that_went_back_is_refused_by_name_unless_nulls_are_asked_for(registry):
    old = avro(1, V1, {"id": 1, "city": "c"})
    with pytest.raises(Invalid, match=r"schema 1 lacks fare.*set\.null"):
        from_avro(registry, old, known=KNOWN)
    assert from_avro(registry, old, known=KNOWN, fill=True).rows.num_rows == 1


def test_avro_keys_delete(registry):
    key = avro(1, V1, {"id": 4, "city": None})
    made = from_avro(registry, avro(2, V2, {"id": 3, "city": "c"}), None, keys=[None, key], known=KNOWN)
    assert made.rows.select(["id", "_hoodie_is_deleted"]).to_pylist() == [
        {"id": 3, "_hoodie_is_deleted": False}, {"id": 4, "_hoodie_is_deleted": True}
    ]  # fmt: skip


@pytest.fixture
def served() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    answers = {
        "/base/schemas/ids/1": (200, {"schema": json.dumps(V1)}),
        "/base/schemas/ids/3": (200, {"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}),
        "/base/schemas/ids/4": (200, {"schema": "{}", "references": [{"name": "x"}]}),
        "/base/schemas/ids/5": (503, {}),
    }

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            right = "Basic " + base64.b64encode(b"me:p@ss").decode()
            code, body = answers.get(self.path, (404, {"error_code": 40403}))
            code = code if self.headers["Authorization"] == right else 401
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *about: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/base", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_registry_is_asked_once_for_each_schema_and_its_answers_are_told(served):
    place, asked = served
    registry = Registry(f"http://me:p%40ss@{place}")
    value = avro(1, V1, {"id": 1, "city": "c"})
    assert from_avro(registry, value).rows.num_rows == from_avro(registry, value).rows.num_rows == 1
    assert asked == ["/base/schemas/ids/1"]
    for number, kind, said in ((2, Invalid, "does not know"), (3, Unsupported, "PROTOBUF"),
                               (4, Unsupported, "refers"), (5, Unavailable, "503")):  # fmt: skip
        with pytest.raises(kind, match=said):
            registry.avro(number)
    with pytest.raises(Invalid, match="user and password"):
        Registry(f"http://{place}").avro(1)
    with pytest.raises(Unavailable, match="does not answer"):
        Registry("http://127.0.0.1:9").avro(1)


# -- Debezium -----------------------------------------------------------------------------------------


def event(op, before=None, after=None, **source):
    place = {"connector": "postgresql", "ts_ms": 5, "lsn": 100, "db": "shop", **source}
    return {"before": before, "after": after, "op": op, "source": place, "ts_ms": 9}


EVENTS = [
    event("r", after={"id": 1, "city": "a"}, lsn=1),
    event("c", after={"id": 2, "city": "b"}, lsn=2),
    event("u", before={"id": 1, "city": "a"}, after={"id": 1, "city": "c"}, lsn=3),
    event("d", before={"id": 2, "city": None}, lsn=4),
]
WANTED = [(1, "a", "r", 1), (2, "b", "c", 2), (1, "c", "u", 3), (2, None, "d", 4)]


def changes(made):
    names = ("id", "city", "_change_operation_type", "_event_lsn")
    return list(zip(*(made.rows[name].to_pylist() for name in names), strict=True))


@pytest.mark.parametrize("with_schema", [False, True])
@pytest.mark.parametrize("known", [None, pa.schema([("id", pa.int64()), ("city", pa.string())])])
def test_debezium_events_become_rows_and_marked_deletes(with_schema, known):
    about = {"type": "struct", "fields": [{"default": 0}, {"default": "x"}]}
    events = [{"schema": about, "payload": e} if with_schema else e for e in EVENTS]
    values = [json.dumps(e, separators=(",", ":")).encode() for e in events]
    made = DebeziumJson().decode(records(*values, None), known)
    assert changes(made) == WANTED and made.places == [0, 1, 2, 3] and not made.bad
    assert made.rows["_event_origin_ts_ms"].to_pylist() == [5] * 4


def test_a_column_that_is_new_in_the_database_is_kept():
    known = pa.schema([("id", pa.int64())])
    made = DebeziumJson().decode(records(*EVENTS), known)
    assert changes(made) == WANTED
    after, before = {"id": 1, "at": {"x": 1}}, {"id": 2, "at": {"x": 2, "y": 3}}
    made = DebeziumJson().decode(records(event("c", after=after), event("d", before=before)), known)
    assert made.rows["at"].to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": 3}]


def test_an_envelope_with_more_than_schema_and_payload_is_no_envelope():
    about = b'{"schema":{"a":1},"payload":'
    good = json.dumps(EVENTS[0]).encode()
    values = [about + good + b"}", about + good + b',"x":1}', about + good + b"}"]
    made = DebeziumJson().decode(records(*values), None)
    assert [item.at for item in made.bad] == [1] and made.places == [0, 2]


def test_debezium_events_that_cannot_be_applied_are_told_apart():
    made = DebeziumJson().decode(
        records(EVENTS[0], event("t"), event("m"), event("u"), event("d"), {"id": 1}, EVENTS[1]), None
    )
    assert changes(made) == WANTED[:2] and made.places == [0, 6]
    assert sorted(item.at for item in made.bad) == [1, 3, 4, 5]
    assert "truncated" in next(item.reason for item in made.bad if item.at == 1)


def test_debezium_avro_is_the_same(tmp_path):
    row = {"type": "record", "name": "Value", "fields": V1["fields"]}
    fields = [("connector", "string"), ("ts_ms", "long"), ("lsn", "long"), ("db", "string")]
    source = schema(*fields, name="Source")
    envelope = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source}, {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"]},
    ]}  # fmt: skip
    (tmp_path / "7.avsc").write_text(json.dumps(envelope))
    values = [avro(7, envelope, e) for e in EVENTS]
    made = DebeziumAvro(Registry(str(tmp_path)), fill=False).decode(records(*values, None), None)
    assert changes(made) == WANTED


def test_mysql_events_are_ordered_by_file_and_position():
    made = DebeziumJson().decode(
        records(event("c", after={"id": 1}, connector="mysql", file="bin.000003", pos=17)), None
    )
    assert made.rows.select(["_event_bin_file", "_event_pos"]).to_pylist() == [
        {"_event_bin_file": "bin.000003", "_event_pos": 17}
    ]
