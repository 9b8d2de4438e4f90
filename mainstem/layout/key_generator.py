"""A table's key generator: how rows get their record keys and partition paths (Hudi's KeyGenerator).

``hoodie.properties`` says which one a table has. ``keys`` makes the texts, ``time_partitions`` those of
times. Classes named by a table or an option are only looked up here, never loaded.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Invalid, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.layout.buckets import endless_for_java
from mainstem.layout.keys import KeyColumns, as_array, partition_paths, record_keys, value_texts
from mainstem.layout.properties import FIELD_PREFIXED, TableConfig
from mainstem.layout.time_partitions import TimeFormat
from mainstem.options.placing import (
    CONSISTENT_TIMESTAMP,
    ENCODING_VALIDATION,
    KEY_ENCODING,
    KEY_GENERATOR,
    KEY_GENERATOR_CLASS,
    NEW_ENCODING,
    PARTITION_EXTRACTOR,
    SLASH_DATES,
)

SIMPLE, COMPLEX, NON_PARTITION = "SIMPLE", "COMPLEX", "NON_PARTITION"
TIMESTAMP, CUSTOM = "TIMESTAMP", "CUSTOM"
KINDS = (SIMPLE, COMPLEX, NON_PARTITION, TIMESTAMP, CUSTOM)
_PACKAGE = "org.apache.hudi.keygen."
_CLASSES = {
    "SimpleKeyGenerator": SIMPLE, "SimpleAvroKeyGenerator": SIMPLE,
    "ComplexKeyGenerator": COMPLEX, "ComplexAvroKeyGenerator": COMPLEX,
    "NonpartitionedKeyGenerator": NON_PARTITION, "NonpartitionedAvroKeyGenerator": NON_PARTITION,
    "TimestampBasedKeyGenerator": TIMESTAMP, "TimestampBasedAvroKeyGenerator": TIMESTAMP,
    "CustomKeyGenerator": CUSTOM, "CustomAvroKeyGenerator": CUSTOM,
}  # fmt: skip
#: options that name a key generator, with the table property that stores the choice
TYPE_OPTIONS = (*KEY_GENERATOR.aliases, KEY_GENERATOR)
CLASS_OPTIONS = (*KEY_GENERATOR_CLASS.aliases, KEY_GENERATOR_CLASS)
#: the column of keys that are made up
KEY_COLUMN = META_FIELDS[2]
_SLASH_EXTRACTOR = "SlashEncodedDayPartitionValueExtractor"


def named_kind(properties: Mapping[str, str]) -> str | None:
    """The kind that options name, by type or by class; None if they name none.

    Raises ``Unsupported`` for a kind or class that is not Hudi's or not supported here, ``Invalid`` if the
    options disagree.
    """
    found: dict[str, str] = {}
    for key in (*TYPE_OPTIONS, *CLASS_OPTIONS):
        value = properties.get(key, "").strip()
        if not value:
            continue
        if key in TYPE_OPTIONS:
            kind = value.upper().removesuffix("_AVRO")
        else:
            kind = _CLASSES.get(value.removeprefix(_PACKAGE), "")
        if kind not in KINDS:
            raise Unsupported(
                f"{key}={value!r}: expected one of Hudi's key generators {', '.join(KINDS)}; custom classes"
                " are never loaded"
            )
        found[key] = kind
    if len(set(found.values())) > 1:
        raise Invalid(f"the key generators of these options differ: {found}")
    return next(iter(found.values()), None)


def inferred_kind(keys: Sequence[str], partitions: Sequence[str]) -> str:
    """The kind that Java infers from the fields (KeyGenUtils.inferKeyGeneratorType)."""
    if not partitions:
        return NON_PARTITION
    if ":" in partitions[0]:
        return CUSTOM
    return SIMPLE if len(keys) <= 1 and len(partitions) == 1 else COMPLEX


@dataclass(frozen=True)
class KeyGenerator:
    """How rows get their record key and partition path; picklable, compared by value."""

    #: none: the writer makes keys up (``made_up``)
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    #: keys are ``field:value,field:value``; usually even with a single field (COMPLEX, see ``key_encoding``)
    composite: bool = False
    hive_style: bool = False
    url_encode: bool = False
    #: partition fields whose folder is a formatted time, and the format
    time_fields: tuple[str, ...] = ()
    time: TimeFormat | None = None
    #: ``2026-01-10`` becomes the folders ``2026/01/10``
    slash_dates: bool = False

    @classmethod
    def of(cls, config: TableConfig) -> KeyGenerator:
        """The key generator of a table being read; it knows which fields are formatted times, not how."""
        fields, keys = config.partition_fields, config.record_key
        return cls(
            key_fields=keys,
            partition_fields=fields,
            composite=len(keys) > 1
            or (config.single_field_complex and config.key_encoding == FIELD_PREFIXED),
            hive_style=config.hive_style,
            url_encode=config.url_encode,
            time_fields=tuple(
                f for f, k in zip(fields, config.partition_kinds, strict=True) if k == TIMESTAMP
            ),
            slash_dates=bool(config.slash_dates),
        )

    @classmethod
    def for_writing(cls, config: TableConfig) -> KeyGenerator:
        """The key generator of a table being written, checked.

        Raises ``Invalid`` or ``Unsupported`` if the table's properties contradict each other or make paths
        that Java cannot read.
        """
        kind, made = config.key_generator, cls.of(config)
        _check_counts(kind, made.key_fields, made.partition_fields)
        _check_encoding(config)
        time = TimeFormat.from_properties(config.raw) if made.time_fields else None
        if time is not None and kind == CUSTOM and time.depth > 1 and not made.url_encode:
            raise Invalid(
                "a CUSTOM key generator whose times make several folders: Java fails to read such a table"
                " (\"Failed to parse partition column values from the partition-path\"); use an output"
                f" format without '/' instead of {time.output!r}"
            )
        _check_slash_dates(config, kind)
        if config.consistent_timestamps:
            raise Unsupported(
                f"{CONSISTENT_TIMESTAMP}=true makes keys from the local time of each writing JVM; here"
                " timestamps in keys and partitions are written as numbers, as without the option"
            )
        return replace(made, time=time)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> KeyGenerator:
        """The inverse of ``dataclasses.asdict``, even through JSON. Raises ``TypeError`` or ``KeyError``."""
        made = _with_tuples(record)
        if made.get("time") is not None:
            made["time"] = TimeFormat(**_with_tuples(made["time"]))
        return cls(**made)

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns that a row's key and partition are made from, without repeats."""
        return tuple(dict.fromkeys((*self.key_fields, *self.partition_fields)))

    @property
    def made_up(self) -> bool:
        """Whether keys are no values of rows: whoever inserts a row makes one up for it, as Hudi's
        ``AutoRecordGenWrapperKeyGenerator`` does, and who updates or deletes one gives that which it has."""
        return not self.key_fields

    @property
    def plain_key(self) -> str | None:
        """The column whose text is the record key; None if keys are ``field:value`` texts, or made up."""
        return None if self.composite or self.made_up else self.key_fields[0]

    def check_schema(self, schema: pa.Schema) -> None:
        """Raise ``Invalid`` if a column's type has no key or partition text."""
        for name in self.needed_columns:
            field = schema.field(name)
            if name in self.key_fields or name not in self.time_fields:
                value_texts(pa.array([], field.type), name)
            if name in self.time_fields and self.time is not None:
                self.time.check_column(field)

    def record_keys(self, rows: pa.Table | pa.RecordBatch) -> KeyColumns:
        """Key of each row; needs only the key fields, or, where keys are made up, the column that has them.
        Raises ``Invalid`` for a row without a key."""
        if self.made_up:
            return record_keys(rows, (KEY_COLUMN,), composite=False)
        return record_keys(rows, self.key_fields, composite=self.composite)

    def check_for_java(self, keys: KeyColumns, hash_fields: Sequence[str]) -> None:
        """Raise ``Invalid`` for a key on which Java's bucket index never returns; warn of a key that two
        different rows can share."""
        row = endless_for_java(keys.texts, hash_fields, keys.parts)
        if row is not None:
            raise Invalid(
                f"record key {keys.texts[row].as_py()!r} (row {row}): Java's bucket index never returns"
                " from a key with these commas and colons, and its writers would hang on any later write"
                " of it; replace one of the two characters in the key column"
            )
        if keys.parts is not None:
            _warn_of_equal_keys(keys.parts)

    def partitions(self, rows: pa.Table | pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
        """Partition of each row: (codes into, partition paths); the one path "" without partition fields.

        Raises ``Invalid`` for a value that makes no usable folder name.
        """
        levels = [self._level(rows.column(name), name) for name in self.partition_fields]
        return partition_paths(
            rows.num_rows,
            self.partition_fields,
            levels,
            hive_style=self.hive_style,
            url_encode=self.url_encode,
            slash_dates=self.slash_dates,
        )

    def _level(self, column: pa.Array | pa.ChunkedArray, name: str) -> tuple[np.ndarray, list[str]]:
        if name in self.time_fields and self.time is not None:
            return self.time.texts(as_array(column), name)
        encoded = value_texts(column, name).fill_null("").dictionary_encode()
        return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _check_counts(kind: str, keys: Sequence[str], fields: Sequence[str]) -> None:
    wanted = {
        SIMPLE: len(keys) <= 1 and len(fields) == 1,
        TIMESTAMP: len(keys) <= 1 and len(fields) == 1,
        NON_PARTITION: not fields,
    }
    if not wanted.get(kind, True):
        raise Invalid(
            f"{KEY_GENERATOR}={kind} does not fit record key {list(keys)} and partition"
            f" fields {list(fields)}; SIMPLE and TIMESTAMP take one of each, NON_PARTITION no partition"
            " field, COMPLEX and CUSTOM any number"
        )


def _check_encoding(config: TableConfig) -> None:
    """As in Java: the form of keys must be known, or two writers double each other's rows."""
    if config.key_encoding_in_doubt:
        raise Unsupported(
            "a version 8 table with a COMPLEX key generator and a single record key field: Hudi 0.14.1 to"
            " 1.0.2 write its keys as 'value', earlier and later releases as 'field:value' (HUDI-7001), and"
            " keys of both kinds double rows; Java 1.1 and later refuse to write it too. If you are certain"
            f" which its writers use, set {ENCODING_VALIDATION}=false, and {NEW_ENCODING}=true for 'value'"
            " (the default is 'field:value'), alike in all of them; or use table version 9, where it is"
            " always 'field:value'"
        )
    doubtful = config.single_field_complex and config.version == 8
    if doubtful and config.encoding_option not in (None, config.key_encoding):
        raise Invalid(
            f"{NEW_ENCODING}={config.raw[NEW_ENCODING]} contradicts the table, whose {KEY_ENCODING} is"
            f" {config.key_encoding}; drop the option"
        )


def _with_tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    """Turn lists, as JSON makes them, back into tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}


def _check_slash_dates(config: TableConfig, kind: str) -> None:
    flag = config.slash_dates
    if flag is None:
        dated = _SLASH_EXTRACTOR in config.raw.get(PARTITION_EXTRACTOR, "")
        if dated and kind == SIMPLE:
            raise Invalid(
                f"the table may have slash-separated dates as partitions ({_SLASH_EXTRACTOR}), which"
                f" Hudi 1.2 does not store: give {SLASH_DATES}=true or false as its other writers do"
            )
    elif flag and (len(config.partition_fields) != 1 or config.hive_style or kind == TIMESTAMP):
        raise Invalid(
            f"{SLASH_DATES}=true needs one plain partition field and no hive-style folders; Hudi's"
            " releases make different paths otherwise"
        )


def _warn_of_equal_keys(parts: Sequence[tuple[str, pa.Array]]) -> None:
    """Warn of values that look like the text between two parts: rows that differ can share a key."""
    for (name, texts), (following, _) in zip(parts, parts[1:], strict=False):
        if pc.any(pc.match_substring(texts, f",{following}:")).as_py():
            warnings.warn(
                f"values of the record key field {name!r} contain ',{following}:': rows with different"
                " values can get the same record key, in Java too, and then replace each other",
                stacklevel=2,
            )
