"""Hudi's ``hoodie.*`` options as users give them (DataSourceWriteOptions, HoodieTableConfig): to an engine,
to ``open_table`` or to ``create_table``.

Every option is followed, reported to have no effect, or refused by name: a silently ignored option could
change what is written.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from mainstem.errors import Invalid, Unsupported
from mainstem.layout.key_generator import named_kind
from mainstem.options import INDEX_KEYS, METADATA, OWN_KEYS, families
from mainstem.options.catalogs import SYNC_OPTIONS
from mainstem.options.declaration import Option, every_option
from mainstem.options.engines import OPERATION
from mainstem.options.locks import PROVIDER, TABLE_BASE
from mainstem.options.metadata import INDEX_SWITCHES
from mainstem.options.metrics import METRICS_OPTIONS
from mainstem.options.placing import (
    CONSISTENT_TIMESTAMP,
    ENCODING_VALIDATION,
    KEY_ENCODING,
    KEY_GENERATOR,
    KEY_GENERATOR_CLASS,
    KEY_MOVES,
    NEW_ENCODING,
)
from mainstem.options.reading import DAMAGED, DATA_SKIPPING
from mainstem.options.services import OF_RINGS
from mainstem.options.tables import (
    AUTO_UPGRADE,
    CREATE_SCHEMA,
    DELETE_FIELD,
    DELETE_MARKER,
    INITIAL_VERSION,
    LAYOUT_VERSION,
    PAYLOAD_CLASS,
    STRATEGY_ID,
    TABLE_CHECKSUM,
)
from mainstem.options.writing import (
    BLOCK_FORMAT,
    CALLBACK_OPTIONS,
    CONCURRENCY,
    FAILED_WRITES,
    LAYOUT_OPTIONS,
    LOG_MAX,
    LOG_RATIO,
    RECONCILE,
    SET_NULL,
    SKEW_MS,
    SMALL_FILE,
    VALIDATOR_OPTIONS,
)
from mainstem.storage.backends import Place, location_of
from mainstem.storage.location import Location
from mainstem.storage.store_options import is_of_store, split
from mainstem.writers.write_spec import DELETE_PARTITION, OVERWRITES

OPERATIONS = OPERATION.allowed
_OTHER_OPERATIONS = (
    "bootstrap", "upsert_prepped", "insert_prepped", "bulk_insert_prepped", "delete_prepped", "boostrap",
)  # fmt: skip

#: names that a job may give for a property of the table -> the property
_TABLE_ALIASES: dict[str, Option] = {
    name: option for option in every_option() if option.table for name in option.names
}
#: options whose one acceptable value is what mainstem does anyway; others are refused by name
_FIXED: dict[str, Option] = {option: option for option in every_option() if option.only}
#: passed on to the open table
_PASSED = frozenset(
    (
        DATA_SKIPPING, CONCURRENCY, *FAILED_WRITES.names, LOG_MAX, BLOCK_FORMAT, SET_NULL, RECONCILE,
        KEY_ENCODING, NEW_ENCODING, ENCODING_VALIDATION, SMALL_FILE, LOG_RATIO, *LAYOUT_OPTIONS, *OF_RINGS,
        *KEY_MOVES, AUTO_UPGRADE, *CALLBACK_OPTIONS, *VALIDATOR_OPTIONS, *METRICS_OPTIONS, *SYNC_OPTIONS,
    )
)  # fmt: skip
_INDEXES = (METADATA, *INDEX_SWITCHES, *INDEX_KEYS)

# Read where a table is opened or made; jobs of engines have no use for them.
_OPENING = (
    METADATA, *INDEX_KEYS, DAMAGED, TABLE_BASE, PAYLOAD_CLASS, STRATEGY_ID, DELETE_FIELD, DELETE_MARKER,
    KEY_GENERATOR_CLASS, CONSISTENT_TIMESTAMP, INITIAL_VERSION, LAYOUT_VERSION, TABLE_CHECKSUM,
    CREATE_SCHEMA,
)  # fmt: skip


_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})


def shared_location(
    path: Place, options: Mapping[str, str] = _NO_OPTIONS, below: Mapping[str, str] = _NO_OPTIONS
) -> Location:
    """The location of a job's table, valid in all of the job's processes; stores' options are taken from
    ``options``, and from ``below`` where those say nothing. Raises ``Invalid`` for a relative path,
    ``Unsupported`` for storage that is not supported."""
    return location_of(path, absolute=True, options=split(options)[0], below=split(below)[0])


def options_to_make(properties: Mapping[str, str]) -> dict[str, str]:
    """Those of a table's properties that a job may give to make another table like it."""
    return {name: text for name, text in properties.items() if name in _TABLE_ALIASES}


def texts_of(options: Mapping[str, object]) -> dict[str, str]:
    """Lower-case names; booleans and numbers as Hudi writes them."""
    texts = {}
    for name, value in options.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value).strip()
        texts[str(name).lower()] = text
    return texts


def check_no_overwrite(name: str, where: str) -> str:
    """``name``. Raises ``Unsupported`` for an operation that would overwrite again and again."""
    if name in OVERWRITES:
        given = "partition" if name == DELETE_PARTITION else "rows"
        raise Unsupported(
            f"operation {name!r} {where}; use mainstem.open_table(path).{name}({given}), or"
            " mainstem.spark.write_batch with this operation"
        )
    return name


