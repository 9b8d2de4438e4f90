"""What the table's properties, the options and the indexes show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mainstem.doctor.examined_table import ExaminedTable
from mainstem.doctor.finding import ERROR, NOTE, WARNING, Finding
from mainstem.errors import MainstemError
from mainstem.indexing.status import LEFT_OVER, indexes
from mainstem.layout.key_index import table_index
from mainstem.limits import LOCK_FILE_BYTES_MAX
from mainstem.merge.rules import merge_rules
from mainstem.metadata.metadata_partitions import RECORD_INDEX
from mainstem.options import WriterOptions
from mainstem.options.tables import EXCLUSIVE
from mainstem.publish.fence_notes import FOREIGN_NOTE
from mainstem.readers.skipping.other_engines import is_ours, stranger_since_built
from mainstem.services.archive_plan import ArchiveOptions
from mainstem.services.compaction_plan import CompactionOptions
from mainstem.services.log_compaction_plan import LogCompactionOptions
from mainstem.services.service_switches import RunOptions
from mainstem.storage import paths

_NEWEST = 50
_OURS, _OTHERS = "mainstem", "another engine"


def setting_findings(table: ExaminedTable) -> Iterator[Finding]:
    """Raises ``CorruptTable``, ``OSError``."""
    yield from _options(table)
    yield from _lock(table)
    yield from _engines(table)
    yield from _indexes(table)


def _options(table: ExaminedTable) -> Iterator[Finding]:
    try:
        table.config.check_writable(table.storage.base)
    except MainstemError as error:
        yield Finding(NOTE, "only read", error.message, {"table version": table.config.version})
    read: tuple[Callable[[Mapping[str, str]], Any], ...] = (
        lambda _: WriterOptions.from_properties(table.given, table.config.raw),
        RunOptions.from_properties, CompactionOptions.from_properties, LogCompactionOptions.from_properties,
        ArchiveOptions.from_properties, merge_rules,
    )  # fmt: skip
    told = set()
    for each in read:
        try:
            each(table.properties)
        except MainstemError as error:
            if error.message not in told:
                told.add(error.message)
                yield Finding(
                    ERROR, "options", f"writers or services are refused: {error.message}", {},
                    table.command("properties"),
                )  # fmt: skip


def _lock(table: ExaminedTable) -> Iterator[Finding]:
    if isinstance(table.lock, MainstemError):
        yield Finding(ERROR, "lock", f"this process cannot take the table's lock: {table.lock.message}")
        return
    try:
        noted = table.storage.read(paths.LOCK_NOTE, max_bytes=LOCK_FILE_BYTES_MAX).decode("utf-8", "replace")
    except FileNotFoundError:
        return
    if noted and noted != table.lock:
        yield Finding(
            WARNING, "lock",
            "this process would take another lock than the table's writers took: they would not exclude each"
            " other, so a write is refused, or, if the table was copied, takes the new place's lock",
            {"writers took": noted, "this process": table.lock},
        )  # fmt: skip


def _engines(table: ExaminedTable) -> Iterator[Finding]:
    writes = table.state.writes
    counted: Counter[str] = Counter()
    for instant in sorted(writes, key=lambda i: i.completion or "")[-_NEWEST:]:
        try:
            counted[_OURS if is_ours(table.storage, instant.file_name) else _OTHERS] += 1
        except FileNotFoundError:
            continue  # archived meanwhile
    noted = FOREIGN_NOTE in table.storage.names(paths.FENCE)
    if table.config.exclusive and (noted or counted[_OTHERS]):
        yield Finding(
            WARNING, "exclusive table with other engines",
            f"the table is declared {EXCLUSIVE}=true, and another engine wrote it: writers keep clear of its"
            " clock only once they have seen it; remove the property while no writer is open",
            dict(sorted(counted.items())), table.command("properties"),
        )  # fmt: skip
    elif counted[_OTHERS]:
        yield Finding(
            NOTE, "written by several engines" if counted[_OURS] else "written by another engine",
            f"of the newest {counted.total()} writes", dict(sorted(counted.items())),
        )  # fmt: skip


def _indexes(table: ExaminedTable) -> Iterator[Finding]:
    try:
        known = indexes(table.storage, table.config, table.state.timeline)
        opened = table.state.metadata_table
        assert opened is None or opened.config
    except MainstemError as error:
        yield Finding(
            ERROR, "metadata table", f"it cannot be read: {error.message}", {},
            table.command("metadata validate"),
        )  # fmt: skip
        return
    bucketed = table_index(table.config.raw) is None
    for index in known:
        shown = {"index": index.name, "kind": index.kind, "state": index.state}
        if index.state == LEFT_OVER:
            yield Finding(
                WARNING, "index left over", "who built or dropped it is gone; no query uses it", shown,
                table.command("index drop", index.name),
            )  # fmt: skip
            continue
        # On tables without buckets every engine keeps it.
        asked = bucketed and index.kind == str(RECORD_INDEX)
        stranger = stranger_since_built(table.state, index.partition) if asked else None
        if stranger is not None:
            yield Finding(
                WARNING, "index out of use",
                "another engine wrote the table since it was built, and does not keep it: queries leave it"
                " out",
                {**shown, "write": stranger}, table.command("index rebuild", index.name),
            )  # fmt: skip
