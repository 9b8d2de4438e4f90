"""The table at one moment, as a search sees it: its file slices, numbered, and the files of each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.readers.queries.snapshot import View
from mainstem.readers.rows.split import ReadSpec, Split
from mainstem.readers.skipping.chooser import Use
from mainstem.storage import paths
from mainstem.storage.protocol import Storage

_PENDING_WRITES = (".deltacommit.requested", ".deltacommit.inflight")


@dataclass(frozen=True)
class Snapshot:
    """``splits``: one per file slice, with the log files that count; ``spec``: what they share, with all
    columns of ``schema``."""

    view: View
    splits: tuple[Split, ...]
    spec: ReadSpec

    @classmethod
    def load(cls, storage: Storage, until: str | None, *, damaged: str, use: Use) -> Snapshot:
        """The table now, or as of requested time ``until``. Raises what ``Table.scan`` raises."""
        view = View.load(storage, until, damaged=damaged, use=use)
        planned = view.planned(None, None)
        splits = [split for split in planned.splits if isinstance(split, Split)]
        return cls(view, tuple(_as_of(split, until) for split in splits), planned.spec)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns at that moment."""
        return self.spec.schema

    def filtered(self, filter: pc.Expression) -> list[tuple[int, Split]]:
        """The splits of a filtered query on the same rows, each with the number of its slice here."""
        numbers = {(split.partition, split.file_id): at for at, split in enumerate(self.splits)}
        planned = self.view.planned(None, filter)
        found = [split for split in planned.splits if isinstance(split, Split)]
        return [(numbers[split.partition, split.file_id], split) for split in found]

    @property
    def partitions(self) -> list[str]:
        """The partition path of each slice."""
        return [split.partition for split in self.splits]


def _as_of(split: Split, until: str | None) -> Split:
    """The split without log files of later instants, which a read would skip."""
    if until is None:
        return split
    kept = []
    for path in split.log_files:
        name = paths.parse_log_name(path.rsplit("/", 1)[-1])
        if name is None or name.instant <= until:
            kept.append(path)
    return replace(split, log_files=tuple(kept))


Signs = tuple[frozenset[str], bytes]
"""Identifies the newest snapshot: names on the timeline, and the table's properties."""


Listing = tuple[list[str], bytes]
"""The names on the timeline as listed, and the table's properties."""


def listing(storage: Storage) -> Listing:
    """The listing as of now. While it stays the same, so do the signs."""
    names = storage.names(paths.TIMELINE)
    try:
        properties = storage.read(paths.PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:  # Java is replacing the file
        properties = b""
    return names, properties


def signs(listed: Listing, until: str | None) -> Signs:
    """Signs that stay the same only while the rows stay the same.

    Pending writes show no rows, so the names of their states are left out. A view of the past is refused
    beside pending writes, so there they count. The properties decide how rows are merged.
    """
    names, properties = listed
    if until is not None:
        return frozenset(names), properties
    return frozenset(name for name in names if not name.endswith(_PENDING_WRITES)), properties


def how_read(spec: ReadSpec, column: str) -> str:
    """A digest of what determines a column's values, given the files: the merge rules; the column's type,
    since Java widens floats by their decimal digits (``formats.conversions``); and where columns have ids
    (schema on read) the id, since a column that was dropped and added again has the same name."""
    rules = spec.rules
    known = None if spec.ids is None else spec.ids.query.by_name().get(column)
    at = spec.schema.get_field_index(column)
    told = (
        None if at < 0 else str(spec.schema.field(at).type), rules.ordering, rules.partial, rules.unavailable,
        rules.defaults.get(column), rules.delete_field, rules.delete_marker, rules.merger,
        None if known is None else known.id,
        *(("in order",) if rules.deletes_in_order else ()), *(("one by one",) if rules.one_by_one else ()),
    )  # fmt: skip
    return hashlib.sha256(repr(told).encode()).hexdigest()