def operation(texts: Mapping[str, str], option: str = OPERATION, *, partitions: bool = False) -> str:
    """The write operation that ``option`` names; ``partitions``: it may be one that is given no rows."""
    name = texts.get(option, "upsert").lower()
    if name == DELETE_PARTITION and not partitions:
        raise Unsupported(
            f"{option}={name!r} writes no rows: use mainstem.open_table(path).delete_partition(values)"
        )
    if name in OPERATIONS:
        return name
    if name in _OTHER_OPERATIONS:
        raise Unsupported(
            f"{option}={name!r} is not supported by non-blocking writers; expected {' or '.join(OPERATIONS)}"
        )
    raise Invalid(f"{option}={name!r}, expected {' or '.join(OPERATIONS)}")


def sorted_out(
    texts: Mapping[str, str], *, known: Iterable[str] = ()
) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(table properties, the option each came from, settings for opening).

    ``known``: the engine's own options, which are left out here and named where one is mistyped.
    """
    elsewhere = frozenset(known)
    table: dict[str, str] = {}
    given: dict[str, str] = {}
    passed: dict[str, str] = {}
    harmless: list[str] = []
    own = {name.lower(): name for name in OWN_KEYS}
    for name, text in texts.items():
        if name in elsewhere or is_of_store(name):  # ``shared_location`` has taken those of stores
            continue
        if name in _TABLE_ALIASES:
            key = _TABLE_ALIASES[name]
            if key in table and table[key] != text:
                raise Invalid(f"{name}={text!r} contradicts {given[key]}={table[key]!r}")
            table[key], given[key] = text, name
        elif name in _FIXED:
            _check_fixed(name, text)
        elif name in KEY_GENERATOR_CLASS.aliases:
            key, kind = KEY_GENERATOR, named_kind({name: text})
            if kind and table.setdefault(key, kind).upper().removesuffix("_AVRO") != kind:
                raise Invalid(f"{name}={text!r} contradicts {given[key]}={table[key]!r}")
            given.setdefault(key, name)
        elif name in own or name in _PASSED or name in _INDEXES or name.startswith(families.PASSED):
            passed[own.get(name, name)] = text
        elif name.startswith(families.SERVICES_OF_JOBS) and name in _service_keys():
            passed[name] = text
        elif name.startswith(families.SERVICES_OF_JOBS) and _service_option_meant(name):
            raise unknown(name, elsewhere)
        elif name.startswith(families.HARMLESS):
            harmless.append(name)
        else:
            raise unknown(name, elsewhere)
    if harmless:
        warnings.warn(
            f"these options have no effect in mainstem: {', '.join(sorted(harmless))}", stacklevel=4
        )
    return table, given, passed


def for_opening(passed: Mapping[str, str]) -> dict[str, str]:
    """What ``open_table`` is given of a job's settings: which indexes it asks for is no business of an open
    table, and that it asks for none no reason to read without them."""
    return {k: v for k, v in passed.items() if k not in (METADATA, *INDEX_SWITCHES)}


def for_reading(passed: Mapping[str, str]) -> dict[str, str]:
    """The same for a query, which may be told to do without the metadata table."""
    return {k: v for k, v in passed.items() if k not in INDEX_SWITCHES}


def check_given(given: Mapping[str, str], table: Mapping[str, str] | None = None) -> None:
    """What ``open_table`` and ``create_table`` accept: as engines do, and what a table is made with.

    ``table``: its own properties, which may be repeated. Raises ``Invalid`` for unknown names, for values of
    services' options that do not parse and for bounds that exclude each other, ``Unsupported`` for what would
    lose rows or is not there; warns of options without effect.
    """
    table = table or {}
    if OPERATION in given:
        operation(given)
    of_services = [name for name in given if name.startswith(families.SERVICES)]
    if of_services:
        from mainstem.services.service_option_names import check_service_names, check_service_values

        check_service_names(of_services)
        check_service_values({**table, **given})
    others = {
        name: text for name, text in given.items() if name not in of_services and table.get(name) != text
    }
    prefixed = [name for name in others if name.startswith(families.MERGE_PROPERTY)]
    switches = sorted(name for name in others if name in INDEX_SWITCHES)
    if switches:
        warnings.warn(
            f"these options ask for indexes when a job begins: {', '.join(switches)}; of an open table it is"
            " Table.create_index that makes one",
            stacklevel=4,
        )
    sorted_out(others, known=(OPERATION, *_OPENING, *prefixed))


def _service_keys() -> frozenset[str]:
    from mainstem.services.service_option_names import SERVICE_KEYS

    return SERVICE_KEYS


def _service_option_meant(name: str) -> str | None:
    from mainstem.services.service_option_names import name_meant

    return name_meant(name)


def _check_fixed(name: str, text: str) -> None:
    option = _FIXED[name]
    if text.lower() not in option.only:
        raise Unsupported(f"{name}={text!r}: {option.why}; expected {' or '.join(option.only)}")


def unknown(name: str, known: Iterable[str] = ()) -> Exception:
    """The error for an unknown option, with the name that was perhaps meant."""
    known = (
        *known, *_TABLE_ALIASES, *_FIXED, *_PASSED, *_INDEXES, *_service_keys(), *OWN_KEYS,
        PROVIDER, SKEW_MS,
    )  # fmt: skip
    meant = _service_option_meant(name)
    near = [meant] if meant else difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    if name.startswith("hoodie.") and not near and not name.startswith(families.OWN):
        return Unsupported(
            f"option {name!r} is not supported by mainstem: leave it out if the rows do not depend on it"
        )
    return Invalid(f"unknown option {name!r}{hint}")
