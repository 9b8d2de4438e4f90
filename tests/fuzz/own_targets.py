"""Parsers of what mainstem alone writes, and of the streaming guards in commits."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from functools import cache

import pyarrow as pa

import mainstem
from mainstem.flink.committer import _part_names
from mainstem.flink.part_files import PartFiles
from mainstem.flink.update_pairs import UpdatePairs
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


def _table(*, without_buckets: bool = False) -> mainstem.Table:
    path = folder() / ("a table without buckets" if without_buckets else "a table")
    if not path.exists():
        given = {"hoodie.index.type": "SIMPLE"} if without_buckets else {}
        mainstem.create_table(
            path, _SCHEMA, record_key="id", partition_by="city", buckets=None if without_buckets else 2,
            properties=given,
        )  # fmt: skip
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
    found = [lines[:1], lines, _instead(table), _instead(_table(without_buckets=True))]
    return [_unnamed("".join(f"{line}\n" for line in some)).encode() for some in found]


def _unnamed(lines: str) -> str:
    """Without what depends on the table's path."""
    return re.sub(r'(?<="table":")\w+', "0" * 16, lines)


def _instead(table: mainstem.Table) -> list[str]:
    """Lines of an updating query: deletions, of which the first row's and then the others are taken back."""
    storage, spec = LocalStorage(table.path, sync=False), table.staging_spec(_SCHEMA)
    pairs = UpdatePairs(Stager(storage, spec, _SINK, random.Random(2)), spec, unique_in_table=True)
    rows = pa.table({"id": ["a", "b", "c"], "city": ["x", "y", "x"], "n": [1, 2, 3]}, _SCHEMA)
    lines = pairs.stage(rows, pa.array([False] * 3), pa.array([True] * 3))
    for some in (rows.slice(0, 1), rows.slice(1)):
        none = pa.array([False] * some.num_rows)
        lines += pairs.stage(some, none, none)
    versions = [json.loads(line)["v"] for line in lines]
    assert versions.count(3) == 2, versions
    return lines


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
