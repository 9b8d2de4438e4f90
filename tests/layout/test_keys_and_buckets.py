"""Goal: every key goes to the bucket that Java puts it into, and its text is the text Java writes.

Method: golden vectors of Java's hash; the 3,261 keys that Java wrote into the ``bucket_hash_*`` tables
with the file they landed in; key texts recomputed from the rows that Java read back.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem import errors
from mainstem.layout.buckets import bucket_ids, hash_parts, java_string_hash
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.keys import java_double_text, record_keys

GOLDEN = Path(__file__).parents[1] / "golden"
TABLES = sorted(p.name.removesuffix(".json") for p in GOLDEN.glob("bucket_hash_*.json"))


def list_hash(*values):
    h = 1
    for value in values:
        part = 0 if value is None else int(java_string_hash(pa.array([value]))[0])
        h = (31 * h + part) & 0xFFFFFFFF
    return h - 2**32 if h >= 2**31 else h


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["TXN-001"], -166313907),
        (["id:2,name:Bob"], 817270846),
        (["2", "Bob"], 69476),
        (["2", None], 2511),
        (["2", ""], 2511),
        ([""], 31),
        (["é"], 264),
        (["日本語キー"], -858417691),
        (["a😀b"], 57849725),
    ],
)
def test_the_hash_is_javas(values, expected):
    assert list_hash(*values) == expected


def test_hashes_of_many_texts_are_those_of_each_whatever_their_lengths():
    texts = [text * n for n in (0, 1, 3, 2_050, 9_000) for text in ("a", "ö", "id-7", "日本", "😀")]
    texts = [*texts, *(f"{n:05d}" for n in range(40_000)), None]
    found = java_string_hash(pa.array(texts)).tolist()
    for at in (*range(30), 20_399, len(texts) - 2, len(texts) - 1):
        units = (texts[at] or "").encode("utf-16-le")
        expected = 0
        for low in range(0, len(units), 2):
            expected = (31 * expected + int.from_bytes(units[low : low + 2], "little")) & 0xFFFFFFFF
        assert found[at] == expected, at


def test_golden_tables_for_every_key_type_are_there():
    assert len(TABLES) == 10


@pytest.mark.parametrize("name", TABLES)
def test_every_key_that_java_wrote_hashes_to_the_file_it_landed_in(name):
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    config = expected["table_config"]
    options = expected["writer_options"]
    fields = options.get(
        "hoodie.bucket.index.hash.field", config["hoodie.table.recordkey.fields"]
    ).split(",")
    rows = expected["buckets"]
    keys = pa.array([row[0] for row in rows])
    found = bucket_ids(
        keys, buckets=expected["num_buckets"], hash_fields=fields, parts=None
    )
    assert len(rows) > 50
    assert found.tolist() == [row[-1] for row in rows]


@pytest.mark.parametrize("name", TABLES)
def test_key_texts_and_buckets_from_columns_equal_those_that_java_stored(name, tmp_path):
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    base = next(tmp_path.rglob(".hoodie")).parent
    table = mainstem.open_table(base)
    rows = table.scan().to_arrow()
    config = table.config
    composite = config.key_generator == "COMPLEX" or len(config.record_key) > 1
    keys = record_keys(rows, config.record_key, composite=composite)
    stored = rows["_hoodie_record_key"].to_pylist()
    assert keys.texts.to_pylist() == stored
    hash_fields = expected["writer_options"].get("hoodie.bucket.index.hash.field", "")
    found = bucket_ids(
        keys.texts,
        buckets=expected["num_buckets"],
        hash_fields=hash_fields.split(",") if hash_fields else config.record_key,
        parts=keys.parts,
    )
    wanted = {row[0]: row[-1] for row in expected["buckets"]}
    assert found.tolist() == [wanted[key] for key in stored]


def test_columns_and_texts_give_the_same_bucket_also_with_separators_inside_the_values():
    rng = np.random.default_rng(7)
    alphabet = list("ab,:é😀") + ["__null__", "__empty__", ""]
    values = [
        ["".join(rng.choice(alphabet, rng.integers(0, 6))) or None for _ in range(400)]
        for _ in range(2)
    ]
    values[0][:3] = ["a", None, ""]
    values[1] = [v or "x" for v in values[1]]
    table = pa.table({"p": pa.array(values[0], pa.string()), "q": pa.array(values[1], pa.string())})
    keys = record_keys(table, ["p", "q"], composite=True)
    by_columns = bucket_ids(keys.texts, buckets=97, hash_fields=["p", "q"], parts=keys.parts)
    by_text = bucket_ids(keys.texts, buckets=97, hash_fields=["p", "q"], parts=None)
    assert by_columns.tolist() == by_text.tolist()


def test_a_plain_key_on_which_java_loops_for_ever_is_one_value():
    assert hash_parts("a,b:c:d", ["id"]) == ["a,b:c:d"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(94.2477, "94.2477"), (1e10, "1.0E10"), (1e7, "1.0E7"), (9999999.0, "9999999.0"),
     (0.001, "0.001"), (1e-4, "1.0E-4"), (-1.5, "-1.5"), (0.0, "0.0"), (-0.0, "-0.0"),
     (123456789.125, "1.23456789125E8"), (float("inf"), "Infinity")],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(value, text):
    assert java_double_text(value) == text


def test_null_and_empty_keys_are_refused_with_column_and_row():
    with pytest.raises(errors.Invalid, match=r"'id'.*row 1"):
        record_keys(pa.table({"id": ["a", None]}), ["id"], composite=False)
    with pytest.raises(errors.Invalid, match=r"'id'.*row 0"):
        record_keys(pa.table({"id": [""]}), ["id"], composite=False)
    both = pa.table({"a": ["x", None], "b": ["y", ""]})
    with pytest.raises(errors.Invalid, match="row 1"):
        record_keys(both, ["a", "b"], composite=True)
    part = pa.table({"a": pa.array([None, "x"], pa.string()), "b": ["y", ""]})
    assert record_keys(part, ["a", "b"], composite=True).texts.to_pylist() == [
        "a:__null__,b:y",
        "a:x,b:__empty__",
    ]


def test_partition_paths_follow_hive_style_and_encoding():
    keys = KeyGenerator(("id",), ("d", "e"), hive_style=True, url_encode=True)
    table = pa.table({"d": ["x", None, "a/b", "x"], "e": [1, 2, 3, 1]})
    codes, paths = keys.partitions(table)
    assert [paths[c] for c in codes] == [
        "d=x/e=1", "d=__HIVE_DEFAULT_PARTITION__/e=2", "d=a%2Fb/e=3", "d=x/e=1",
    ]  # fmt: skip
    with pytest.raises(errors.Invalid, match="folder name"):
        KeyGenerator(("id",), ("d",)).partitions(pa.table({"d": [".."]}))
