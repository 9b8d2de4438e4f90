"""How a table merges: read from its properties, refused by name where we do not know the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.merge.payloads import (
    COMMIT_TIME,
    EVENT_TIME,
    FILL_UNAVAILABLE,
    IGNORE_DEFAULTS,
    KNOWN_PAYLOADS,
    PayloadRules,
)
from mainstem.merge.registry import merger_of
from mainstem.options.declared import Option
from mainstem.options.tables import (
    DELETE_FIELD,
    DELETE_MARKER,
    MERGE_MODE,
    ORDERING_FIELDS,
    PARTIAL_UPDATES,
    PAYLOAD_CLASS,
    PRECOMBINE,
    STRATEGY_ID,
    TABLE_VERSION,
    UNAVAILABLE,
)

CUSTOM = "CUSTOM"

KEY_COLUMN = "_hoodie_record_key"
DELETED_COLUMN = "_hoodie_is_deleted"
OPERATION_COLUMN = "_hoodie_operation"
DELETE_OPERATIONS = ("D", "-U")

_BY_PAYLOAD = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class MergeRules:
    """The merge rules of one table.

    ``ordering`` is empty where rows are merged by commit time. ``partial`` is IGNORE_DEFAULTS,
    FILL_UNAVAILABLE or None; ``unavailable`` the marker of the second; ``defaults`` the non-null
    Avro defaults per column. ``delete_field``/``delete_marker``: a row whose column holds this
    text is a delete. ``merger``: the strategy id of a registered function, which is given all
    columns, those of ``full_schema``.
    """

    ordering: tuple[str, ...] = ()
    partial: str | None = None
    unavailable: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    delete_field: str | None = None
    delete_marker: str | None = None
    merger: str | None = None
    full_schema: pa.Schema | None = None

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns the merge itself looks at, whether or not the query asks for them."""
        marks = [DELETED_COLUMN, OPERATION_COLUMN]
        marks += [self.delete_field] if self.delete_field else []
        every = self.full_schema.names if self.full_schema is not None else []
        return tuple(dict.fromkeys((KEY_COLUMN, *self.ordering, *marks, *every)))


def merge_rules(properties: Mapping[str, str]) -> MergeRules:
    """Rules of a table from its properties (HoodieTableConfig, format rules 1.4 to 1.6).

    Raises ``Unsupported`` naming the merge mode, payload class or merger that we do not have.
    """
    ordering = ordering_fields(properties)
    mode = properties.get(MERGE_MODE) or (EVENT_TIME if ordering else COMMIT_TIME)
    mode = mode.strip().upper()
    field_, marker = _merge_property(properties, DELETE_FIELD), _merge_property(properties, DELETE_MARKER)
    if mode == CUSTOM:
        return _custom_rules(properties, ordering, field_, marker)
    if mode not in (COMMIT_TIME, EVENT_TIME):
        raise _unknown(mode, properties)
    return MergeRules(
        ordering=ordering if mode == EVENT_TIME else (),
        partial=_partial_mode(properties),
        unavailable=_merge_property(properties, UNAVAILABLE),
        delete_field=field_,
        delete_marker=marker,
    )


def _custom_rules(
    properties: Mapping[str, str], ordering: tuple[str, ...], field_: str | None, marker: str | None
) -> MergeRules:
    """A registered merger, or a payload class of Hudi's own (tables of version 8)."""
    strategy = properties.get(STRATEGY_ID, "").strip().lower()
    if strategy and merger_of(strategy) is not None:
        return MergeRules(delete_field=field_, delete_marker=marker, merger=strategy)
    payload = KNOWN_PAYLOADS.get(properties.get(PAYLOAD_CLASS, "").strip())
    if payload is None or strategy not in ("", _BY_PAYLOAD):
        raise _unknown(CUSTOM, properties)
    _check_payload_ordering(payload, ordering, properties)
    return MergeRules(
        ordering=ordering if payload.mode == EVENT_TIME else (),
        partial=payload.partial,
        unavailable=_merge_property(properties, UNAVAILABLE) or payload.unavailable,
        delete_field=field_ or (payload.delete[0] if payload.delete else None),
        delete_marker=marker or (payload.delete[1] if payload.delete else None),
    )


def _check_payload_ordering(
    payload: PayloadRules, ordering: tuple[str, ...], properties: Mapping[str, str]
) -> None:
    if payload.mode != EVENT_TIME or (ordering and payload.ordering in ((), ordering)):
        return
    raise Unsupported(
        f"payload class {properties[PAYLOAD_CLASS]} orders rows by"
        f" {', '.join(payload.ordering) or 'an ordering field'}, the table names"
        f" {', '.join(ordering) or 'none'}: upgrade the table to version 9 with Hudi, which sets them"
    )


def _unknown(mode: str, properties: Mapping[str, str]) -> Unsupported:
    names = [properties[key] for key in (PAYLOAD_CLASS, STRATEGY_ID) if properties.get(key)]
    return Unsupported(
        f"record merge mode {mode!r} (merger or payload {', '.join(names) or 'not named'!r}) needs Java"
        f" code that mainstem does not have; it merges {COMMIT_TIME} and {EVENT_TIME} tables, Hudi's own"
        " payload classes, and strategies registered with mainstem.register_merger"
    )


def ordering_fields(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Ordering columns; 1.0.x writers spell the key ``hoodie.table.precombine.field``."""
    text = properties.get(ORDERING_FIELDS) or properties.get(
        PRECOMBINE, ""
    )
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _partial_mode(properties: Mapping[str, str]) -> str | None:
    mode = properties.get(PARTIAL_UPDATES, "").strip()
    if not mode or int(properties.get(TABLE_VERSION, "9")) <= 8:
        return None  # Java ignores the key before table version 9
    if mode not in (IGNORE_DEFAULTS, FILL_UNAVAILABLE):
        raise Unsupported(
            f"{PARTIAL_UPDATES}={mode!r}; known are {IGNORE_DEFAULTS} and {FILL_UNAVAILABLE}"
        )
    return mode


def _merge_property(properties: Mapping[str, str], option: Option) -> str | None:
    return next((text for name in reversed(option.names) if (text := properties.get(name))), None)
