"""A table's key generator: what makes record keys and partition paths of rows (Hudi's KeyGenerator).

Which one a table has is said by ``hoodie.properties``; the texts that it makes are in ``keys``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mainstem.table.keys import KeyColumns, partition_paths, record_keys
from mainstem.table.properties import TableConfig


@dataclass(frozen=True)
class KeyGenerator:
    """How rows get their record key and partition path; picklable, compared by value."""

    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...] = ()
    #: keys are ``field:value,field:value``, also with a single field (COMPLEX)
    composite: bool = False
    hive_style: bool = False
    url_encode: bool = False

    @classmethod
    def of(cls, config: TableConfig) -> KeyGenerator:
        """The key generator of a table."""
        return cls(
            key_fields=config.record_key,
            partition_fields=config.partition_fields,
            composite=config.key_generator == "COMPLEX" or len(config.record_key) > 1,
            hive_style=config.hive_style,
            url_encode=config.url_encode,
        )

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> KeyGenerator:
        """Back from ``dataclasses.asdict``, also by way of JSON. Raises ``TypeError`` or ``KeyError``."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in record.items()})

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns that a row needs for its key and its partition, each once."""
        return tuple(dict.fromkeys((*self.key_fields, *self.partition_fields)))

    @property
    def plain_key(self) -> str | None:
        """The column whose text is the record key; None where keys are ``field:value`` texts."""
        return None if self.composite else self.key_fields[0]

    def record_keys(self, rows: pa.Table | pa.RecordBatch) -> KeyColumns:
        """Key of each row; needs the key fields only. Raises ``Invalid`` for a row without a key."""
        return record_keys(rows, self.key_fields, composite=self.composite)

    def partitions(self, rows: pa.Table | pa.RecordBatch) -> tuple[np.ndarray, list[str]]:
        """Partition of each row: (codes into, partition paths); one path "" without partition fields.

        Raises ``Invalid`` for a value that makes no usable folder name.
        """
        return partition_paths(
            rows, self.partition_fields, hive_style=self.hive_style, url_encode=self.url_encode
        )
