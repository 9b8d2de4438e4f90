"""Records that do not become rows, kept in a table of their own beside the reason.

The record's place in its stream is the table's key: what is written twice, because a process died before the
commit that follows, is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from mainstem.api.create import create_table
from mainstem.api.job_table import exists
from mainstem.api.table import Table, open_table
from mainstem.errors import TableExists
from mainstem.ingestion.records import Bad, Records
from mainstem.storage.backends import Place, location_of
from mainstem.storage.store_options import split

_SCHEMA = pa.schema(
    [
        pa.field("record", pa.string()),
        pa.field("source", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("reason", pa.string()),
    ]
)
_BUCKETS = 4


class DeadLetters:
    """The table of dead letters at ``path``, made when the first one comes."""

    def __init__(self, path: Place, source: str, properties: Mapping[str, object]) -> None:
        self._path, self._source, self._properties = path, source, dict(properties)
        self._table: Table | None = None

    def write(self, records: Records, bad: Sequence[Bad], names: Sequence[str] = ()) -> None:
        """Keep these records. ``names``: which one each of ``bad`` is within its source, if partition and
        offset do not tell. Raises what ``Table.upsert`` raises."""
        found = records.take([item.at for item in bad])
        of = names or [f"{p}-{o}" for p, o in zip(found.partitions, found.offsets, strict=True)]
        places = [f"{self._source}-{name}" for name in of]
        columns = [
            places,
            [self._source] * len(places),
            [str(partition) for partition in found.partitions],
            found.offsets,
            [at if at >= 0 else None for at in found.timestamps],
            found.keys,
            found.values,
            [item.reason[:2000] for item in bad],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        self._opened().upsert(pa.Table.from_arrays(arrays, schema=_SCHEMA))

    def _opened(self) -> Table:
        if self._table is None:
            of_store, _ = split({str(k): str(v) for k, v in self._properties.items()})
            if not exists(location_of(self._path, options=of_store)):
                try:
                    self._table = create_table(
                        self._path, _SCHEMA, record_key="record", buckets=_BUCKETS, properties=of_store
                    )
                    return self._table
                except TableExists:
                    pass  # another process of the group made it
            self._table = open_table(self._path, of_store)
        return self._table
