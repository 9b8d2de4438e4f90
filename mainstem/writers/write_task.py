"""The executor side of a transaction: a task writes files and returns their write stats to the driver.

On a table without buckets a task hands its rows over, in a file of its own (``unplaced_rows``): the commit
looks where their keys live. Files of attempts that do not count are swept with others that the dead leave.

A task returns bytes (JSON), never live objects. Every attempt has its own write token, so attempts never
touch each other's files. The driver keeps only the files of attempts whose result it was given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.errors import Invalid
from mainstem.limits import MARKERS_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.backends import storage_of
from mainstem.storage.protocol import Storage, drop
from mainstem.telemetry import steps
from mainstem.timeline.commit_metadata import WriteStat
from mainstem.writers.bulk_insert import Overwriter, appender_for, stat_of
from mainstem.writers.encode_rows import BucketEncoder
from mainstem.writers.rows_in import as_table
from mainstem.writers.unplaced_rows import Segment, segment_of
from mainstem.writers.write_spec import WriteSpec

if TYPE_CHECKING:
    import pyarrow as pa

_FIELDS = (
    "partition", "file_id", "file_name", "instant", "version", "writes", "deletes", "size_bytes",
    "blocks", "unshown", "beside",
)  # fmt: skip
_DECIMAL = re.compile(r"^[0-9]{1,10}\Z")


def write_task(
    spec: WriteSpec,
    batches: Iterable[pa.RecordBatch],
    *,
    task_partition: int,
    stage: int,
    attempt: int,
    storage: Storage | None = None,
) -> bytes:
    """Appends all batches of one task attempt, or hands them over; returns the bytes for
    ``Transaction.add_task_result``.

    ``task_partition``, ``stage`` and ``attempt`` make the write token; raises ``Invalid`` if one is no
    number from 0. On any failure the attempt removes its own files.
    """
    storage = storage or storage_of(spec.location, sync=spec.fsync)
    token = f"{task_partition}-{stage}-{attempt}"
    if not all(_DECIMAL.match(part) for part in token.split("-")):
        raise Invalid(f"write token {token!r}: expected three numbers from 0")
    if task_partition >= 2**31:
        raise Invalid(f"task_partition={task_partition}: Hudi reads numbers below 2^31 in file names")
    with steps.step("task", spec.base, parent=spec.trace, operation=spec.operation):
        return _attempt(storage, spec, token, batches)


def _attempt(storage: Storage, spec: WriteSpec, token: str, batches: Iterable[pa.RecordBatch]) -> bytes:
    if spec.placed_at_commit:
        return _handed_over(storage, spec, token, batches)
    appender = appender_for(storage, spec, token)
    if isinstance(appender, Overwriter):
        appender.of_a_part = True
    try:
        for batch in batches:
            appender.write(batch)
        stats = appender.close()
    except BaseException:
        appender.discard()
        raise
    return json.dumps(
        {
            "instant": spec.instant,
            "rows": appender.rows,
            "files": [[getattr(stat, name) for name in _FIELDS] for stat in stats],
        }
    ).encode()


def _handed_over(
    storage: Storage, spec: WriteSpec, token: str, batches: Iterable[pa.RecordBatch]
) -> bytes:
    encoder, segments = BucketEncoder(spec, token), list[Segment]()
    path = paths.task_rows(spec.instant, token)
    sink = None
    try:
        for batch in batches:
            if batch.num_rows:
                segment, data = segment_of(encoder, as_table(batch))
                sink = storage.upload(path) if sink is None else sink
                sink.append([data])
                segments.append(segment)
        if sink is not None:
            sink.close(durable=False)  # a transaction does not outlive a crash of the machine
    except FileExistsError as error:
        raise Invalid(f"two tasks of {spec.instant} have the write token {token}", table=spec.base) from error
    except BaseException:
        if sink is not None:
            drop(sink)
            storage.delete(path)
        raise
    handed = [segment.record() for segment in segments]
    return json.dumps({"instant": spec.instant, "token": token, "segments": handed}).encode()


@dataclass(frozen=True)
class Handed:
    """Rows that a task handed over: where they are, and in which segments."""

    path: str
    segments: tuple[Segment, ...]


def decode_handed(result: bytes, instant: str) -> Handed:
    """What one task handed over. Raises ``Invalid`` for bytes of another kind or instant."""
    try:
        data = json.loads(result)
        found, token = data["instant"], str(data["token"])
        segments = tuple(Segment.parsed(one) for one in data["segments"])
        if not all(_DECIMAL.match(part) for part in token.split("-")):
            raise ValueError(f"write token {token!r}")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _no_result(error) from error
    if found != instant:
        raise Invalid(f"task result of instant {found}, expected {instant}: it is another transaction's")
    return Handed(paths.task_rows(instant, token), segments)


def _no_result(error: Exception) -> Invalid:
    return Invalid(f"this is no task result: {error}; pass on what write_task returned")


def decode_result(result: bytes, instant: str) -> tuple[list[WriteStat], int]:
    """(write stats, number of rows) of one task. Raises ``Invalid`` for bytes of another kind or instant."""
    try:
        data = json.loads(result)
        stats = [stat_of(**dict(zip(_FIELDS, f, strict=True))) for f in data["files"]]
        found, rows = data["instant"], int(data["rows"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise _no_result(error) from error
    if found != instant or any(s.instant != instant for s in stats):
        raise Invalid(f"task result of instant {found}, expected {instant}: it is another transaction's")
    return stats, rows


def marked_files(storage: Storage, instant: str) -> Iterator[tuple[str, str]]:
    """(partition, file name) of every data file that has a marker of this instant: a file of its own, or a
    line of a file of many."""
    for partition, marked in _walk(storage, paths.marker_folder(instant), ""):
        parsed = paths.parse_log_name(marked) or paths.parse_base_name(marked)
        if parsed and parsed.instant == instant:
            yield partition, parsed.name


def _walk(storage: Storage, root: str, partition: str) -> Iterator[tuple[str, str]]:
    """(partition, name) of whatever has a marker."""
    for entry in sorted(storage.entries(paths.in_partition(root, partition) if partition else root),
                        key=lambda e: e.name):  # fmt: skip
        if entry.is_folder:
            yield from _walk(storage, root, paths.in_partition(partition, entry.name))
        elif (name := paths.parse_marker_name(entry.name)) is not None:
            yield partition, name
        elif not partition and paths.is_markers(entry.name):
            yield from _lines(storage, f"{root}/{entry.name}")


def _lines(storage: Storage, path: str) -> Iterator[tuple[str, str]]:
    try:
        text = storage.read(path, max_bytes=MARKERS_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return  # removed since the listing
    yield from filter(None, map(paths.parse_marker_line, text.split("\n")))
