"""A table's merge rules, read from its properties. Rules that mainstem does not know are refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from mainstem.errors import Unsupported
from mainstem.formats.avro_schema import parse_schema
from mainstem.merge.modes import (
    BY_PAYLOAD,
    COMMIT_TIME,
    CUSTOM,
    EVENT_TIME,
    merge_mode,
    ordering_fields,
    partial_update_mode,
)
from mainstem.merge.payloads import KNOWN_PAYLOADS, PayloadRules
from mainstem.merge.registered_mergers import merger_of
from mainstem.options.declaration import Option
from mainstem.options.tables import (
    DELETE_FIELD,
    DELETE_MARKER,
    NATIVE_LOGS_FROM,
    PAYLOAD_CLASS,
    STRATEGY_ID,
    TABLE_VERSION,
    UNAVAILABLE,
    is_lsm_tree,
)

KEY_COLUMN = "_hoodie_record_key"
DELETED_COLUMN = "_hoodie_is_deleted"
OPERATION_COLUMN = "_hoodie_operation"
DELETE_OPERATIONS = ("D", "-U")


@dataclass(frozen=True)
class MergeRules:
    """The merge rules of one table, complete for merging; part of every read and write spec.

    ``ordering`` is empty under commit time ordering. ``partial`` is IGNORE_DEFAULTS, FILL_UNAVAILABLE or
    None; ``unavailable`` is the marker of the second. ``delete_field``/``delete_marker``: a row whose column
    holds this text is a delete. ``merger``: the strategy id of a registered function, which receives all
    columns. ``one_by_one``: the records of a key are merged onto the base file's row one after another
    (``lsm_tree``), not with each other first. ``deletes_in_order``: a delete with an ordering value takes the
    place of one without that lies before it.

    ``for_schema`` adds what depends on the schema: ``defaults``, the non-null Avro defaults per column, and
    ``full_schema``, all columns if there is a ``merger``.
    """

    ordering: tuple[str, ...] = ()
    partial: str | None = None
    unavailable: str | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    delete_field: str | None = None
    delete_marker: str | None = None
    merger: str | None = None
    one_by_one: bool = False
    deletes_in_order: bool = False
    full_schema: pa.Schema | None = None

    def for_schema(self, text: str, schema: pa.Schema | None) -> MergeRules:
        """The rules completed with a schema: ``text`` is its Avro JSON, ``schema`` its columns after Hudi's
        meta columns (may be None without a ``merger``)."""
        assert schema is not None or self.merger is None
        full = None if self.merger is None else schema
        return replace(self, defaults=column_defaults(text), full_schema=full)

    def ordering_types(self, schema: pa.Schema) -> list[pa.DataType]:
        """Types of the ordering columns; ``Unsupported`` for a field that is no column."""
        for name in self.ordering:
            if name not in schema.names:
                raise Unsupported(
                    f"ordering field {name!r} is no column of the table; its columns are"
                    f" {', '.join(schema.names)} (nested ordering fields are not supported)"
                )
        return [schema.field(name).type for name in self.ordering]

    def record(self) -> dict[str, Any]:
        """The rules as JSON values, without the schema's part, which ``for_schema`` adds again."""
        return {name: getattr(self, name) for name in _RECORDED}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> MergeRules:
        """The rules from a ``record`` that went through JSON."""
        values = {name: record[name] for name in _RECORDED}
        return cls(**values | {"ordering": tuple(values["ordering"])})

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns that the merge itself reads, whether or not the query asks for them."""
        marks = [DELETED_COLUMN, OPERATION_COLUMN]
        marks += [self.delete_field] if self.delete_field else []
        every = self.full_schema.names if self.full_schema is not None else []
        return tuple(dict.fromkeys((KEY_COLUMN, *self.ordering, *marks, *every)))


def marks_deletes(rules: MergeRules, columns: Sequence[str]) -> bool:
    """Whether rows with these columns can be marked as deletes, which then have ordering values."""
    return rules.delete_field is not None or DELETED_COLUMN in columns or OPERATION_COLUMN in columns


_OF_THE_SCHEMA = ("defaults", "full_schema")
_RECORDED = tuple(f.name for f in fields(MergeRules) if f.name not in _OF_THE_SCHEMA)


def column_defaults(text: str) -> dict[str, Any]:
    """Non-null plain Avro defaults per column (values that IGNORE_DEFAULTS treats as "not set")."""
    return dict(_plain_defaults(text))


@lru_cache(maxsize=64)
def _plain_defaults(text: str) -> tuple[tuple[str, Any], ...]:
    """Cached: every transaction needs the defaults, and a table's schema rarely changes."""
    told = ((one["name"], one.get("default")) for one in parse_schema(text)["fields"])
    return tuple((name, value) for name, value in told if isinstance(value, (bool, int, float, str)))


def merge_rules(properties: Mapping[str, str]) -> MergeRules:
    """Merge rules from a table's properties (HoodieTableConfig, format rules 1.4 to 1.6).

    ``MergeRules.for_schema`` completes them. Raises ``Unsupported`` naming an unknown merge mode, payload
    class or merger.
    """
    ordering = ordering_fields(properties)
    mode = merge_mode(properties)
    field_, marker = _merge_property(properties, DELETE_FIELD), _merge_property(properties, DELETE_MARKER)
    if mode == CUSTOM:
        return _by_version(_custom_rules(properties, ordering, field_, marker), properties)
    if mode not in (COMMIT_TIME, EVENT_TIME):
        raise _unknown(mode, properties)
    rules = MergeRules(
        ordering=ordering if mode == EVENT_TIME else (),
        partial=partial_update_mode(properties),
        unavailable=_merge_property(properties, UNAVAILABLE),
        delete_field=field_,
        delete_marker=marker,
    )
    return _by_version(rules, properties)


def _by_version(rules: MergeRules, properties: Mapping[str, str]) -> MergeRules:
    """Where the readers of Java 1.3 differ (``LsmFileGroupRecordIterator``, and ``processDeleteBlock`` of
    ``KeyBasedFileGroupRecordBuffer``)."""
    native = TABLE_VERSION.read(properties) >= NATIVE_LOGS_FROM
    return replace(rules, one_by_one=native and is_lsm_tree(properties), deletes_in_order=native)


def _custom_rules(
    properties: Mapping[str, str], ordering: tuple[str, ...], field_: str | None, marker: str | None
) -> MergeRules:
    """A registered merger, or a payload class of Hudi's own (tables of version 8)."""
    strategy = properties.get(STRATEGY_ID, "").strip().lower()
    if strategy and merger_of(strategy) is not None:
        return MergeRules(delete_field=field_, delete_marker=marker, merger=strategy)
    payload = KNOWN_PAYLOADS.get(properties.get(PAYLOAD_CLASS, "").strip())
    if payload is None or strategy not in ("", BY_PAYLOAD):
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


def _merge_property(properties: Mapping[str, str], option: Option) -> str | None:
    return next((text for name in reversed(option.names) if (text := properties.get(name))), None)
