"""Makes a table's metadata table, and new partitions of it (HoodieBackedTableMetadataWriter.initialize).

A partition's first files belong to an instant of their own: ``00000000000000000`` + k with the first free k,
or that of the indexing action that builds the partition. Every file group gets a log file with one empty
delete block, so that the number of groups is fixed before any row exists; groups with rows also get a base
file.

  1. ``put_table``: make folders, then put the metadata table's whole ``hoodie.properties``
  2. ``put_partition``: make partition metafile, first log files, base files
  3. [[ the caller publishes the instant: its requested and inflight files, then its completed file ]]
  4. [[ the caller adds the partition to a list in the table's ``hoodie.properties`` ]]

A new table's metadata table exists before the table itself (``put_with_table``): it is made aside and put in
place by one rename. Another process that creates the same table at the same moment never removes it. On an
object store each file is put where it belongs, and whoever puts it, it is the same.

Until step 4 the partition is invisible: a crash leaves files that the next attempt removes first
(``remove_partition``). Readers honour log blocks of these instants whatever the data table's timeline says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from mainstem.errors import Invalid, Unavailable
from mainstem.formats.hfile_write import write_hfile
from mainstem.formats.java_properties import parse_properties
from mainstem.layout.properties import TableConfig, encode_config, table_checksum
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.merge import modes
from mainstem.metadata.commits.taking_back import metadata_partition
from mainstem.metadata.metadata_partitions import Content
from mainstem.metadata.metafile import index_metafile
from mainstem.metadata.records.flat_rows import encode
from mainstem.metadata.records.group_logs import GroupLogs
from mainstem.metadata.records.record_schema import commit_schema
from mainstem.options.placing import KEY_GENERATOR, RECORD_KEY_FIELDS
from mainstem.options.tables import (
    ARCHIVE_FOLDER,
    BASE_FILE_FORMAT,
    DROP_PARTITION_COLUMNS,
    HISTORY_PATH,
    INITIAL_VERSION,
    LAYOUT_VERSION,
    MERGE_MODE,
    PAYLOAD_CLASS,
    POPULATE_META_FIELDS,
    STRATEGY_ID,
    TABLE_CHECKSUM,
    TABLE_NAME,
    TABLE_TYPE,
    TABLE_VERSION,
    TIMELINE_PATH,
)
from mainstem.publish.staging import create_once
from mainstem.storage import paths
from mainstem.storage.folder_storage import FolderStorage
from mainstem.storage.folders import make_folder, move_folder
from mainstem.storage.protocol import Storage
from mainstem.storage.swaps import has_swaps
from mainstem.timeline.active import load_timeline
from mainstem.timeline.commit_metadata import WriteStat, encode_commit
from mainstem.timeline.compaction_trigger import INITIAL
from mainstem.timeline.instant import DELTACOMMIT, INFLIGHT, REQUESTED
from mainstem.truetime.instant_times import instant_text
from mainstem.truetime.seams import Randomness

_OPERATION = "BULK_INSERT_PREPPED"
_TOKEN = "0-0-0"
# the comment of ``encode_config``: "#Thu Jan 01 00:00:00 UTC 2026"
_DATE = re.compile(rb"^#[A-Z][a-z]{2} ([A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d UTC \d{4})\r?$", re.MULTILINE)
_PROPERTIES = f"{paths.METADATA}/{paths.PROPERTIES}"


@dataclass(frozen=True)
class Group:
    """A file group of a new partition: its file id, and its first rows, if any."""

    file_id: str
    content: Content
    rows: pa.Table | None = None


class BaseFileStat(WriteStat):
    """Write statistics of a first base file, in Java's form."""

    def record(self) -> dict[str, object]:
        return super().record() | {
            "prevCommit": "null", "numInserts": self.writes, "numUpdateWrites": 0,
            "logVersion": None, "logOffset": None, "baseFile": None, "logFiles": None,
        }  # fmt: skip


def metadata_properties(config: TableConfig) -> dict[str, str]:
    """``hoodie.properties`` of a table's metadata table."""
    name, version = f"{config.name}_metadata", str(config.version)
    return {
        TABLE_NAME: name,
        TABLE_TYPE: "MERGE_ON_READ",
        TABLE_VERSION: version,
        INITIAL_VERSION: version,
        LAYOUT_VERSION: "2",
        TIMELINE_PATH: "timeline",
        HISTORY_PATH: "history",
        ARCHIVE_FOLDER: "history",
        BASE_FILE_FORMAT: "HFILE",
        RECORD_KEY_FIELDS: "key",
        KEY_GENERATOR: "HOODIE_TABLE_METADATA",
        POPULATE_META_FIELDS: "false",
        PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
        MERGE_MODE: modes.CUSTOM,
        STRATEGY_ID: modes.BY_PAYLOAD,
        DROP_PARTITION_COLUMNS: "false",
        TABLE_CHECKSUM: table_checksum("", name),
    }


def put_table(storage: Storage, config: TableConfig, when: str) -> None:
    """Step 1; does nothing if the metadata table exists. ``when``: a date for people to read."""
    if storage.stat(_PROPERTIES) is not None:
        return
    for folder in paths.INITIAL_FOLDERS:
        make_folder(storage, f"{paths.METADATA}/{folder}")
    data = encode_config(metadata_properties(config), when)
    create_once(storage, _PROPERTIES, data, durable=True)
    storage.settle([], [f"{paths.METADATA}/{paths.HOODIE}", paths.METADATA, paths.HOODIE], durable=True)


