"""Users' merge functions, by the strategy id that a table names (merge mode CUSTOM).

A table only names an id. The process decides with ``register_merger`` which function it stands for; class
names in a table's properties are never loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from mainstem.errors import Invalid

if TYPE_CHECKING:
    import pyarrow as pa

Merger = Callable[["pa.Table", "pa.Table"], "pa.Table"]
_registered: dict[str, Merger] = {}


def register_merger(strategy_id: str, merge: Merger) -> None:
    """Lets this process merge tables whose ``hoodie.record.merge.strategy.id`` is ``strategy_id``.

    ``merge(older, newer)`` receives two tables with all columns of the table, Hudi's meta columns
    first, and the same number of rows: row i of both has the same record key. It returns the merged rows
    as one table with the same columns, in any order; a key that it leaves out is deleted. It is called
    for whole batches, with the earlier state as ``older``: log records in the order of their requested
    times, and finally the base file's rows as ``older`` (of an LSM tree, these at first). It does not see
    deletes: a delete removes whatever came before.

    Register the same function in every process that reads the table (including Spark's executors). Raises
    ``Invalid`` for an id that is no UUID.
    """
    if not callable(merge):
        raise Invalid(f"a merger is called with two tables; {type(merge).__name__} cannot be called")
    _registered[_checked(strategy_id)] = merge


def merger_of(strategy_id: str) -> Merger | None:
    """The function registered for the id in this process, or None."""
    return _registered.get(strategy_id.strip().lower())


def _checked(strategy_id: str) -> str:
    try:
        return str(UUID(strategy_id.strip()))
    except (ValueError, AttributeError) as error:
        raise Invalid(f"strategy id {strategy_id!r}, expected a UUID as Hudi's mergers have") from error
