"""Indexes of tables without buckets: how the file group of a record key is found (Hudi's ``HoodieIndex``).

Hudi stores no name of the index, so all writers of a table must be given one that agrees: whether a key is
unique in its partition or in the table decides which rows are doubled. SIMPLE and BLOOM find the same file
groups in two ways; so do their global kinds and a global record index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.options.placing import BLOOM_MOVES, INDEX_TYPE, RECORD_KEY_FIELDS, RECORD_MOVES, SIMPLE_MOVES

_GLOBAL = {
    "GLOBAL_SIMPLE": SIMPLE_MOVES,
    "GLOBAL_BLOOM": BLOOM_MOVES,
    "RECORD_INDEX": RECORD_MOVES,
    "GLOBAL_RECORD_LEVEL_INDEX": RECORD_MOVES,
}
_OF_RECORDS = ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX", "RECORD_LEVEL_INDEX")

#: of a new table whose keys are made up
WITHOUT_KEYS = "SIMPLE"

#: where a record key lives: partition path and file id
GroupOfKey = tuple[str, str]


@dataclass(frozen=True)
class KeyIndex:
    """The index of a table without buckets.

    ``is_global``: a key is unique in the table, else in its partition. ``of_records``: the metadata table's
    record index tells the file groups; else, and while there is none, the files themselves do. ``moves``: a
    row whose key lies in another partition moves to its own.
    """

    kind: str
    is_global: bool
    of_records: bool
    moves: bool

    @property
    def unique_in(self) -> str:
        """What all writers must agree on."""
        return "table" if self.is_global else "partition"


def key_index(properties: Mapping[str, str]) -> KeyIndex | None:
    """The index that the table's properties and the caller's options name; None: buckets, or none named."""
    kind = INDEX_TYPE.read(properties)
    if kind == INDEX_TYPE.default:
        return None
    moves = _GLOBAL.get(kind)
    return KeyIndex(
        kind, moves is not None, kind in _OF_RECORDS, moves is not None and moves.read(properties)
    )


def table_index(properties: Mapping[str, str]) -> KeyIndex | None:
    """The same of a table, by its properties and the caller's options. One without record key fields, whose
    keys its writers make up, has no buckets: where nothing is said, SIMPLE, Spark's default."""
    if not properties.get(INDEX_TYPE, "").strip() and not properties.get(RECORD_KEY_FIELDS, "").strip():
        return key_index({**properties, INDEX_TYPE: WITHOUT_KEYS})
    return key_index(properties)
