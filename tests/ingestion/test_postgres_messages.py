"""Goal: messages of PostgreSQL's log become the rows they stand for; damaged ones are refused, never misread.

Method: messages written here as the protocol's documentation has them, cut off at each byte and with bytes
changed. Against a real server: tests/stores/test_postgres_tables.py.
"""

from __future__ import annotations

import random
import struct

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid
from mainstem.ingestion.pgoutput import (
    parse_begin,
    parse_commit,
    parse_relation,
    parse_truncate,
    read_changes,
)
from mainstem.ingestion.postgres_changes import change_rows, check_columns, check_identity, schema_of
from mainstem.ingestion.postgres_server import parse_lsn
from mainstem.ingestion.postgres_types import arrow_type, typed

UNCHANGED = object()
COLUMNS = [("id", 20, -1, 1), ("city", 25, -1, 0), ("price", 1700, (10 << 16 | 2) + 4, 0)]


def relation(columns=COLUMNS, identity=b"d", oid=7):
    text = b"R" + struct.pack(">I", oid) + b"public\0orders\0" + identity + struct.pack(">h", len(columns))
    for name, kind, modifier, key in columns:
        text += struct.pack(">B", key) + name.encode() + b"\0" + struct.pack(">Ii", kind, modifier)
    return text


def row(*values):
    text = struct.pack(">h", len(values))
    for value in values:
        if value is None or value is UNCHANGED:
            text += b"n" if value is None else b"u"
        else:
            text += b"t" + struct.pack(">i", len(value.encode())) + value.encode()
    return text


def insert(*values):
    return b"I" + struct.pack(">I", 7) + b"N" + row(*values)


def update(*values, key=None, old=None):
    before = b"K" + row(*key) if key else b"O" + row(*old) if old else b""
    return b"U" + struct.pack(">I", 7) + before + b"N" + row(*values)


def delete(*key, mark=b"K"):
    return b"D" + struct.pack(">I", 7) + mark + row(*key)


def rows_of(messages, placing=("id",), **about):
    found = parse_relation(relation(**about))
    changes = read_changes(messages, found)
    lsns = np.arange(100, 100 + len(messages))
    return change_rows(changes, found, schema_of(found, arrow_type), placing, lsns, lsns * 1000)


def brief(rows):
    columns = ("_change_operation_type", "id", "city", "_event_lsn")
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def test_changes_come_in_their_order_and_a_changed_key_deletes_the_row_before():
    messages = [
        insert("1", "größe", "2.50"),
        update("1", None, None),
        update("2", "x", None, key=("1", None, None)),
        delete("2", None, None),
        insert("2", "", "-0.01"),
    ]
    rows = rows_of(messages)
    assert brief(rows) == [
        ("c", 1, "größe", 100), ("u", 1, None, 101), ("d", 1, None, 102), ("u", 2, "x", 102),
        ("d", 2, None, 103), ("c", 2, "", 104),
    ]  # fmt: skip
    prices = [str(price) for price in rows["price"].to_pylist() if price is not None]
    assert prices == ["2.50", "-0.01"]
    assert rows["_event_origin_ts_ms"].to_pylist()[:2] == [100, 101]


def test_a_whole_row_before_tells_unchanged_values_and_whether_the_row_moves():
    whole = ("1", "long", "1.00")
    messages = [update("1", UNCHANGED, "2.00", old=whole), update("1", "moved", "1.00", old=whole)]
    assert brief(rows_of(messages, ("id", "city"), identity=b"f")) == [
        ("u", 1, "long", 100), ("d", 1, "long", 101), ("u", 1, "moved", 101),
    ]  # fmt: skip
    with pytest.raises(Invalid, match=r"'city'.*REPLICA IDENTITY FULL"):
        rows_of([update("1", UNCHANGED, "2.00")])
    with pytest.raises(Invalid, match=r"'city'.*REPLICA IDENTITY FULL"):
        rows_of([update("2", UNCHANGED, "2.00", key=("1", None, None))])


def test_long_and_short_values_and_many_rows_are_the_same():
    chance = random.Random(3)
    kept = [
        (str(n), chance.choice([None, "", "ü" * chance.randrange(5), "x" * chance.randrange(500)]), "1.00")
        for n in range(300)
    ]
    rows = rows_of([insert(*values) for values in kept])
    assert [(n, city) for _, n, city, _ in brief(rows)] == [(int(v[0]), v[1]) for v in kept]


