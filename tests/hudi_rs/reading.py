"""A snapshot as hudi-rs (the Rust reader behind the PyPI package ``hudi``) sees it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa


def read(path: Path | str) -> tuple[pa.Table | None, str | None]:
    """``(rows, None)``, or ``(None, error text)``. No batches at all come back as no rows."""
    from hudi import HudiTableBuilder

    try:
        table = HudiTableBuilder.from_base_uri(str(path)).build()
        batches = [pa.record_batch(batch) for batch in table.read()]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is no Exception
        return None, f"{type(error).__name__}: {error}"
    return (pa.Table.from_batches(batches) if batches else pa.table({})), None
