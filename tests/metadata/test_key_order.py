"""Goal: keys are sorted by their unsigned bytes whatever they are, the quick way and the other.

Method: keys of every shape that decides the way, with a fixed seed, against Python's own order of bytes.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from mainstem.metadata.records.key_order import key_order

CHANCE = random.Random(7)
KEYS = {
    "none": [],
    "one": ["k"],
    "short": [f"{n}" for n in range(300)],
    "differing at once": [f"{CHANCE.getrandbits(64):016x}" for _ in range(300)],
    "behind a prefix": [f"a-long-prefix-{CHANCE.getrandbits(40):012d}$k{n}" for n in range(300)],
    "a few alike in eight bytes": [f"{n // 2 * 7919 % 1000:08d}-{n % 2}" for n in range(0, 600, 2)]
    + ["00000000-zz", "00000000-é", "00000000", "00000000-a"],
    "most alike in eight bytes": [f"{n % 3:08d}-{n * 7919 % 300}" for n in range(300)],
    "equal": ["the same key"] * 300,
    "not ASCII": [f"{chr(n * 997 % 0xD000 + 1)}-behind-it" for n in range(300)],
    "greatest bytes": ["\U0010ffff" * 3, "~" * 12, "\x7f" * 12, "é" * 6, "\0" * 12],
}


@pytest.mark.parametrize("shape", KEYS)
def test_keys_are_sorted_by_their_bytes(shape: str) -> None:
    keys = KEYS[shape]
    CHANCE.shuffle(keys)
    whole = pa.array(["before", *keys, "behind"], pa.string())
    for found in (pa.array(keys, pa.string()), whole.slice(1, len(keys))):
        order = key_order(found).tolist()
        assert sorted(order) == list(range(len(keys)))
        assert [keys[place] for place in order] == sorted(keys, key=str.encode)
