"""Which row groups of native log files a filtered read needs, and how much of them.

Rows that fail the filter still matter in a log: one of them may replace a row that passes. So a row group
that statistics exclude is read for keys and ordering values, without the filter's columns. It is not read at
all if no row that may pass the filter has a key within its range of keys: then none of its rows meets one.
The ranges are those of Parquet's statistics; sorted files (``lsm_tree``) have narrow ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mainstem.formats.log_file import BlockKind
from mainstem.formats.native_log import NativeBlock
from mainstem.merge.rules import KEY_COLUMN
from mainstem.readers.rows.base_rows import BaseFile, open_base_of
from mainstem.readers.rows.log_rows import Run
from mainstem.readers.rows.native_logs import NativeRows
from mainstem.readers.rows.row_groups import matching_groups
from mainstem.readers.rows.slice_query import SliceQuery
from mainstem.storage.protocol import Storage

#: the least and the greatest key of some rows; None: any
Range = tuple[str, str] | None


@dataclass(frozen=True)
class LogPart:
    """Blocks that are read together. ``excluded``: no row of them passes the filter."""

    run: Run
    excluded: bool = False


@dataclass(frozen=True)
class _Found:
    part: LogPart
    keys: Range = None


def needed_parts(storage: Storage, split: SliceQuery, runs: Sequence[Run]) -> list[LogPart]:
    """What a query with a filter reads of the logs of its slice, in replay order."""
    found = [one for run in runs for one in _parts(run, split)]
    if split.spec.virtual_key or not any(one.part.excluded for one in found):
        return [one.part for one in found]
    # A block that deletes brings no row that passes.
    passing = [one.keys for one in found if not one.part.excluded and not _deletes(one.part.run)]
    passing += _base_ranges(storage, split) if None not in passing else []
    met = [one for one in found if not one.part.excluded or _meets(one.keys, passing)]
    return [one.part for one in met]


def _deletes(run: Run) -> bool:
    return run[0][1].kind is BlockKind.DELETE


def _parts(run: Run, split: SliceQuery) -> Iterator[_Found]:
    path, block = run[0]
    rows = block.rows if isinstance(block, NativeBlock) else None
    if not isinstance(rows, NativeRows) or not isinstance(block, NativeBlock) or _deletes(run):
        yield _Found(LogPart(run))
        return
    with rows.opened() as file:
        matching = matching_groups(file, split)
        excluded = [number for number in block.groups if number not in matching]
        if not excluded:
            yield _Found(LogPart(run), _joined([_range(file, number) for number in block.groups]))
            return
        for number in block.groups:
            one: Run = [(path, replace(block, groups=(number,)))]
            yield _Found(LogPart(one, number not in matching), _range(file, number))


def _base_ranges(storage: Storage, split: SliceQuery) -> list[Range]:
    if split.base_file is None:
        return []
    with open_base_of(storage, split) as base:
        return [_range(base, number) for number in matching_groups(base, split)]


def _range(file: BaseFile, group: int) -> Range:
    """The range of keys that the statistics of a row group tell. Texts compare as their UTF-8 bytes do."""
    chunk = file.column_of(group, KEY_COLUMN)
    told = None if chunk is None else chunk.statistics
    if told is None or not told.has_min_max:
        return None
    low, high = told.min, told.max
    # An empty bound may be one that is not there (see ``row_groups``).
    return (low, high) if isinstance(low, str) and isinstance(high, str) and high else None


def _joined(ranges: Sequence[Range]) -> Range:
    known = [one for one in ranges if one is not None]
    if not known or len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _meets(one: Range, others: Sequence[Range]) -> bool:
    if one is None:
        return bool(others)
    return any(other is None or (one[0] <= other[1] and other[0] <= one[1]) for other in others)
