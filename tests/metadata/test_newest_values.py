"""Goal: the base file of an index of keys is the same whether its rows are decoded or merged as bytes.

Method: random histories of rows, tombstones and deletes in the schemas of both versions, against decoding,
merging and encoding them; damaged values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from mainstem.errors import CorruptTable
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.records import newest_values as merged_as_bytes
from mainstem.metadata.records.flat_rows import SCHEMAS, decode, encode, schema_of_version
from mainstem.metadata.records.newest_values import OF_KEYS, Piece, Recoder, name_place, newest_values
from mainstem.metadata.records.row_merging import Block, merge

NAME = "files-0000_0-0-0_20260101000000000.hfile"


def _rows(content: Content, keys: Sequence[str], chance: random.Random) -> pa.Table:
    places = ["00000001-0000-0000-0000-000000000000-0", "0" * 8 + "-ffff-4fff-8fff-ffffffffffff", "no uuid"]
    columns: dict[str, list] = {"key": list(keys)}
    if content == Content.SECONDARY:
        columns["deleted"] = [chance.random() < 0.3 for _ in keys]
    else:
        chosen = [chance.choice(places) for _ in keys]
        columns |= {"partition": [chance.choice(["", "p=1"]) for _ in keys], "file_id": chosen}
        columns |= {"instant_ms": [chance.randrange(3) for _ in keys], "position": [None] * len(keys)}
        columns |= {"encoding": [int(place == "no uuid") for place in chosen]}
    return pa.table([pa.array(columns[f.name], f.type) for f in SCHEMAS[content]], schema=SCHEMAS[content])


def _history(content: Content, seed: int) -> tuple[list[Piece | pa.Array], list[Block]]:
    """The same pieces as bytes and decoded, oldest first; the first is the base."""
    chance = random.Random(seed)
    pieces: list[Piece | pa.Array] = []
    blocks: list[Block] = []
    for number in range(12):
        keys = sorted(f"{key:03d}é" for key in chance.sample(range(120), 1 + chance.randrange(90)))
        if number and chance.random() < 0.2:
            pieces.append(pa.array(keys))
            blocks.append(Block(deletes=pa.array(keys)))
            continue
        rows, text = _rows(content, keys, chance), schema_of_version(chance.choice((8, 9)))
        pieces.append(Piece(*encode(content, rows, text, file_name=None if number else "old.hfile"), text))
        blocks.append(Block(rows))
    return pieces, blocks


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("content", sorted(OF_KEYS))
def test_rows_merged_as_bytes_make_the_same_base_file(content: Content, version: int) -> None:
    text = schema_of_version(version)
    recoder = Recoder(content, text)  # of all file groups of a compaction
    assert name_place(text) is not None
    for seed in range(20):
        pieces, blocks = _history(content, seed)
        made = newest_values(pieces, recoder, NAME, "old.hfile" if seed % 2 else "")
        expected = encode(content, merge(content, blocks[0].rows, blocks[1:]), text, file_name=NAME)
        assert made is not None
        assert [column.to_pylist() for column in made] == [column.to_pylist() for column in expected]
    nothing = newest_values([pa.array(["a"])], recoder, NAME)
    assert nothing is not None and [len(column) for column in nothing] == [0, 0]


def test_a_value_that_does_not_parse_is_not_taken_over() -> None:
    text = schema_of_version(9)
    keys, values = encode(Content.RECORDS, _rows(Content.RECORDS, ["a", "b"], random.Random(1)), text)
    cut = pa.array([values[0].as_py(), values[1].as_py()[:-3]], pa.binary())
    with pytest.raises(CorruptTable):
        newest_values([Piece(keys, cut, text)], Recoder(Content.RECORDS, text), NAME)


def test_many_distinct_values_are_decoded_by_columns(monkeypatch) -> None:
    monkeypatch.setattr(merged_as_bytes, "_DISTINCT_MAX", 3)
    text = schema_of_version(9)
    rows = _rows(Content.RECORDS, [f"{n:03d}" for n in range(99)], random.Random(1))
    pieces = [Piece(*encode(Content.RECORDS, rows, text), text)]
    assert newest_values(pieces, Recoder(Content.RECORDS, text), NAME) is None
    assert decode(Content.RECORDS, pieces[0].keys, pieces[0].values, text).num_rows == 99
