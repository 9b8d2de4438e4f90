"""Compare a table with what it must hold, cell by cell."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from demos.flights import KEY

SHOWN_MAX = 5


def differences(found: pa.Table, expected: pa.Table) -> list[str]:
    """One line per difference, at most a few per column; empty if every cell is equal.

    Both have the same columns and types; ``expected`` is ordered by key, ``found`` need not be.
    """
    if found.schema.names != expected.schema.names:
        return [f"columns {found.schema.names}, expected {expected.schema.names}"]
    found = found.cast(expected.schema).sort_by([(name, "ascending") for name in KEY])
    if not all(found[name].combine_chunks().equals(expected[name].combine_chunks()) for name in KEY):
        return [_key_difference(found, expected)]
    lines = []
    for name in expected.schema.names:
        rows = _unequal_rows(found[name], expected[name])
        for row in rows[:SHOWN_MAX]:
            key = ", ".join(str(expected[part][row]) for part in KEY)
            lines.append(f"{name} of ({key}): {found[name][row]}, expected {expected[name][row]}")
        if len(rows) > SHOWN_MAX:
            lines.append(f"{name}: {len(rows) - SHOWN_MAX:,} more")
    return lines


def _unequal_rows(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> list[int]:
    same = pc.fill_null(pc.equal(found, expected), False)
    both_null = pc.and_(pc.is_null(found), pc.is_null(expected))
    unequal = pc.invert(pc.or_(same, both_null))
    return pc.indices_nonzero(unequal.combine_chunks()).to_pylist()  # no chunks end pyarrow 16 with SIGSEGV


def _key_difference(found: pa.Table, expected: pa.Table) -> str:
    keys, wanted = found.select(KEY), expected.select(KEY)
    distinct = keys.group_by(list(KEY)).aggregate([])
    missing = wanted.join(keys, list(KEY), join_type="left anti")
    foreign = keys.join(wanted, list(KEY), join_type="left anti")
    return (
        f"{len(found):,} rows, expected {len(expected):,}: {len(found) - len(distinct):,} doubled,"
        f" {len(missing):,} missing {missing.slice(0, 2).to_pylist()},"
        f" {len(foreign):,} foreign {foreign.slice(0, 2).to_pylist()}"
    )
