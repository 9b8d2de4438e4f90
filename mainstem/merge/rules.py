"""How a table merges: read from its properties, refused by name where we do not know the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mainstem.errors import Unsupported

COMMIT_TIME = "COMMIT_TIME_ORDERING"
EVENT_TIME = "EVENT_TIME_ORDERING"
IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE = "FILL_UNAVAILABLE"

KEY_COLUMN = "_hoodie_record_key"
DELETED_COLUMN = "_hoodie_is_deleted"
OPERATION_COLUMN = "_hoodie_operation"
DELETE_OPERATIONS = ("D", "-U")

_PROPERTY = "hoodie.record.merge.property."
_UNAVAILABLE = "hoodie.write.partial.update.unavailable.value"
_DELETE_FIELD = "hoodie.payload.delete.field"
_DELETE_MARKER = "hoodie.payload.delete.marker"


@dataclass(frozen=True)
class MergeRules:
    """The merge rules of one table.

    ``ordering`` is empty where rows are merged by commit time. ``partial`` is IGNORE_DEFAULTS,
    FILL_UNAVAILABLE or None; ``unavailable`` the marker of the second; ``defaults`` the non-null
    Avro defaults per column. ``delete_field``/``delete_marker``: a row whose column holds this
    text is a delete.
    """

    ordering: tuple[str, ...] = ()
    partial: str | None = None
    unavailable: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    delete_field: str | None = None
    delete_marker: str | None = None

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns the merge itself looks at, whether or not the query asks for them."""
        marks = [DELETED_COLUMN, OPERATION_COLUMN]
        marks += [self.delete_field] if self.delete_field else []
        return tuple(dict.fromkeys((KEY_COLUMN, *self.ordering, *marks)))


def merge_rules(properties: Mapping[str, str]) -> MergeRules:
    """Rules of a table from its properties (HoodieTableConfig, format rules 1.4 to 1.6).

    Raises ``Unsupported`` naming the merge mode, payload class or merger that we do not have.
    """
    ordering = ordering_fields(properties)
    mode = properties.get("hoodie.record.merge.mode") or (EVENT_TIME if ordering else COMMIT_TIME)
    if mode not in (COMMIT_TIME, EVENT_TIME):
        name = properties.get("hoodie.compaction.payload.class") or properties.get(
            "hoodie.record.merge.strategy.id", "not named"
        )
        raise Unsupported(
            f"record merge mode {mode!r} (merger or payload {name!r}) needs Java code that mainstem"
            f" does not have; it merges {COMMIT_TIME} and {EVENT_TIME} tables"
        )
    return MergeRules(
        ordering=ordering if mode == EVENT_TIME else (),
        partial=_partial_mode(properties),
        unavailable=_merge_property(properties, _UNAVAILABLE),
        delete_field=_merge_property(properties, _DELETE_FIELD),
        delete_marker=_merge_property(properties, _DELETE_MARKER),
    )


def ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Ordering columns; 1.0.x writers spell the key ``hoodie.table.precombine.field``."""
    text = properties.get("hoodie.table.ordering.fields") or properties.get(
        "hoodie.table.precombine.field", ""
    )
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _partial_mode(properties: Mapping[str, str]) -> str | None:
    mode = properties.get("hoodie.table.partial.update.mode", "").strip()
    if not mode or int(properties.get("hoodie.table.version", "9")) <= 8:
        return None  # Java ignores the key before table version 9
    if mode not in (IGNORE_DEFAULTS, FILL_UNAVAILABLE):
        raise Unsupported(
            f"hoodie.table.partial.update.mode={mode!r}; known are {IGNORE_DEFAULTS} and {FILL_UNAVAILABLE}"
        )
    return mode


def _merge_property(properties: Mapping[str, str], key: str) -> str | None:
    return properties.get(_PROPERTY + key) or properties.get(key) or None