def put_partition(
    storage: Storage,
    partition: str,
    instant: str,
    groups: Sequence[Group],
    *,
    table_version: int,
    created_ms: int = 0,
) -> bytes:
    """Step 2, durable; returns the content of the instant's completed file."""
    folder = metadata_partition(partition)
    logs = GroupLogs(table_version, instant)
    create_once(storage, paths.partition_metafile(folder), index_metafile(instant), durable=True)
    stats: list[WriteStat] = []
    for group in groups:
        create_once(storage, f"{folder}/{logs.name(group.file_id)}", logs.first(), durable=True)
        if group.rows is None or not group.rows.num_rows:
            continue
        keys, values = encode(group.content, group.rows, logs.schema)
        data = write_hfile(keys, values, schema_text=logs.schema, base_file=True, created_ms=created_ms)
        name = paths.hfile_name(group.file_id, _TOKEN, instant)
        create_once(storage, f"{folder}/{name}", data, durable=True)
        stats.append(
            BaseFileStat(partition, group.file_id, name, instant, 1, len(keys), 0, len(data), 1)
        )
    storage.settle([], [folder, paths.METADATA], durable=True)
    return encode_commit(stats, {"schema": commit_schema(table_version)}, _OPERATION)


def put_with_table(
    storage: Storage,
    random: Randomness,
    config: TableConfig,
    contents: Mapping[str, Sequence[Group]],
    *,
    time: str,
    when: str,
) -> None:
    """Steps 1 to 3 for a table that does not exist yet. ``time``: the completion time of their instants.

    Everything is made in a folder of this attempt, which then becomes the metadata table's in one step.
    Several processes may do so at once, and some may have died: for the same table they make the same, so the
    first one's folder stays and is not touched. Raises ``Invalid`` if the existing folder is something else.
    """
    if has_swaps(storage):
        _put_in_place(storage, config, contents, when)
        return
    attempt = paths.creating(f"{random.getrandbits(64):016x}")
    inner = FolderStorage(storage, attempt)
    try:
        put_table(inner, config, when)
        _put_contents(inner, config, contents, time)
        inner.settle([], [paths.METADATA_TIMELINE], durable=True)
        try:
            move_folder(storage, inner.outer(paths.METADATA), paths.METADATA)
        except FileExistsError:
            _check_alike(storage, config, contents)
    finally:
        with suppress(OSError):  # otherwise a writer's sweep removes it
            storage.delete_tree(attempt)


def _put_contents(
    storage: Storage, config: TableConfig, contents: Mapping[str, Sequence[Group]], time: str
) -> None:
    for number, (partition, groups) in enumerate(contents.items()):
        instant = f"{INITIAL}{number:03d}"
        done = put_partition(storage, partition, instant, groups, table_version=config.version)
        for name, data in (
            (f"{instant}.{DELTACOMMIT}.{REQUESTED}", b""),
            (f"{instant}.{DELTACOMMIT}.{INFLIGHT}", b""),
            (f"{instant}_{time}.{DELTACOMMIT}", done),
        ):
            create_once(storage, f"{paths.METADATA_TIMELINE}/{name}", data, durable=True)


def _put_in_place(
    storage: Storage, config: TableConfig, contents: Mapping[str, Sequence[Group]], when: str
) -> None:
    """The same on an object store, which cannot move a folder: put each file where it belongs, if it is not
    there. Whichever creator puts a file, it is the same: all take the completion time from the properties, in
    which the first of them noted its own clock. (The store's clock may be ahead of everybody's.)"""
    put_table(storage, config, when)
    try:
        data = storage.read(_PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError as error:
        raise Unavailable("the metadata table was removed while it was made", table=storage.base) from error
    time = _made_at(data)
    if time is None:
        raise Invalid(
            f"{_PROPERTIES} does not say in its comment when it was made: something else wrote it, and a"
            " table cannot be made beside it. Remove it with the rest of the folder, if nobody needs it",
            table=storage.base,
        )
    _put_contents(storage, config, contents, time)
    _check_alike(storage, config, contents)


def _made_at(properties: bytes) -> str | None:
    """The date in the comment of new properties, as an instant time; None if there is none."""
    found = _DATE.search(properties)
    if found is None:
        return None
    try:
        made = datetime.strptime(found.group(1).decode(), "%b %d %H:%M:%S UTC %Y")
    except ValueError:
        return None
    return instant_text(made)


def _check_alike(
    storage: Storage, config: TableConfig, contents: Mapping[str, Sequence[Group]]
) -> None:
    """Check that the existing metadata table, while there is no table, is what this attempt would make."""
    expected, found = metadata_properties(config), {}
    with suppress(FileNotFoundError):
        data = storage.read(_PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
        found = dict(parse_properties(data, path=_PROPERTIES))
    timeline = load_timeline(storage, paths.METADATA_TIMELINE)
    whole = len(timeline.completed) == len(contents) and not timeline.pending
    new = all(i.requested.startswith(INITIAL) for i in timeline.instants)
    groups = all(
        group.file_id in map(paths.file_id_of, storage.names(metadata_partition(partition)))
        for partition, wanted in contents.items()
        for group in wanted
    )
    if found != expected or not (whole and new and groups):
        differing = sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))
        what = f"other {', '.join(differing[:3])}" if found and differing else "it is not new and whole"
        raise Invalid(
            f"{paths.METADATA} holds what another creation left or is still making ({what}). No table was"
            " made; when no process creates one here any more, remove that folder and create the table again",
            table=storage.base,
        )


def remove_partition(storage: Storage, partition: str) -> None:
    """Remove what an earlier attempt left; call this before ``put_partition``, while no list names it."""
    storage.delete_tree(metadata_partition(partition))
