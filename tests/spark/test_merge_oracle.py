"""Goal: a MERGE does to every row what the SQL standard says, whichever clauses it has.

Method: statements made at random (two clauses of a kind with conditions, partial updates, deletes, keys that
are null or stand twice, ordering values that go back) run one after another on a table, beside an oracle that
goes row by row. The tables must be equal after each; where the oracle finds that the statement cannot be,
it must be refused and change nothing. More seeds: ``MERGE_SEEDS=0:200``.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms
from mainstem.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.supports("Engines", "Spark SQL: DELETE, UPDATE, MERGE with every clause"),
]
_FIRST, _, _LAST = os.environ.get("MERGE_SEEDS", "0:3").partition(":")
SEEDS = range(int(_FIRST), int(_LAST))
STATEMENTS = 4
SCHEMA = pa.schema([
    ("id", pa.int64()), ("v", pa.int64()), ("n", pa.string()), ("ts", pa.int64()), ("city", pa.string()),
])  # fmt: skip
NAMES = SCHEMA.names

Row = dict[str, Any]
Expression = tuple[str, Callable[[Row, Row], Any]]
"""As SQL, and of a row of the table and one of the source; {} where one is missing"""


def _greater(one: Any, other: Any) -> bool | None:
    return None if one is None or other is None else one > other


def _sum(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


ALWAYS: Expression = ("", lambda t, s: True)
OF_BOTH: list[Expression] = [
    ("s.v > t.v", lambda t, s: _greater(s["v"], t["v"])),
    ("s.ts >= t.ts OR t.n IS NULL", lambda t, s: s["ts"] >= t["ts"] or t["n"] is None),
    ("NOT (s.v > t.v) AND s.n = 'x'",
     lambda t, s: _greater(s["v"], t["v"]) is False and s["n"] == "x"),
    ("t.id % 2 = 0", lambda t, s: t["id"] % 2 == 0),
]  # fmt: skip
OF_SOURCE: list[Expression] = [
    ("s.v > 4", lambda t, s: _greater(s["v"], 4)), ("s.n IS NOT NULL", lambda t, s: s["n"] is not None),
    ("s.id < 9", lambda t, s: _greater(9, s["id"])),
]  # fmt: skip
OF_TABLE: list[Expression] = [
    ("t.v < 4", lambda t, s: _greater(4, t["v"])), ("t.n IS NULL", lambda t, s: t["n"] is None),
    ("t.id > 3", lambda t, s: t["id"] > 3),
]  # fmt: skip
VALUES: dict[str, list[Expression]] = {
    "v": [
        ("s.v", lambda t, s: s["v"]), ("t.v + s.v", lambda t, s: _sum(t["v"], s["v"])),
        ("DEFAULT", lambda t, s: None),
        ("CASE WHEN s.v > t.v THEN 1 ELSE 2 END", lambda t, s: 1 if _greater(s["v"], t["v"]) else 2),
    ],
    "n": [("concat(t.n, s.n)", lambda t, s: _sum(t["n"], s["n"])), ("'set'", lambda t, s: "set")],
    "ts": [("s.ts", lambda t, s: s["ts"]), ("t.ts + 1", lambda t, s: t["ts"] + 1)],
}  # fmt: skip
OF_TABLE_VALUES: dict[str, list[Expression]] = {
    "v": [("t.v * 2", lambda t, s: None if t["v"] is None else t["v"] * 2), ("NULL", lambda t, s: None)],
    "n": [("'left'", lambda t, s: "left")],
}  # fmt: skip
STAR: dict[str, Expression] = {name: (f"s.{name}", lambda t, s, name=name: s[name]) for name in NAMES}
ONS: list[Expression] = [
    ("t.id = s.id", lambda t, s: t["id"] == s["id"]),
    ("s.id = t.id AND (t.city = s.city)", lambda t, s: t["id"] == s["id"] and t["city"] == s["city"]),
    ("t.id = s.id AND t.v > 3", lambda t, s: t["id"] == s["id"] and _greater(t["v"], 3)),
]


@dataclass(frozen=True)
class Clause:
    kind: str
    action: str
    condition: Expression
    values: dict[str, Expression] = field(default_factory=dict)
    star: bool = False

    def text(self) -> str:
        kind = {"matched": "MATCHED", "new": "NOT MATCHED", "left": "NOT MATCHED BY SOURCE"}[self.kind]
        asked = f" AND {self.condition[0]}" if self.condition[0] else ""
        if self.action == "DELETE":
            done = "DELETE"
        elif self.action == "UPDATE":
            given = ", ".join(f"{name} = {value[0]}" for name, value in self.values.items())
            done = "UPDATE SET " + ("*" if self.star else given)
        else:
            columns, given = ", ".join(self.values), ", ".join(value[0] for value in self.values.values())
            done = "INSERT " + ("*" if self.star else f"({columns}) VALUES ({given})")
        return f"WHEN {kind}{asked} THEN {done}"


class Refused(Exception):
    """What the oracle finds that cannot be."""


class Oracle:
    """The table. ``deleted``: ordering values of deletes; an older row does not come back."""

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.rows: dict[int, Row] = {}
        self.deleted: dict[int, int] = {}

    def merge(self, source: list[Row], on: Expression, clauses: list[Clause]) -> None:
        done: dict[int | None, list[tuple[str, Row]]] = {}

        def act(kind: str, t: Row, s: Row) -> None:
            clause = next((c for c in clauses if c.kind == kind and c.condition[1](t, s)), None)
            if clause is None:
                return
            given = {name: value[1](t, s) for name, value in clause.values.items()}
            row = {**dict.fromkeys(NAMES), **t, **given}
            if clause.action == "INSERT" and (row["id"] is None or row["id"] in self.rows):
                raise Refused(row)
            done.setdefault(row["id"], []).append((clause.action, row))

        for s in source:
            matched = [t for t in self.rows.values() if on[1](t, s)]
            for t in matched:
                act("matched", t, s)
            if not matched:
                act("new", {}, s)
        for t in self.rows.values():
            if not any(on[1](t, s) for s in source):
                act("left", t, {})
        for key, actions in done.items():
            if len(actions) > 1 and {action for action, _ in actions} != {"DELETE"}:
                raise Refused(key)
        for key, ((action, row), *_) in done.items():
            assert key is not None
            there = self.rows.get(key)
            seen = there["ts"] if there else self.deleted.get(key)
            if self.ordered and seen is not None and row["ts"] < seen:
                continue
            if action == "DELETE":
                self.deleted[key] = self.rows.pop(key)["ts"]
            else:
                self.rows[key] = row
                self.deleted.pop(key, None)


def _city(key: int | None) -> str:
    return ("oslo", "rome")[(key or 0) % 2]


def _source(made: random.Random) -> list[Row]:
    keys: list[int | None] = made.sample(range(12), made.randrange(1, 7))
    if made.random() < 0.2:
        keys.append(made.choice(keys))
    if made.random() < 0.2:
        keys.append(None)
    return [
        {"id": key, "v": made.choice([None, *range(8)]), "n": made.choice([None, "x", "y"]),
         "ts": made.randrange(5, 15), "city": _city(key)}
        for key in keys
    ]  # fmt: skip


def _some(made: random.Random, values: dict[str, list[Expression]]) -> dict[str, Expression]:
    names = made.sample(sorted(values), made.randrange(1, len(values) + 1))
    return {name: made.choice(values[name]) for name in names}


def _conditions(made: random.Random, conditions: list[Expression], most: int) -> list[Expression]:
    """Of as many clauses; only the last may have none."""
    found = made.sample(conditions, made.randrange(most))
    return [*found, ALWAYS] if made.random() < 0.7 else found


def _clauses(made: random.Random) -> list[Clause]:
    found: list[Clause] = []
    for condition in _conditions(made, OF_BOTH, 3):
        way = made.choice(["DELETE", "star", "star", "some", "some"])
        if way == "DELETE":
            found.append(Clause("matched", "DELETE", condition))
        elif way == "star":
            found.append(Clause("matched", "UPDATE", condition, STAR, star=True))
        else:
            found.append(Clause("matched", "UPDATE", condition, _some(made, VALUES)))
    for condition in _conditions(made, OF_SOURCE, 2):
        partial = {"id": STAR["id"], "ts": STAR["ts"], "city": STAR["city"], "v": ("s.v + 1", _one_more)}
        star = made.random() < 0.6
        found.append(Clause("new", "INSERT", condition, STAR if star else partial, star=star))
    if made.random() < 0.4:
        for condition in _conditions(made, OF_TABLE, 2):
            values = _some(made, OF_TABLE_VALUES)
            one = Clause("left", "UPDATE", condition, values)
            found.append(Clause("left", "DELETE", condition) if made.random() < 0.4 else one)
    return found or [Clause("new", "INSERT", ALWAYS, STAR, star=True)]


def _one_more(t: Row, s: Row) -> Any:
    return _sum(s["v"], 1)


def _rows(path: Path) -> dict[int, Row]:
    found = mainstem.open_table(str(path)).scan(columns=NAMES).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


@pytest.mark.parametrize("seed", SEEDS)
def test_merges_made_at_random_leave_what_an_oracle_says(spark: SparkSession, tmp_path: Path, seed: int):
    made = random.Random(seed)
    ordered, partitioned = made.random() < 0.7, made.random() < 0.5
    table = mainstem.create_table(
        str(tmp_path), SCHEMA, record_key="id", ordering=["ts"] if ordered else [], buckets=2,
        partition_by=["city"] if partitioned else [],
    )  # fmt: skip
    oracle = Oracle(ordered)
    first = [{"id": i, "v": made.choice([None, *range(8)]), "n": "n", "ts": 10, "city": _city(i)}
             for i in range(7)]  # fmt: skip
    table.upsert(pa.Table.from_pylist(first, SCHEMA))
    oracle.rows = {row["id"]: row for row in first}
    for number in range(STATEMENTS):
        source, on, clauses = _source(made), made.choice(ONS), _clauses(made)
        text = f"MERGE INTO mainstem.`{tmp_path}` t USING {{source}} s ON {on[0]}\n" + "\n".join(
            clause.text() for clause in clauses
        )
        frame = spark.createDataFrame(pa.Table.from_pylist(source, SCHEMA))
        told = f"seed {seed}, statement {number}:\n{text}\n{source}\n{oracle.rows}"
        try:
            oracle.merge(source, on, clauses)
        except Refused:
            with pytest.raises(Invalid):
                ms.sql(spark, text, source=frame)
                pytest.fail(f"was not refused: {told}")
        else:
            try:
                ms.sql(spark, text, source=frame)
            except Invalid as error:
                pytest.fail(f"{error}: {told}")
        assert _rows(tmp_path) == oracle.rows, told
