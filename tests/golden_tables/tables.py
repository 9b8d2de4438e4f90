"""Golden tables: unpacked once per test run, read with us, rows in the encoding of their json."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import mainstem
from mainstem.readers.queries.scan_plan import ScanPlan

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.zip"))


@cache
def expectations(name: str) -> dict[str, Any]:
    """What Java says about a table."""
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def unpack(name: str, folder: Path) -> Path:
    """The table's files below ``folder``; unpacked on first use."""
    target = folder / name
    if not target.exists():
        with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
            archive.extractall(target)
    return target


def run_query(path: Path, name: str, query: dict[str, Any]) -> pa.Table:
    """The rows of ``plan_of``."""
    return plan_of(path, name, query).to_arrow()


def plan_of(path: Path, name: str, query: dict[str, Any]) -> ScanPlan:
    """The query of the json, asked of mainstem. Damaged blocks are skipped as Java skips them."""
    table = mainstem.open_table(path, properties={"mainstem.read.damaged": "skip"})
    options = query["options"]
    if query["kind"] == "snapshot":
        return table.scan()
    if query["kind"] == "read_optimized":
        return table.scan(mode="read_optimized")
    if query["kind"] == "time_travel":
        return table.scan(as_of=options["as.of.instant"])
    assert query["kind"] == "incremental"
    after = options["hoodie.datasource.read.begin.instanttime"]
    if expectations(name)["hudi_version"].startswith("1.0.2") and after != "000":
        after = f"{int(after) - 1:017d}"  # Java 1.0.2 takes the start of a range as inclusive
    until = options.get("hoodie.datasource.read.end.instanttime")
    return table.changes(after=after, until=until)


def encoded(table: pa.Table) -> Counter[str]:
    """Rows as json text with their number; the order of rows does not count."""
    return Counter(map(row_text, encoded_rows(table)))


def encoded_rows(table: pa.Table) -> list[list[Any]]:
    """Rows in the encoding of the json, in their order."""
    columns = [column.to_pylist() for column in table.columns]
    return [[_value(v) for v in row] for row in zip(*columns, strict=True)]


def row_text(row: list[Any]) -> str:
    """One encoded row as text that compares."""
    return json.dumps(row, sort_keys=True)


def _value(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, datetime.datetime):
        text = value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        return text + "Z" if value.tzinfo else text
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_value(item) for item in value]
    return value

