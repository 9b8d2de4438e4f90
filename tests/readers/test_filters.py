"""Goal: a filter sees merged rows, whatever is left unread for it.

Method: random slices (a base file of several row groups, data and delete blocks, nulls, NaN, ties,
one, two or no ordering fields, files that lack a column) are read with a filter and compared with
the full read filtered afterwards. A storage that counts shows that less is read.
"""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.formats.avro_schema import arrow_to_avro
from mainstem.formats.log_file import data_block, delete_block
from mainstem.merge.modes import IGNORE_DEFAULTS
from mainstem.merge.rules import KEY_COLUMN, MergeRules
from mainstem.readers.planning.query_schema import filter_columns
from mainstem.readers.rows import base_rows
from mainstem.readers.rows.split import ReadSpec, Split, read_split
from tests.storage.steps import storage_at

pytestmark = pytest.mark.versions
USER = pa.schema(
    [
        ("ts", pa.int64()),
        ("level", pa.int32()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("many", pa.list_(pa.int64())),
    ]
)
META = [
    pa.field(n, pa.string())
    for n in ("_hoodie_commit_time", "_hoodie_commit_seqno", KEY_COLUMN, "_hoodie_partition_path",
              "_hoodie_file_name")
]  # fmt: skip
SCHEMA = pa.schema([*META, *USER])
AVRO = arrow_to_avro(USER, table_name="t", meta_fields=True)
ORDERINGS = ((), ("ts",), ("level", "ts"), ("price",), ("name",))
INSTANT = "20260101000000000"
FILE = "00000000-0000-0000-0000-000000000000-0"

field = pc.field
FILTERS = (
    field("ts") > 5,
    field("ts") < 0,
    (field("ts") >= 3) & (field("ts") <= 4),
    field("name") == "b",
    field("name").isin(["a", "zz"]),
    field("name").is_null(),
    field("price") > 2.0,
    ~(field("price") <= 2.0),
    field("price") != 2.0,
    field("price").is_nan(),
    field("level").is_valid() & ~(field("level") == 2),
    field(KEY_COLUMN) == "k3",
    field("ts") + field("level") > 6,
    field("ts") > field("level"),
    pc.list_value_length(field("many")) > 1,
    (field("name") == "c") | field("ts").is_null(),
    field("ts").is_null() | (field("price") < 1),
    pc.scalar(True),
    pc.scalar(False),
)
COLUMNS = (tuple(SCHEMA.names), ("name",), (KEY_COLUMN, "many", "price"), ("level",), ())


def some_rows(random: np.random.Generator, keys: list[str], clustered: bool) -> pa.Table:
    count = len(keys)

    def maybe(values, kind):
        mask = random.random(count) < 0.15
        return pa.array([None if m else v for v, m in zip(values, mask, strict=True)], kind)

    ts = np.sort(random.integers(0, 9, count)) if clustered else random.integers(0, 9, count)
    prices = [float("nan") if p == 4 else float(p) for p in random.integers(0, 5, count)]
    lists = [list(range(n)) for n in random.integers(0, 3, count)]
    return pa.Table.from_arrays(
        [
            *(pa.array([f"{m.name[-4:]}{i}" for i in range(count)]) for m in META[:2]),
            pa.array(keys),
            *(pa.array([m.name[-4:]] * count) for m in META[3:]),
            maybe(ts.tolist(), pa.int64()),
            maybe(random.integers(0, 4, count).tolist(), pa.int32()),
            maybe([chr(97 + int(n)) for n in random.integers(0, 4, count)], pa.string()),
            maybe(prices, pa.float64()),
            maybe(lists, pa.list_(pa.int64())),
        ],
        schema=SCHEMA,
    )


def some_deletes(random: np.random.Generator, keys: list[str], ordering: tuple[str, ...]) -> list:
    if not ordering or random.random() < 0.4:
        values = None
    else:
        table = some_rows(random, keys, False)
        values = [pc.fill_null(table.column(n), fill(n)).combine_chunks() for n in ordering]
    return delete_block(INSTANT, AVRO, pa.array(keys), "", values)


def fill(name: str):
    return {"name": "a", "price": 1.0}.get(name, 1)


def some_slice(folder, seed: int) -> Split:
    """A base file (or none) and up to three log files, written as bytes; no timeline."""
    random = np.random.default_rng(seed)
    ordering = ORDERINGS[int(random.integers(len(ORDERINGS)))]
    pool = [f"k{i}" for i in range(int(random.integers(1, 40)))]
    storage = storage_at(folder)
    base = None
    if random.random() < 0.8:
        base = f"{FILE}_0-1-0_{INSTANT}_{seed}.parquet"
        keys = [k for k in pool if random.random() < 0.7]
        rows = some_rows(random, keys, clustered=random.random() < 0.5)
        if random.random() < 0.2:
            rows = rows.drop_columns(["level"])
        sink = io.BytesIO()
        pq.write_table(rows, sink, row_group_size=int(random.integers(1, 12)))
        storage.put_new(base, sink.getvalue(), durable=False)
    logs = []
    for version in range(1, int(random.integers(1, 4))):
        name = f".{FILE}_{INSTANT}.log.{version}_{seed}-0-0"
        blocks: list = []
        for _ in range(int(random.integers(0, 3))):
            keys = random.choice(pool, int(random.integers(1, len(pool) + 1))).tolist()
            if random.random() < 0.3:
                blocks += some_deletes(random, sorted(set(keys)), ordering)
            else:
                blocks += data_block(INSTANT, AVRO, some_rows(random, keys, False))
        storage.put_new(name, blocks, durable=False)
        logs.append(name)
    partial = IGNORE_DEFAULTS if random.random() < 0.15 else None
    spec = ReadSpec(SCHEMA, tuple(SCHEMA.names), MergeRules(ordering=ordering, partial=partial))
    return Split("", FILE, base, tuple(logs), spec)


def asked(split: Split, expression, columns) -> Split:
    extra = tuple(filter_columns(SCHEMA, expression))
    names = tuple(dict.fromkeys(columns))
    return replace(split, spec=replace(split.spec, filter=expression, columns=names, extra=extra))


def read(folder, split: Split) -> pa.Table:
    schema = pa.schema([SCHEMA.field(n) for n in split.spec.columns])
    tables = list(read_split(storage_at(folder), split))
    if not schema.names:
        return pa.table({"rows": pa.nulls(sum(t.num_rows for t in tables))})
    return pa.concat_tables([schema.empty_table(), *tables])


def as_set(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.supports("Queries", "filters pushed down to row groups and log blocks")
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), which=st.sampled_from(FILTERS), columns=st.sampled_from(COLUMNS))
def test_a_filtered_read_is_the_full_read_filtered(tmp_path, seed, which, columns):
    folder = tmp_path / f"{seed}"
    split = some_slice(folder, seed) if not folder.exists() else None
    if split is None:
        return
    whole = read(folder, split).filter(which)
    names = tuple(dict.fromkeys(columns))
    expected = whole.select(list(names)) if names else pa.table({"rows": pa.nulls(whole.num_rows)})
    small = seed % 3 == 0
    with pytest.MonkeyPatch.context() as patch:
        if small:  # several batches per row group
            patch.setattr(base_rows, "BATCH_ROWS", 3)
        found = read(folder, asked(split, which, columns))
    assert as_set(found) == as_set(expected)
    assert found.schema.equals(expected.schema)
