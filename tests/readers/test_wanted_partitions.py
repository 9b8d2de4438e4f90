"""Goal: a filter that fixes partition columns lists only their partitions, and misses no row.

Method: listings are counted on tables of 10 and 1,000 partitions; tables of random values under every key
generator, with folders as other writers' options make them, are read with a filter and filtered afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.layout.key_generator import KeyGenerator
from mainstem.layout.wanted_folders import Level, WantedFolders
from tests.storage.steps import store_kind

HIVE = "hoodie.datasource.write.hive_style_partitioning"
ENCODE = "hoodie.datasource.write.partitionpath.urlencode"
SLASHES = "hoodie.datasource.write.slash.separated.date.partitioning"
METADATA = "hoodie.metadata.enable"


def _noting(verb: Callable, found: list[str]) -> Callable:
    def call(self: object, path: str, *given: object, **named: object) -> object:
        if not path.startswith(".hoodie"):
            found.append(path)
        return verb(self, path, *given, **named)

    return call


@contextmanager
def _listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders outside of .hoodie that are listed, and the files there that are looked at."""
    found: list[str] = []
    kind = store_kind()
    with monkeypatch.context() as patched:
        for verb in ("names", "entries", "stat", "file_info"):
            if not hasattr(kind, verb):
                continue

            patched.setattr(kind, verb, _noting(getattr(kind, verb), found))
        yield found


def _many(path: Path, count: int, *, metadata: bool, columns: tuple[str, ...] = ("part",)) -> mainstem.Table:
    schema = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in columns)])
    table = mainstem.create_table(
        path, schema, record_key="id", partition_by=columns, buckets=1,
        properties={METADATA: metadata, "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False},
    )  # fmt: skip
    names = [f"p{i}" for i in range(count)]
    table.upsert({"id": list(range(count)), **dict.fromkeys(columns, names)})
    return table


def _asked(table_path: Path, monkeypatch: pytest.MonkeyPatch, filter: pc.Expression, rows: int) -> list[str]:
    table = mainstem.open_table(table_path)
    with _listed(monkeypatch) as listed:
        assert table.scan(filter=filter).to_arrow().num_rows == rows
    return [one for one in listed if "/." not in f"/{one}" and not one.endswith(".parquet")]


@pytest.mark.parametrize("metadata", [False, True])
def test_one_partition_costs_as_much_of_10_as_of_1000(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata: bool
) -> None:
    for count in (10, 1000):
        _many(tmp_path / str(count), count, metadata=metadata)
    for count in (10, 1000):
        place = tmp_path / str(count)
        assert _asked(place, monkeypatch, pc.field("part") == "p7", 1) == ([] if metadata else ["", "p7"])
        two = pc.field("part").isin(["p7", "p3", "absent"]) & (pc.field("id") >= 0)
        assert sorted(_asked(place, monkeypatch, two, 2)) == ([] if metadata else ["", "p3", "p7"])
        assert _asked(place, monkeypatch, pc.field("part") == "absent", 0) == ([] if metadata else [""])


def test_a_leading_column_is_enough_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _many(tmp_path, 20, metadata=False, columns=("year", "month"))
    leading = _asked(tmp_path, monkeypatch, pc.field("year") == "p7", 1)
    assert leading == ["", "p7", "p7/p7"]
    both = (pc.field("year") == "p7") & (pc.field("month") == "p8")
    assert _asked(tmp_path, monkeypatch, both, 0) == ["", "p7"]
    assert len(_asked(tmp_path, monkeypatch, pc.field("month") == "p7", 1)) == 41


@pytest.mark.parametrize("metadata", [False, True])
def test_an_explanation_counts_the_partitions_that_were_not_listed(tmp_path: Path, metadata: bool) -> None:
    table = _many(tmp_path, 20, metadata=metadata)
    told = table.scan(filter=pc.field("part") == "p7").explain()
    assert (told.partitions, told.partitions_read) == (20, 1)
    assert str(told.cuts[0]) == "partition path: left out 19 of 20 partitions"


def test_a_partition_with_another_number_of_folders_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _many(tmp_path, 3, metadata=False, columns=("year", "month"))
    with monkeypatch.context() as patched:
        elsewhere = (np.zeros(1, np.int64), ["elsewhere"])
        patched.setattr(KeyGenerator, "partitions", lambda self, rows: elsewhere)
        table.upsert({"id": [100], "year": ["p1"], "month": ["p1"]})
    found = table.scan(filter=(pc.field("year") == "p1") & (pc.field("month") == "p1")).to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 100]


def test_a_vanished_partition_is_damage_if_it_is_wanted(tmp_path: Path) -> None:
    table = _many(tmp_path, 3, metadata=False)
    store = table.opened.seams.storage
    for name in store.names("p1"):
        store.delete(f"p1/{name}")
    assert table.scan(filter=pc.field("part") == "p2").to_arrow().num_rows == 1
    with pytest.raises(CorruptTable):
        table.scan(filter=pc.field("part") == "p1").to_arrow()