def test_messages_that_are_cut_off_or_damaged_are_refused():
    found = parse_relation(relation())
    moved = update("1", "oslo", "1.00", key=("2", None, None))
    whole = [insert("1", "rome", None), moved, delete("1", None, None)]
    for message in whole:
        for end in range(len(message)):
            with pytest.raises(Invalid):
                read_changes([whole[0], message[:end], whole[0]], found)
        with pytest.raises(Invalid):
            read_changes([message + b"\0"], found)
    for message, parse in (
        (relation(), parse_relation), (b"B" + bytes(20), parse_begin), (b"C" + bytes(25), parse_commit),
        (b"T" + struct.pack(">IBI", 1, 0, 7), parse_truncate),
    ):  # fmt: skip
        parse(message)
        for other in (*(message[:end] for end in range(len(message))), message + b"\0"):
            with pytest.raises(Invalid):
                parse(other)
    chance = random.Random(4)
    for _ in range(2000):
        message = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(1, 4)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        try:
            changes = read_changes([bytes(message)], found)
        except Invalid:
            continue
        assert len(changes.kinds) == 1


@pytest.mark.parametrize(
    "oid, modifier, texts, values",
    [
        (16, -1, ["t", "f", None], [True, False, None]),
        (701, -1, ["Infinity", "-Infinity", "1e-300"], [float("inf"), float("-inf"), 1e-300]),
        (17, -1, ["\\x00ff", "\\x", None], [b"\0\xff", b"", None]),
        (1007, -1, ["{1,NULL}", "{}", None, "[0:1]={3,4}"], [[1, None], [], None, [3, 4]]),
        (1009, -1, ['{a,"b,\\"c","NULL",NULL,"{"}'], [["a", 'b,"c', "NULL", None, "{"]]),
        (1700, -1, ["1e500"], ["1e500"]),
        (2950, -1, ["6c84fb90-12c4-11e1-840d-7b25c5ee775a"], ["6c84fb90-12c4-11e1-840d-7b25c5ee775a"]),
    ],
)
def test_values_come_from_their_text(oid, modifier, texts, values):
    assert typed(pa.array(texts, pa.string()), arrow_type(oid, modifier), "c").to_pylist() == values


@pytest.mark.parametrize(
    "oid, modifier, text",
    [
        (1700, (10 << 16 | 2) + 4, "NaN"), (1114, -1, "infinity"), (1082, -1, "0044-03-15 BC"),
        (23, -1, "1.5"), (1184, -1, "10000-01-01 00:00:00+00"), (1007, -1, "{{1,2},{3,4}}"),
        (1009, -1, "{a,}"), (1009, -1, '{"a}'),
        (1009, -1, "a"), (17, -1, "ff"), (16, -1, "yes"), (1007, -1, "{1,x}"),
    ],
)  # fmt: skip
def test_a_value_without_a_like_is_refused_with_its_column(oid, modifier, text):
    with pytest.raises(Invalid, match="column 'c'"):
        typed(pa.array([None, text]), arrow_type(oid, modifier), "c")


def test_tables_whose_changes_do_not_tell_what_is_needed_are_refused():
    found = parse_relation(relation())
    check_identity(found, ["id"])
    with pytest.raises(Invalid, match=r"do not tell city.*REPLICA IDENTITY FULL"):
        check_identity(found, ["id", "city"])
    check_identity(parse_relation(relation(identity=b"f")), ["id", "city"])
    known = pa.schema([("id", pa.int64()), ("gone", pa.string()), ("_event_lsn", pa.int64())])
    check_columns(found, known, ["_event_lsn"], fill=True)
    with pytest.raises(Invalid, match="lacks gone"):
        check_columns(found, known, ["_event_lsn"], fill=False)
    assert parse_lsn("1/FF") == (1 << 32) + 255
    with pytest.raises(Invalid, match="two hexadecimal numbers"):
        parse_lsn("1/zz")


def test_what_contradicts_a_table_of_postgres_is_refused(tmp_path):
    for given in ({"format": "avro", "registry": "x"}, {"start": "latest"}, {"on_lost": "earliest"}):
        with pytest.raises(Invalid, match="leave out"):
            mainstem.ingest(tmp_path / "t", postgres="dbname=x", table="t", **given)
    with pytest.raises(Invalid, match="where does the stream come from"):
        mainstem.ingest(tmp_path / "t", postgres="dbname=x")
    with pytest.raises(Invalid, match="only tables of PostgreSQL are truncated"):
        mainstem.ingest(tmp_path / "t", files=f"{tmp_path}/*.json", on_truncate="skip")
