"""Goal: Protobuf messages become the rows they stand for, or are told apart with a reason.

Method: messages that Google's library writes by file descriptors made here, in a folder as protoc writes
them.
"""

from __future__ import annotations

import pytest

from mainstem.errors import Invalid, Unsupported
from mainstem.ingestion.protobuf_messages import ProtobufDecoder
from mainstem.ingestion.records import Records
from mainstem.ingestion.schema_registry import Registry

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

KINDS = descriptor_pb2.FieldDescriptorProto


def described():
    """A file with two types: Other, and Order with a field of each kind."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=KINDS.TYPE_INT32, label=1)
    order = file.message_type.add(name="Order")
    for number, (name, kind) in enumerate(
        [("id", KINDS.TYPE_INT64), ("city", KINDS.TYPE_STRING), ("fare", KINDS.TYPE_DOUBLE),
         ("paid", KINDS.TYPE_BOOL), ("raw", KINDS.TYPE_BYTES), ("count", KINDS.TYPE_UINT32)], 1
    ):  # fmt: skip
        order.field.add(name=name, number=number, type=kind, label=1)
    order.field.add(name="tags", number=10, type=KINDS.TYPE_STRING, label=3)
    order.field.add(
        name="note", number=11, type=KINDS.TYPE_STRING, label=1, proto3_optional=True, oneof_index=0
    )
    order.oneof_decl.add(name="_note")
    order.field.add(name="other", number=12, type=KINDS.TYPE_MESSAGE, label=1, type_name=".shop.Other")
    order.field.add(
        name="at", number=13, type=KINDS.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp"
    )
    state = order.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "DONE")):
        state.value.add(name=name, number=number)
    order.field.add(name="state", number=14, type=KINDS.TYPE_ENUM, label=1, type_name=".shop.Order.State")
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add().ParseFromString(timestamp_pb2.DESCRIPTOR.serialized_pb)
    files.file.append(file)
    return files


@pytest.fixture
def made(tmp_path):
    files = described()
    (tmp_path / "3.desc").write_bytes(files.SerializeToString())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return kind, ProtobufDecoder(Registry(str(tmp_path)), lambda: ["id"], "_hoodie_is_deleted", fill=False)


HEADER = b"\0\0\0\0\3" + b"\x02\x02"  # one place, 1: Order


def records(*values, keys=None):
    count = len(values)
    return Records(keys or [None] * count, list(values), [0] * count, list(range(count)), [-1] * count)


def test_messages_become_rows_of_arrow_types(made):
    kind, decoder = made
    order = kind(id=7, city="rome", fare=1.5, paid=True, raw=b"\0", count=3, note="n", state=1)
    order.tags.extend(["a", "b"])
    order.other.x = 5
    order.at.seconds, order.at.nanos = 1_700_000_000, 123_456_789
    found = decoder.decode(records(HEADER + order.SerializeToString(), HEADER), None)
    first, second = found.rows.to_pylist()
    assert first.pop("at").timestamp() == 1_700_000_000.123456
    assert first == {"id": 7, "city": "rome", "fare": 1.5, "paid": True, "raw": b"\0", "count": 3,
                     "tags": ["a", "b"], "note": "n", "other": {"x": 5}, "state": "DONE"}  # fmt: skip
    assert second["id"] == 0 and second["note"] is second["other"] is second["at"] is None
    assert second["tags"] == [] and second["state"] == "NEW"


def test_what_is_no_message_is_told_apart_and_tombstones_delete(made):
    kind, decoder = made
    good = HEADER + kind(id=1).SerializeToString()
    no_text = HEADER + b"\x12\x02\xff\xff"
    bad = [HEADER + b"\x0a", b"", HEADER[:5], HEADER[:5] + b"\x02\x14", b"{}", no_text]
    found = decoder.decode(records(good, *bad, None, good, keys=[None] * 7 + [b"9", None]), None)
    assert sorted(item.at for item in found.bad) == [1, 2, 3, 4, 5, 6]
    assert found.rows["id"].to_pylist() == [1, 9, 1]
    assert found.rows["_hoodie_is_deleted"].to_pylist() == [False, True, False]


def test_schemas_that_are_none_or_hold_maps_are_refused(made, tmp_path):
    _, decoder = made
    (tmp_path / "4.desc").write_bytes(b"no descriptor")
    with pytest.raises(Invalid, match="no file descriptor"):
        decoder.decode(records(b"\0\0\0\0\4\0"), None)
    with pytest.raises(Invalid, match=r"no .*5\.desc"):
        decoder.decode(records(b"\0\0\0\0\5\0"), None)
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="KEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=KINDS.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=KINDS.TYPE_STRING, label=1)
    message.field.add(name="k", number=1, type=KINDS.TYPE_MESSAGE, label=3, type_name=".M.KEntry")
    (tmp_path / "6.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    with pytest.raises(Unsupported, match="map"):
        decoder.decode(records(b"\0\0\0\0\6\0"), None)
