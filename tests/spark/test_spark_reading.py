"""Goal: what Spark is handed for a read is what Python reads, once, whatever dies in between.

Method: the readers are called as Spark calls them, without a session, streams by an engine
that keeps Spark's promises to a source and dies at random. ``test_reading_session`` does the same
in Spark.
"""

from __future__ import annotations

import inspect
import json
import pickle
import random
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.sql.datasource import InputPartition

import mainstem
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.spark.options import ReadOptions
from mainstem.spark.source_readers import BEGINNING, Reader, StreamReader, schema_of
from mainstem.spark.types import spark_schema

pytestmark = pytest.mark.spark
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
    "hoodie.mainstem.fsync": "false",
}
SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string())])


def rows(*values):
    columns = zip(*values, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)


def create(path, **settings):
    given = {"record_key": ["id"], "ordering": ["ts"], "partition_by": ["city"], "buckets": 2}
    mainstem.create_table(path, SCHEMA, **{**given, **settings}, properties=OPTIONS)
    return mainstem.open_table(path, properties=OPTIONS)


# -------------------- options


# -------------------- batches


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"hoodie.datasource.query.incremental.format": "cdc"},
            Invalid,
            "needs hoodie.datasource.query.type",
        ),
        ({"hoodie.mainstem.read.deletes": "true"}, Invalid, "needs hoodie.datasource.query.type"),
        ({"hoodie.datasource.streaming.startOffset": "latest"}, Invalid, "is for readStream"),
        ({"hoodie.mainstem.read.max.instants.per.trigger": 1}, Invalid, "is for readStream"),
    ],
)
def test_options_of_another_kind_of_read_are_refused_by_name(options, error, text) -> None:
    with pytest.raises(error, match=text):
        ReadOptions.parse({"path": "/t", **options})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"hoodie.datasource.streaming.startOffset": "soon"}, Invalid, "earliest, latest or a completion"),
        ({"hoodie.mainstem.read.max.instants.per.trigger": 0}, Invalid, "never read anything"),
        ({"as.of.instant": "20240101000000000"}, Unsupported, "time travel"),
        ({"hoodie.datasource.query.type": "read_optimized"}, Unsupported, "read optimized"),
        (
            {
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.read.begin.instanttime": "0",
            },
            Invalid,
            "a stream begins at",
        ),
    ],
)
def test_options_that_a_stream_cannot_follow_are_refused_by_name(options, error, text) -> None:
    with pytest.raises(error, match=text):
        StreamReader(ReadOptions.parse({"path": "/t", **options}, lenient=True), spark_schema(SCHEMA))


@pytest.mark.supports("Engines", "Spark: option filter, applied by the readers")
def test_a_read_with_a_filter_has_the_rows_that_the_filter_keeps(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows((1, "oslo", 1, "a and b"), (2, "oslo", 1, None), (3, "rome", 1, "c")))
    table.upsert(rows((3, "rome", 2, "a and b")))

    def found(text: str, **options: object) -> list[int]:
        parsed = ReadOptions.parse({"path": str(tmp_path / "t"), "filter": text, **options})
        reader = Reader(parsed, spark_schema(schema_of(parsed)))
        batches = (batch for part in reader.partitions() for batch in reader.read(part))
        return sorted(key for batch in batches for key in batch.column("id").to_pylist())

    assert found("id >= 2") == [2, 3]
    assert found("name = 'a and b' AND city = rome") == [3]
    assert found("name is null and id > 0") == [2]
    assert found("ts = 1 and name is not null") == [1]
    assert found("id >= 2", columns="id") == [2, 3]
    changes = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": "000",
    }
    assert found("city = oslo", **changes) == [1, 2]
    with pytest.raises(Invalid, match=r'option\("filter"\).*no column .nothing.'):
        found("nothing = 1")
    assert found("city in (oslo, 'paris') or not (ts < 2 or name is null)") == [1, 2, 3]
    with pytest.raises(Invalid, match="expected COLUMN OP VALUE"):
        found("id = 1 and city")
    with pytest.raises(Invalid, match="change data has none"):
        found("id = 1", **changes, **{"hoodie.datasource.query.incremental.format": "cdc"})


