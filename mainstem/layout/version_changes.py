"""What another table version changes in ``hoodie.properties``: pure functions of the properties.

Hudi: ``EightToNineUpgradeHandler``, ``NineToTenUpgradeHandler``, ``TenToNineDowngradeHandler`` (RFC-97: merge
modes take the place of payload classes). ``hoodie.table.initial.version`` stays.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainstem.errors import Unsupported
from mainstem.layout.properties import FIELD_PREFIXED, TableConfig
from mainstem.merge.modes import CUSTOM, STRATEGIES
from mainstem.merge.payloads import KNOWN_PAYLOADS
from mainstem.merge.rules import merge_rules
from mainstem.options import families
from mainstem.options.placing import ENCODING_VALIDATION, KEY_ENCODING, NEW_ENCODING
from mainstem.options.tables import (
    CDC_ENABLED,
    DELETE_FIELD,
    DELETE_MARKER,
    LEGACY_PAYLOAD,
    MERGE_MODE,
    ORDERING_FIELDS,
    PARTIAL_UPDATES,
    PAYLOAD_CLASS,
    PRECOMBINE,
    STORAGE_LAYOUT,
    STRATEGY_ID,
    TABLE_VERSION,
    TABLE_VERSION_OPTION,
    UNAVAILABLE,
)

Changes = dict[str, "str | None"]

#: the oldest and the newest version that tables are given
OLDEST, NEWEST = 9, 10


def changes_to(config: TableConfig, version: int) -> Changes:
    """The keys to set, and those to remove (None), for a table to become one of ``version``.

    One of that version already changes nothing. Raises ``Unsupported`` for a version that no table is given,
    and where its rows would be merged, or its keys be written, differently afterwards.
    """
    if not OLDEST <= version <= NEWEST:
        way = "bring it back with Hudi" if version < OLDEST else "use a newer mainstem"
        raise Unsupported(
            f"a table of version {config.version} is not given the version {version}: mainstem gives"
            f" {OLDEST} and {NEWEST} to tables; {way}"
        )
    made: Changes = {}
    now = config
    while now.version != version:
        up = now.version < version
        made |= (_to_10(now) if now.version == 9 else _to_9(now)) if up else _back_to_9(now)
        now = TableConfig(with_changes(config.raw, made), config.path)
    return made


def with_changes(raw: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The properties afterwards."""
    return {key: value for key, value in {**raw, **changes}.items() if value is not None}


def _to_10(config: TableConfig) -> Changes:
    """From version 9: nothing else. A table without a storage layout has the default one."""
    return {TABLE_VERSION: "10"}


def _back_to_9(config: TableConfig) -> Changes:
    """From version 10, whose storage layout version 9 does not know, nor its files of change data."""
    if config.change_mode is not None:
        raise Unsupported(
            f"the table has {CDC_ENABLED}=true, and queries of version 9 do not read the change data that"
            " version 10 wrote: bring it back once nobody needs change data and that property is false"
        )
    return {TABLE_VERSION: "9", STORAGE_LAYOUT: None}


def _to_9(config: TableConfig) -> Changes:
    """From version 8: Hudi's own payload classes become a merge mode, and properties that tell the rest."""
    _check_keys(config)
    raw = config.raw
    made: Changes = {TABLE_VERSION: "9"}
    name = raw.get(PAYLOAD_CLASS, "").strip()
    payload = KNOWN_PAYLOADS.get(name)
    custom = config.merge_mode == CUSTOM
    if payload is not None:
        made |= {LEGACY_PAYLOAD: name, PAYLOAD_CLASS: None}
        if payload.partial:
            made[PARTIAL_UPDATES] = payload.partial
        told = [(UNAVAILABLE, payload.unavailable)] if payload.unavailable else []
        told += zip((DELETE_FIELD, DELETE_MARKER), payload.delete or (), strict=False)
        made |= {f"{families.MERGE_PROPERTY}{option}": value for option, value in told}
    if not custom:
        made[STRATEGY_ID] = None
    elif payload is not None:
        made |= {MERGE_MODE: payload.mode, STRATEGY_ID: STRATEGIES[payload.mode]}
    for option in (DELETE_FIELD, DELETE_MARKER):
        if option in raw:
            made |= {f"{families.MERGE_PROPERTY}{option}": raw[option], option: None}
    ordering = payload.ordering if payload is not None and payload.ordering else config.ordering
    if ordering:
        made |= {ORDERING_FIELDS: ",".join(ordering), PRECOMBINE: None}
    # What kept Java's writers at version 8, and what tells them of keys at that version only.
    made |= {key: None for key in (TABLE_VERSION_OPTION, NEW_ENCODING, ENCODING_VALIDATION) if key in raw}
    if merge_rules(with_changes(raw, made)) != merge_rules(raw):
        raise Unsupported(
            f"{PAYLOAD_CLASS}={name!r} under {config.merge_mode}: at version 9 its rows would be merged by"
            " other rules. Copy them into a new table (create_table, bulk_insert), or upgrade it with Hudi"
        )
    return made


def _check_keys(config: TableConfig) -> None:
    """Hudi 1.1 and later write ``field:value`` into tables of version 9, and refuse to upgrade others."""
    if not config.single_field_complex:
        return
    if config.key_encoding_in_doubt or config.key_encoding != FIELD_PREFIXED:
        raise Unsupported(
            f"the key generator is COMPLEX with one field, and {KEY_ENCODING}={config.key_encoding} or in"
            " doubt: into tables of version 9 Hudi writes 'field:value', which would double its keys. Copy"
            " its rows into a new table (create_table, bulk_insert)"
        )