def test_folders_of_other_forms_are_kept() -> None:
    plain = WantedFolders((Level("p", frozenset({"a", "2024-01-02", "b/c"}), False),), 1, False, False)
    assert all(map(plain.keeps, ["", "a", "p=z", "a%20", "__HIVE_DEFAULT_PARTITION__", "default"]))
    assert all(map(plain.keeps, ["b", "b/c", "b/c/d", "2024", "2024/01"]))
    assert not any(map(plain.keeps, ["z", "ab", "c", "b/z", "b/cc", "2025", "2024-01-03"]))
    hive = WantedFolders((Level("p", frozenset({"a/b", "é"}), False),), 1, True, True)
    assert all(map(hive.keeps, ["p=a%2Fb", "p=a/b", "p=%C3%A9", "p=%61", "p=9%", "p=é", "a", "q=a"]))
    assert not any(map(hive.keeps, ["p=z", "p=b", "p=a%2Fc"]))
    numbers = WantedFolders(
        (Level("y", frozenset({"7"}), True), Level("m", frozenset({"1"}), True)), 2, False, False
    )
    assert all(map(numbers.keeps, ["7", "07", "x", "7/1", "7/01", "7/1/3", "x/2"]))
    assert not any(map(numbers.keeps, ["8", "8/1", "7/2", "-7"]))


TEXTS = ["a", "b", "a b", "ab", "A", "é", "a,b", "x-1", "2024-01-02", "2024-01-03", "2024", "7", "07", "None",
         "null", "__null__", "default", None, ""]  # fmt: skip
ODD = ["a/b", "100%", "p=a", "a:b", "..", "//", "a/b/c", "%61"]
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
    "hoodie.keygen.timebased.timezone": "UTC",
}
GENERATOR = "hoodie.table.keygenerator.type"


def _random_table(dice: random.Random, path: Path) -> tuple[mainstem.Table, dict[str, list], list[str]]:
    """A table, values for its columns, and its partition columns."""
    layout = dice.choice(["text", "number", "two", "date", "time", "custom", "slashes", "mixed"])
    encode, hive = dice.random() < 0.4, dice.random() < 0.4
    texts = TEXTS + (ODD if encode else [])
    properties = {HIVE: hive, ENCODE: encode, METADATA: dice.random() < 0.5,
                  "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False}  # fmt: skip
    kinds = {"p": pa.string(), "q": pa.string(), "n": pa.int32(), "d": pa.date32(), "t": pa.int64()}
    values = {"p": texts, "q": texts, "n": [0, 7, -3, 12, None], "d": [date(2024, 1, d) for d in (1, 2, 3)],
              "t": [0, 86_400_000, 1_700_000_000_000]}  # fmt: skip
    by = {"text": ["p"], "number": ["n"], "two": ["p", "q"], "date": ["d"], "time": ["t"], "slashes": ["p"],
          "custom": ["p", "t"], "mixed": ["n", "p"]}[layout]  # fmt: skip
    fields = by
    if layout == "time":
        properties |= {GENERATOR: "TIMESTAMP", **TIMES}
    if layout == "custom":
        fields = ["p:SIMPLE", "t:TIMESTAMP"]
        properties |= {GENERATOR: "CUSTOM", **TIMES}
    if layout == "slashes":
        properties |= {SLASHES: True, HIVE: False, ENCODE: False}
        values["p"] = ["2024-01-02", "2024-01-03", "2025-01-02", None]
    schema = pa.schema([("id", pa.int64()), *((name, kinds[name]) for name in by)])
    table = mainstem.create_table(
        path, schema, record_key="id", partition_by=fields, buckets=1, properties=properties
    )
    return table, values, by


def _condition(dice: random.Random, name: str, values: list) -> pc.Expression:
    column, given = pc.field(name), [v for v in values if v is not None]
    return dice.choice([
        lambda: column == dice.choice(given),
        lambda: pc.scalar(dice.choice(given)) == column,
        lambda: column.isin(dice.sample(given, 2)),
        lambda: column.isin([*dice.sample(given, 1), None]),
        lambda: (column == dice.choice(given)) | (column == dice.choice(given)),
        lambda: column != dice.choice(given),
        lambda: column.is_null(),
        lambda: column >= dice.choice(given),
    ])()  # fmt: skip


@contextmanager
def _other_options(dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Partition paths as a writer makes them whose options differ from the table's."""
    real, other = KeyGenerator.partitions, dice.choice(["hive_style", "url_encode"])

    def partitions(self: KeyGenerator, rows: pa.Table) -> tuple[np.ndarray, list[str]]:
        return real(replace(self, **{other: not getattr(self, other)}), rows)

    with monkeypatch.context() as patched:
        patched.setattr(KeyGenerator, "partitions", partitions)
        yield


def _written(table: mainstem.Table, given: pa.Table) -> None:
    """Write all rows whose values make a usable folder name."""
    try:
        table.upsert(given)
    except Invalid:
        for row in range(given.num_rows):
            with suppress(Invalid):
                table.upsert(given.slice(row, 1))


@pytest.mark.parametrize("seed", range(24))
def test_a_filter_finds_the_rows_that_filtering_afterwards_finds(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    table, values, by = _random_table(dice, tmp_path / "t")
    for batch in range(3):
        rows = {"id": list(range(12 * batch, 12 * batch + 12))}
        rows |= {name: [dice.choice(values[name]) for _ in range(12)] for name in by}
        given = pa.table({n: pa.array(v, table.schema.field(n).type) for n, v in rows.items()})
        odd = batch == 1 and dice.random() < 0.5
        with _other_options(dice, monkeypatch) if odd else nullcontext():
            _written(table, given)
    every = table.scan().to_arrow()
    for name in by:
        if name == "t" and every.schema.field(name).type == pa.string():  # times are shown as texts
            values[name] = every[name].to_pylist()
    for _ in range(30):
        condition = _condition(dice, by[0], values[by[0]])
        if dice.random() < 0.5:
            condition = condition & _condition(dice, by[-1], values[by[-1]])
        found = table.scan(filter=condition).to_arrow()
        expected = every.filter(condition)
        assert sorted(found["id"].to_pylist()) == sorted(expected["id"].to_pylist()), str(condition)