def test_a_file_that_a_clean_removed_while_it_was_read_is_told_with_what_to_do(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    table.upsert(rows((1, "oslo", 1, "x")))
    parsed = ReadOptions.parse({"path": str(tmp_path / "t")})
    reader = Reader(parsed, spark_schema(schema_of(parsed)))
    (part,) = reader.partitions()
    (log,) = (tmp_path / "t").glob("*/.*.log.*")
    log.unlink()
    with pytest.raises(Unavailable, match=r"was removed while it was read .*raise hoodie\.clean\.commits"):
        list(reader.read(part))


# -------------------- streams


class Engine:
    """What Spark promises a source: offsets are logged before a batch runs, commits after it; a new run
    first repeats the batch that has no commit."""

    def __init__(self, path, **options: object) -> None:
        self.options = {"path": str(path), **options}
        self.offsets: list[dict] = []
        self.commits = 0
        self.sink: dict[int, list] = {}
        self.restart()

    def restart(self) -> None:
        options = ReadOptions.parse(self.options, lenient=True)
        self.reader = StreamReader(options, spark_schema(schema_of(options)))
        if not self.offsets:
            self.offsets.append(self.reader.initialOffset())

    def batch(self, *, die: bool = False) -> int:
        """Run one batch; the rows that it brought."""
        number = self.commits
        start = self.offsets[number]
        if len(self.offsets) == number + 1:
            asked = inspect.signature(self.reader.latestOffset).parameters
            limit = self.reader.getDefaultReadLimit() if asked else None
            end = self.reader.latestOffset(start, limit) if asked else self.reader.latestOffset()
            if end == start:
                return 0
            self.offsets.append(json.loads(json.dumps(end)))
        found = [
            row["id"]
            for part in pickle.loads(pickle.dumps(self.reader.partitions(start, self.offsets[number + 1])))
            for rows in self.reader.read(part)
            for row in rows.to_pylist()
        ]
        self.sink[number] = sorted(found)
        if not die:
            self.commits += 1
            self.reader.commit(self.offsets[number + 1])
        return len(found)

    @property
    def ids(self) -> list[int]:
        return sorted(id for batch in self.sink.values() for id in batch)


@pytest.mark.parametrize("most", [None, 1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_that_dies_anywhere_shows_every_row_once_while_writers_cross(
    seed: int, most: int | None, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    table = create(tmp_path / "t")
    limit = {} if most is None else {"hoodie.mainstem.read.max.instants.per.trigger": most}
    engine = Engine(tmp_path / "t", **limit)
    waiting, number, committed = [], 0, 0
    for _ in range(30):
        action = rng.choice(["begin", "commit", "commit", "batch", "die", "restart"])
        if action == "begin":
            writer = table.begin()
            writer.write(rows(*((number * 10 + k, "ab"[k % 2], 1, "x") for k in range(3))))
            waiting.append(writer)
            number += 1
        elif action == "commit" and waiting:
            waiting.pop(rng.randrange(len(waiting))).commit()
            committed += 1
        elif action == "restart":
            engine.restart()
        elif action in ("batch", "die"):
            engine.batch(die=action == "die")
    for writer in waiting:
        writer.commit()
    while engine.batch():
        pass
    assert engine.ids == sorted(n * 10 + k for n in range(number) for k in range(3))
    assert committed > 1 and len(engine.sink) > 1


def test_a_stream_starts_where_it_is_told_and_takes_so_many_instants_at_a_time(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    done = [table.upsert(rows((n, "a", 1, "x"))) for n in range(5)]
    start = "hoodie.datasource.streaming.startOffset"
    limited = Engine(tmp_path / "t", **{"hoodie.mainstem.read.max.instants.per.trigger": 2})
    later = Engine(tmp_path / "t", **{start: done[2].completion_time})
    latest = Engine(tmp_path / "t", **{start: "latest"})
    engines = (limited, later, latest)
    assert [engine.batch() for engine in engines] == [2, 2, 0]
    table.upsert(rows((9, "a", 1, "x")))
    for engine in engines:
        while engine.batch():
            pass
    assert [engine.ids for engine in engines] == [[0, 1, 2, 3, 4, 9], [3, 4, 9], [9]]


def test_offsets_are_completion_times_and_every_file_slice_is_a_partition(tmp_path: Path) -> None:
    table = create(tmp_path / "t", buckets=4)
    options = ReadOptions.parse({"path": str(tmp_path / "t")}, lenient=True)
    reader = StreamReader(options, spark_schema(table.scan().schema))
    start = reader.initialOffset()
    assert start == {"completion": BEGINNING}
    done = table.upsert(rows(*((n, "ab"[n % 2], 1, "x") for n in range(40))))
    given = (start, None) if inspect.signature(reader.latestOffset).parameters else ()
    end = reader.latestOffset(*given)
    assert end == {"completion": done.completion_time}
    partitions = reader.partitions(start, end)
    assert len(partitions) == 8
    assert sum(b.num_rows for p in partitions for b in reader.read(p)) == 40
    assert reader.partitions(end, end) == []
    assert list(reader.read(InputPartition(None))) == []  # Spark's own, where a query has none
    with pytest.raises(Invalid, match="a restore removed instants"):
        reader.partitions(end, start)
