"""Goal: a stored bloom filter never denies a key that it holds, whatever its kind and how full it is.

Method: filters of random keys (also beyond ASCII, and more than they were made for) are written and asked;
Java's own filters of golden tables are asked for the keys of their files; damaged ones are errors.
"""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable
from mainstem.formats.bloom_filter import DYNAMIC, SIMPLE, BloomSize, StoredFilter, bloom_text, may_hold_one
from tests.golden_tables.tables import unpack
from tests.metadata.java_records import contents_of


@pytest.mark.parametrize("kind", [DYNAMIC, SIMPLE])
@pytest.mark.parametrize("count", [0, 10, 3000])
def test_all_keys_are_held_and_few_others(kind, count):
    keys = pa.array([f"key-{n}-é{'x' * (n % 5)}" for n in range(count)], pa.string())
    size = BloomSize(entries=500, false_positives=1e-6, kind=kind, entries_max=5000)
    stored = StoredFilter(bloom_text(keys, size).encode())
    others = pa.array([f"other-{n}" for n in range(2000)])
    assert stored.may_contain(keys).all()
    if kind == DYNAMIC or count <= 500:
        assert stored.may_contain(others).sum() < 10
    assert not may_hold_one(bloom_text(pa.array([], pa.string()), size).encode(), others)


def test_javas_filters_hold_the_keys_of_their_files(tmp_path):
    contents = contents_of(unpack("mdt_all", tmp_path))
    files = [f for here in contents.files.values() for f in here.values() if f.is_base]
    assert len(files) == 8
    for file in files:
        stored = StoredFilter(contents.bloom(file)[1])
        for batch in contents.batches(file, ["_hoodie_record_key"]):
            for chunk in batch.column("_hoodie_record_key").chunks:
                assert stored.may_contain(chunk).all()
        assert not stored.may_contain(pa.array(["no such key"])).any()


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw[:4] + b"\x7f\xff\xff\xff" + raw[8:],
        lambda raw: raw[:9] + b"\x00\x00\x00\x00" + raw[13:],
        lambda raw: b"",
    ],
    ids=["shorter", "longer", "many hashes", "no bits", "empty"],
)
def test_damage_is_an_error_with_the_path(damage):
    raw = base64.b64decode(bloom_text(pa.array(["a", "b"]), BloomSize(entries=10)))
    with pytest.raises(CorruptTable, match="no bloom filter"):
        StoredFilter(base64.b64encode(damage(raw)), path="p")


def test_what_is_no_base64_is_an_error():
    with pytest.raises(CorruptTable, match="no bloom filter"):
        StoredFilter(b"\xff not base64")
