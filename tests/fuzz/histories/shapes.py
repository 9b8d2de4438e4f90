"""What a table looks like: keys, partitions, merge mode, columns and properties, drawn by chance."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import mainstem
from tests.fuzz.histories.values import (
    FOLDERS,
    KEY_TEXTS,
    KEYS,
    KINDS,
    ORDERINGS,
    PARTITIONS,
    Kind,
    draw,
    order_of,
    text_of,
)
from tests.sim.oracle import Mode, Where

DELETED = "_hoodie_is_deleted"
_DEFAULT = "__HIVE_DEFAULT_PARTITION__"
_VALUES = tuple(name for name in KINDS if name != "vector")


@dataclass
class Shape:
    """One table's definition. ``keys``, ``parts``, ``orders`` and ``others`` are column name -> kind."""

    keys: dict[str, Kind]
    parts: dict[str, Kind]
    orders: dict[str, Kind]
    others: dict[str, Kind]
    mode: Mode
    buckets: int
    version: int = 9
    properties: dict[str, object] = field(default_factory=dict)
    #: what keys and partitions of rows are drawn from, so that rows meet
    key_pool: list[tuple[Any, ...]] = field(default_factory=list)
    part_pool: list[tuple[Any, ...]] = field(default_factory=list)
    #: kind and columns of indexes that the table has from the beginning, where it can have them
    indexes: list[tuple[str, list[str]]] = field(default_factory=list)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Every column of the table as it was made."""
        return {**self.keys, **self.parts, **self.orders, **self.others}

    def where(self, row: dict[str, Any]) -> Where:
        """Partition and key of a row, as texts that are equal where Hudi's are."""
        parts = [text_of(row[n], kind) for n, kind in self.parts.items()]
        partition = "/".join(_DEFAULT if p in ("__null__", "__empty__") else p for p in parts)
        keys = [text_of(row[name], kind) for name, kind in self.keys.items()]
        if len(keys) == 1:
            return partition, keys[0]
        return partition, ",".join(f"{n}:{text}" for n, text in zip(self.keys, keys, strict=True))

    def read_back(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row as it is read: texts that lie in the default partition are null then, as in Java."""
        return {n: None if n in self.parts and v in ("", _DEFAULT) else v for n, v in row.items()}

    def order(self, row: dict[str, Any]) -> Any:
        """What a row is compared by."""
        return tuple(order_of(row[name]) for name in self.orders) if self.mode.event_time else 0

    def create(self, path: str) -> mainstem.Table:
        """The table, empty."""
        fields = [pa.field(name, kind.arrow) for name, kind in self.kinds.items() if kind.name != "vector"]
        vectors = {name: "VECTOR(3)" for name, kind in self.kinds.items() if kind.name == "vector"}
        return mainstem.create_table(
            path, pa.schema(fields), record_key=list(self.keys), partition_by=list(self.parts),
            ordering=list(self.orders), buckets=self.buckets, table_version=self.version,
            properties=self.properties, vectors=vectors,
        )  # fmt: skip

    def __str__(self) -> str:
        def told(columns: dict[str, Kind]) -> str:
            return ", ".join(f"{n} {k.name}" for n, k in columns.items()) or "none"

        return (
            f"keys {told(self.keys)}; partitions {told(self.parts)}; ordering {told(self.orders)}; "
            f"others {told(self.others)}; {self.mode.name}, {self.buckets} buckets, version {self.version}, "
            f"{self.properties}"
        )


def drawn(chance: random.Random) -> Shape:
    """A table's shape."""
    event = chance.random() < 0.6
    version = 8 if chance.random() < 0.15 else 9
    partial = version == 9 and chance.random() < 0.2
    keys = _columns("k", KEYS, chance.choice((1, 1, 1, 2, 3)), chance)
    if [kind.name for kind in keys.values()] == ["bool"]:
        keys = {"k0": KINDS["string"]}
    parts = _columns("p", PARTITIONS, chance.choice((0, 1, 1, 1, 2)), chance)
    if version == 8 and len(keys) == 1 and len(parts) > 1:
        parts = dict(list(parts.items())[:1])
    orders = _columns(
        "o", ORDERINGS, chance.choice((1, 1, 2)) if event and version == 9 else int(event), chance
    )
    others = _columns("c", _VALUES, chance.randrange(1, 6), chance)
    if chance.random() < 0.3:
        others["vec"] = KINDS["vector"]
    if chance.random() < 0.3:
        others[DELETED] = KINDS["bool"]
    properties: dict[str, object] = {"hoodie.mainstem.exclusive": True}
    if chance.random() < 0.5:
        properties["hoodie.metadata.enable"] = True
    if parts and chance.random() < 0.3:
        properties["hoodie.datasource.write.hive_style_partitioning"] = True
    if parts and chance.random() < 0.3:
        properties["hoodie.datasource.write.partitionpath.urlencode"] = True
    if partial:
        properties["hoodie.table.partial.update.mode"] = "IGNORE_DEFAULTS"
    mode = Mode("event" if event else "commit", event_time=event, partial=partial)
    shape = Shape(keys, parts, orders, others, mode, chance.choice((1, 2, 3)), version, properties)
    hostile = chance.choice((0.0, 0.2, 0.5))
    shape.key_pool = [_key(shape, hostile, chance) for _ in range(8)]
    shape.part_pool = [_part(shape, hostile, chance) for _ in range(4)]
    if "hoodie.metadata.enable" in properties and chance.random() < 0.7:
        text = [n for n, kind in shape.kinds.items() if kind.name == "string" and n not in keys]
        known = [("column_stats", []), ("partition_stats", []), ("record_index", []), ("bloom_filters", [])]
        known += [("secondary_index", [name]) for name in text[:1]]
        shape.indexes = [index for index in known if chance.random() < 0.6]
    return shape


def _columns(letter: str, kinds: tuple[str, ...], count: int, chance: random.Random) -> dict[str, Kind]:
    return {f"{letter}{n}": KINDS[chance.choice(kinds)] for n in range(count)}


def _key(shape: Shape, hostile: float, chance: random.Random) -> tuple[Any, ...]:
    made = []
    for kind in shape.keys.values():
        null = 0.05 if hostile and len(shape.keys) > 1 else 0.0
        value = draw(kind, chance, hostile, null)
        if kind.name == "string" and value is not None and chance.random() < hostile / 2:
            value = chance.choice(KEY_TEXTS)
        made.append(value)
    return tuple(made)


def _part(shape: Shape, hostile: float, chance: random.Random) -> tuple[Any, ...]:
    made = []
    for kind in shape.parts.values():
        value = draw(kind, chance, hostile, 0.1 if hostile else 0.0)
        if kind.name == "string" and chance.random() < hostile:
            value = chance.choice(FOLDERS)
        made.append(value)
    return tuple(made)
