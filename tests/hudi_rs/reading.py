"""A snapshot as hudi-rs (the Rust reader behind the PyPI package ``hudi``) sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa


def read(
    path: Path | str,
    filters: Sequence[tuple[str, str, str]] = (),
    options: Mapping[str, str] | None = None,
) -> tuple[pa.Table | None, str | None]:
    """``(rows, None)``, or ``(None, error text)``. No batches at all come back as no rows.

    ``filters``: of partition fields. ``options``: what reaches a store.
    """
    from hudi import HudiReadOptions, HudiTableBuilder

    try:
        table = HudiTableBuilder.from_base_uri(str(path)).with_storage_options(dict(options or {})).build()
        chosen = HudiReadOptions(filters=list(filters))
        batches = [pa.record_batch(batch) for batch in table.read(chosen)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a Rust panic is no Exception
        return None, f"{type(error).__name__}: {error}"
    return (pa.Table.from_batches(batches) if batches else pa.table({})), None
