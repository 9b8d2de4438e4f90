"""Goal: a table's merge mode and partial update mode mean one thing to everybody who reads its properties.

Method: the same properties are given to creation, opening, writing, reading and to the options of a job; what
writers merge by is compared with what readers merge by, on a table whose schema has a default of its own.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.job_table import contradiction
from mainstem.errors import Invalid, Unsupported
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.layout.properties import TableConfig
from mainstem.merge import modes
from mainstem.merge.rules import MergeRules, merge_rules
from mainstem.options.tables import MERGE_MODE, ORDERING_FIELDS, PARTIAL_UPDATES, PRECOMBINE

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.int64())])
QUICK = {"hoodie.mainstem.exclusive": "true", "hoodie.mainstem.fsync": "false"}
FILLING = {PARTIAL_UPDATES: modes.IGNORE_DEFAULTS}
SMALL_LETTERS = {PARTIAL_UPDATES: "ignore_defaults"}
DEFAULT = 7


def make(path: Path, **properties: str) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=1, properties={**QUICK, **properties}
    )


def with_a_default(path: Path) -> mainstem.Table:
    """As another engine may create it: an amount of 7 stands for "not set"."""
    make(path, **FILLING)
    file = path / ".hoodie" / "hoodie.properties"
    raw = dict(parse_properties(file.read_bytes(), path=str(file)))
    schema = json.loads(raw["hoodie.table.create.schema"])
    schema["fields"][2] = {"name": "amount", "type": ["long", "null"], "default": DEFAULT}
    raw["hoodie.table.create.schema"] = json.dumps(schema)
    file.write_bytes(format_properties(raw))
    return mainstem.open_table(path, QUICK)


def rows(*amounts: int) -> pa.Table:
    """Rows of one key, each with a greater ordering value."""
    columns = {"id": ["a"] * len(amounts), "ts": list(range(len(amounts))), "amount": list(amounts)}
    return pa.table(columns, SCHEMA)


@dataclass(frozen=True)
class Options:
    """Of a job: what it wants its table to be."""

    table: dict[str, str]
    path: str = "t"
    operation: str = "upsert"
    given: dict[str, str] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)


def test_a_partial_update_mode_in_small_letters_is_refused_by_all_alike(tmp_path: Path) -> None:
    """Java's readers fail on it, so no table gets it, and none that has it is written or read."""
    with pytest.raises(Unsupported, match="in capitals"):
        make(tmp_path / "new", **SMALL_LETTERS)
    table = make(tmp_path / "t", **FILLING)
    raw = {**table.properties, **SMALL_LETTERS}
    with pytest.raises(Unsupported, match="in capitals"):
        merge_rules(raw)
    with pytest.raises(Unsupported, match="in capitals"):
        TableConfig(raw).check_writable("t")
    wrong = contradiction(Options(SMALL_LETTERS), table.config)
    assert wrong is not None and "contradicts the table" in wrong
    assert contradiction(Options(FILLING), table.config) is None
    with pytest.raises(Invalid, match="contradicts the table"):
        mainstem.open_table(tmp_path / "t", {**QUICK, **SMALL_LETTERS}).upsert(rows(1))


def test_before_version_9_there_is_no_partial_update_mode() -> None:
    for text in ("IGNORE_DEFAULTS", "ignore_defaults", "anything"):
        raw = {"hoodie.table.version": "8", PARTIAL_UPDATES: text}
        assert modes.partial_update_mode(raw) is None and merge_rules(raw).partial is None


@pytest.mark.parametrize(
    ("properties", "mode"),
    [
        ({}, modes.COMMIT_TIME),
        ({ORDERING_FIELDS: "ts"}, modes.EVENT_TIME),
        ({PRECOMBINE: "ts"}, modes.EVENT_TIME),
        ({ORDERING_FIELDS: " ", PRECOMBINE: "ts"}, modes.EVENT_TIME),
        ({ORDERING_FIELDS: "ts", MERGE_MODE: " commit_time_ordering "}, modes.COMMIT_TIME),
        ({ORDERING_FIELDS: "ts", MERGE_MODE: " "}, modes.EVENT_TIME),
    ],
)
def test_table_and_merge_agree_about_the_mode(properties: dict[str, str], mode: str) -> None:
    assert TableConfig(properties).merge_mode == modes.merge_mode(properties) == mode
    assert bool(merge_rules(properties).ordering) == (mode == modes.EVENT_TIME)


def test_writers_and_readers_of_a_table_hold_the_same_complete_rules(tmp_path: Path) -> None:
    table = with_a_default(tmp_path / "t")
    table.upsert(rows(3))
    (split,) = table.scan().splits()
    rules = split.spec.rules
    assert rules.defaults == {"amount": DEFAULT} and rules.partial == modes.IGNORE_DEFAULTS
    assert table.staging_spec(SCHEMA).rules == rules
    assert pickle.loads(pickle.dumps(rules)) == rules
    recorded = json.loads(json.dumps(rules.record()))
    text = table.staging_spec(SCHEMA).user_schema
    assert MergeRules.from_record(recorded).for_schema(text, split.spec.schema) == rules


def test_a_default_is_not_set_in_one_bulk_insert_as_in_two_commits(tmp_path: Path) -> None:
    """The writer that merges rows of one batch knows the schema's defaults, as a reader does."""
    at_once, apart = with_a_default(tmp_path / "at once"), with_a_default(tmp_path / "apart")
    batch = rows(3, DEFAULT)
    at_once.bulk_insert(batch)
    for place in range(2):
        apart.upsert(batch.slice(place, 1))
    for table in (at_once, apart):
        assert table.scan(columns=["amount"]).to_arrow().column("amount").to_pylist() == [3]
