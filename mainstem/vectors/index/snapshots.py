"""The table at one moment as a search sees it: its file slices, numbered, and what each is made of."""

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
    """``splits``: one per file slice, with the log files that count; ``spec``: what they share, all columns
    of ``schema``."""

    view: View
    splits: tuple[Split, ...]
    spec: ReadSpec

    @classmethod
    def load(cls, storage: Storage, until: str | None, *, damaged: str, use: Use) -> Snapshot:
        """The table now, or as of a requested time. Raises what ``Table.scan`` raises."""
        view = View.load(storage, until, damaged=damaged, use=use)
        planned = view.planned(None, None)
        splits = [split for split in planned.splits if isinstance(split, Split)]
        return cls(view, tuple(_as_of(split, until) for split in splits), planned.spec)

    @property
    def schema(self) -> pa.Schema:
        """Columns of the table at the moment."""
        return self.spec.schema

    def filtered(self, filter: pc.Expression) -> list[tuple[int, Split]]:
        """The splits of a query with a filter on the same rows, each with the number of its slice here."""
        numbers = {(split.partition, split.file_id): at for at, split in enumerate(self.splits)}
        planned = self.view.planned(None, filter)
        found = [split for split in planned.splits if isinstance(split, Split)]
        return [(numbers[split.partition, split.file_id], split) for split in found]

    @property
    def partitions(self) -> list[str]:
        """Path of the partition of each slice."""
        return [split.partition for split in self.splits]


def _as_of(split: Split, until: str | None) -> Split:
    """Without the log files of later instants, which reading skips."""
    if until is None:
        return split
    kept = []
    for path in split.log_files:
        name = paths.parse_log_name(path.rsplit("/", 1)[-1])
        if name is None or name.instant <= until:
            kept.append(path)
    return replace(split, log_files=tuple(kept))


Signs = tuple[frozenset[str], bytes]
"""By which a snapshot is known to be the newest: names on the timeline, and the table's properties."""


Listing = tuple[list[str], bytes]
"""The names on the timeline as they are listed, and the table's properties."""


def listing(storage: Storage) -> Listing:
    """Of now. While it is the same, so are the signs."""
    names = storage.names(paths.TIMELINE)
    try:
        properties = storage.read(paths.PROPERTIES, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:  # Java is replacing them
        properties = b""
    return names, properties


def signs(listed: Listing, until: str | None) -> Signs:
    """While these are the same, rows are the same.

    Writes under way show no rows, so the names of their first states are left out; a view of the past is
    refused beside them, so there they count. Properties say by which rules rows are merged.
    """
    names, properties = listed
    if until is not None:
        return frozenset(names), properties
    return frozenset(name for name in names if not name.endswith(_PENDING_WRITES)), properties


def how_read(spec: ReadSpec, column: str) -> str:
    """What makes the values of a column of the same files: rules of the merge; its type, as Java widens
    floats by their decimal digits (``formats.conversions``); and where columns have ids (schema
    on read) which column it is, as one that was dropped and added anew has the same name."""
    rules = spec.rules
    known = None if spec.ids is None else spec.ids.query.by_name().get(column)
    at = spec.schema.get_field_index(column)
    told = (
        None if at < 0 else str(spec.schema.field(at).type), rules.ordering, rules.partial, rules.unavailable,
        rules.defaults.get(column), rules.delete_field, rules.delete_marker, rules.merger,
        None if known is None else known.id,
    )  # fmt: skip
    return hashlib.sha256(repr(told).encode()).hexdigest()
