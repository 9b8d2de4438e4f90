"""Goal: text that is not UTF-8 (Arrow arrays can hold it, unchecked) is refused and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid

COLUMNS = ("id", "also", "part", "at", "v")
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS])
#: an unpaired surrogate, and half a character
BAD = pa.array([b"\xed\xa0\x80", b"a\xc3"]).view(pa.string())
GOOD = pa.array(["a", "b"])


@pytest.mark.parametrize("keys", [["id"], ["id", "also"]])
@pytest.mark.parametrize("block", ["avro", "parquet"])
def test_it_is_refused_in_every_column_by_every_operation(
    tmp_path: Path, keys: list[str], block: str
) -> None:
    given = {"hoodie.mainstem.exclusive": True, "hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    mainstem.create_table(
        tmp_path, SCHEMA, record_key=keys, ordering="at", partition_by="part", buckets=2, properties=given
    )
    options = {"hoodie.logfile.data.block.format": block, "hoodie.mainstem.fsync": False}
    table = mainstem.open_table(tmp_path, options)
    kept = pa.table({name: ["k"] for name in COLUMNS}, schema=SCHEMA)
    table.upsert(kept)
    for column in COLUMNS:
        batch = pa.table({name: BAD if name == column else GOOD for name in COLUMNS}, schema=SCHEMA)
        for write in (table.bulk_insert, table.upsert, table.update_columns, table.delete):
            if write == table.delete and column not in (*keys, "part"):
                continue  # which it does not look at
            with pytest.raises(Invalid, match="not UTF-8"):
                write(batch)
            with pytest.raises(Invalid, match="surrogates not allowed"):
                write({name: ["\ud800"] if name == column else ["a"] for name in COLUMNS})
    assert table.scan(columns=COLUMNS).to_arrow().to_pylist() == kept.to_pylist()
    assert len(table.timeline()) == 1


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_it_is_refused_inside_of_lists_structs_and_maps(tmp_path: Path, operation: str) -> None:
    nested = {
        "list": pa.ListArray.from_arrays([0, 1, 2], BAD),
        "struct": pa.StructArray.from_arrays([BAD], ["s"]),
        "map": pa.MapArray.from_arrays([0, 1, 2], BAD, pa.array([1, 2])),
    }
    for name, values in nested.items():
        schema = pa.schema([("id", pa.string()), ("v", values.type)])
        table = mainstem.create_table(tmp_path / name, schema, record_key="id", buckets=1)
        with pytest.raises(Invalid, match="UTF-8"):
            getattr(table, operation)(pa.table([GOOD, values], schema=schema))
        assert table.timeline() == []
