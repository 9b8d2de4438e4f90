"""Parsers of what mainstem alone writes, and of the streaming guards in commits."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from functools import cache

import pyarrow as pa

from mainstem.flink.committer import _part_names
from mainstem.flink.part_files import PartFiles
from mainstem.spark.jobs import Job, decode_job, encode_job
from mainstem.storage import paths
from mainstem.storage.backends import location_of
from mainstem.storage.local import LocalStorage
from mainstem.writers.staged_rows import Stager
from mainstem.writers.stream_guard import GUARD_KEY, STREAM_KEY, StreamGuard, _facts
from mainstem.writers.write_ordinals import StreamWrite
from tests.fuzz.corpus import INSTANT
from tests.fuzz.files import folder, in_file
from tests.fuzz.harness import Target

_SINK = "t1"
_PART = f"{paths.committables_folder(_SINK)}/part-0"
_SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])


def _table():
    import mainstem

    path = folder() / "a table"
    if not path.exists():
        mainstem.create_table(path, _SCHEMA, record_key="id", partition_by="city", buckets=2)
    return mainstem.open_table(path)


def _part(storage: LocalStorage) -> object:
    """What a part names are places for rows inside the table."""
    part = PartFiles(storage, _SINK).read("part-0")
    assert part is not None
    for one in part.committables:
        assert (paths.is_stamp(one.stamp) and one.rows > 0) or paths.is_stamp(one.instead)
        for piece in one.pieces:
            assert not piece.partition or paths.inside(piece.partition, source="f") == piece.partition
    return [one.line() for one in part.committables]


@cache  # the same bytes in every run: what is mutated may not depend on the time or on chance
def _parts() -> list[bytes]:
    table = _table()
    storage = LocalStorage(table.path, sync=False)
    stager = Stager(storage, table.staging_spec(_SCHEMA), _SINK, random.Random(1))
    rows = pa.table({"id": ["a", "b", "c"], "city": ["x", "y", "x"], "n": [1, 2, 3]}, _SCHEMA)
    lines = [stager.stage(rows), stager.stage(rows.slice(1))]
    lines = [re.sub(r'(?<="table":")\w+', "0" * 16, line) for line in lines]  # of the table's path
    return ["".join(f"{line}\n" for line in some).encode() for some in (lines[:1], lines)]


def _is_prefix(whole: list, found: list) -> bool:
    return whole[: len(found)] == found


def _job(data: bytes) -> object:
    return decode_job(data, "f", "t")


def _jobs() -> list[bytes]:
    guard = StreamGuard("stream", 3, 1)
    with _table().begin("upsert") as txn:
        spec = dataclasses.replace(txn.detach(), location=location_of("/t"), instant=INSTANT)
    counted = StreamWrite("stream", "query", 3, "run", "write", "looks")
    jobs = (Job(guard, counted), Job(guard, counted, spec), Job(ended=True))
    return [encode_job(job) for job in jobs]


def _guard(data: bytes) -> object:
    """The texts that a commit's metadata holds about streams; the first byte says which."""
    text = data[1:].decode("utf-8", "replace")
    kind = data[0] % 3 if data else 0
    if kind == 2:
        return sorted(_part_names({"mainstem.flink.parts": text}, INSTANT))
    return _facts(INSTANT, {(GUARD_KEY, STREAM_KEY)[kind]: text}, "f")


def _guards() -> list[bytes]:
    texts = (["stream", 3, 0], {"stream": "3"}, ["part-0", "part-1"])
    return [bytes([i]) + json.dumps(text).encode() for i, text in enumerate(texts)]


def _equal_or_refused(whole: object, found: object) -> bool:
    return whole == found


OWN_TARGETS = [
    Target("part file of Flink's committables", in_file(_PART, _part), _parts, _is_prefix, slow=True),
    Target("record of a Spark job", _job, _jobs, _equal_or_refused),
    Target("streaming guards of a commit", _guard, _guards, lambda whole, found: True),
]
