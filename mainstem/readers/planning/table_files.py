"""Every data file of a table, as a table: which file slice it is of, how large it is, and what it is for.

1. List the timeline, then each partition, with sizes.
2. Put the files of completed instants into slices, as a query does.
3. What no slice holds is pending, or nobody's: a failed attempt left it, or its instant was taken back.
"""

from __future__ import annotations

import pyarrow as pa

from mainstem.layout.properties import load_config
from mainstem.readers.planning.table_state import TableState
from mainstem.storage import paths
from mainstem.storage.protocol import FileInfo, Storage

SCHEMA = pa.schema([
    ("partition", pa.string()), ("file_id", pa.string()), ("slice", pa.string()), ("file", pa.string()),
    ("kind", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("ms", "UTC")),
    ("instant", pa.string()), ("completion", pa.string()), ("state", pa.string()),
])  # fmt: skip
BASE, LOG, CDC = "base", "log", "cdc"
CURRENT, OLDER, REPLACED, PENDING, UNUSED = "current", "older", "replaced", "pending", "unused"


def table_files(storage: Storage) -> pa.Table:
    """``Table.files``: a row of ``SCHEMA`` for each data file, by partition, file id, slice and name."""
    state = TableState.load(storage, load_config(storage))
    replaced = state.replaced(None)
    # What begins after this listing is pending, too.
    newest = max((i.requested for i in state.timeline.instants), default="")
    under_way = {i.requested for i in state.timeline.pending}
    columns: dict[str, list[object]] = {name: [] for name in SCHEMA.names}
    for listing in state.partitions():
        entries = {e.name: e for e in storage.entries(listing.partition) if not e.is_folder}
        slices = _slices(state, listing.partition, listing.names, replaced)
        for name in listing.names:
            entry = entries.get(name)
            if entry is not None:  # a clean removed it meanwhile
                _add(columns, state, listing.partition, entry, slices, under_way, newest)
    made = pa.table(columns, SCHEMA)
    order = [(name, "ascending") for name in ("partition", "file_id", "slice", "file")]
    return made.sort_by(order) if made.num_rows else made


def _slices(
    state: TableState, partition: str, names: tuple[str, ...], replaced: set[tuple[str, str]]
) -> dict[str, tuple[str, str]]:
    """Of each file that a completed instant shows: base instant of its slice, and the file's state."""
    found = {}
    for group in state.group(partition, names):
        what = CURRENT
        for slice_ in group.slices:  # newest first: a pending compaction's slice is read with the one before
            for name in (*filter(None, [slice_.base_file]), *slice_.log_files):
                gone = (partition, group.file_id) in replaced
                found[name] = slice_.base_instant, REPLACED if gone else what
            if slice_.latest:
                what = OLDER
    return found


def _add(
    columns: dict[str, list[object]],
    state: TableState,
    partition: str,
    entry: FileInfo,
    slices: dict[str, tuple[str, str]],
    under_way: set[str],
    newest: str,
) -> None:
    base, log = paths.parse_base_name(entry.name), paths.parse_log_name(entry.name)
    found = base or log
    if found is None:
        return  # no file of a table
    kind = BASE if base is not None else CDC if log is not None and log.is_cdc else LOG
    completion = state.completion(found.instant)
    slice_, what = slices.get(entry.name, (None, UNUSED))
    if slice_ is None and (found.instant in under_way or found.instant > newest):
        what = PENDING
    elif slice_ is None and kind == CDC and completion is not None:
        what = CURRENT
    values = (
        partition, found.file_id, slice_, entry.name, kind, entry.size, entry.mtime_ms, found.instant,
        completion, what,
    )  # fmt: skip
    for column, value in zip(columns.values(), values, strict=True):
        column.append(value)
