"""Tables of tools that name what they make (dbt's models, Dagster's assets): opened or made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from mainstem.api.create import create_table
from mainstem.api.job_table import exists
from mainstem.api.real_seams import as_text
from mainstem.api.table import Table, open_table
from mainstem.errors import Invalid, TableExists
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.storage.backends import location_of
from mainstem.storage.store_options import split

#: arguments of ``create_table`` that make a table what it is
KIND = ("record_key", "ordering", "partition_by", "buckets", "table_version", "vectors")
# Models and assets are small more often than not.
_BUCKETS = 4


def place(root: str | None, name: str, path: str | None, what: str) -> str:
    """``path``, else ``root/name``. ``what``: who asks, for the message."""
    if path:
        return path
    if not root:
        raise Invalid(f"{what} has no place: give it a path, or give a root below which tables lie by name")
    return f"{root.rstrip('/')}/{name}"


def opened(path: str, properties: Mapping[str, object] | None) -> Table | None:
    """The table at a path; None if there is none."""
    of_store, _ = split(as_text(properties))
    there = exists(location_of(path, options=of_store))
    return open_table(path, properties) if there else None


def opened_or_made(
    path: str, schema: pa.Schema, kind: Mapping[str, Any], properties: Mapping[str, object] | None
) -> Table:
    """The table at a path, made if there is none: ``schema`` without Hudi's columns, ``kind`` as in ``KIND``.

    Raises what ``create_table`` and ``open_table`` raise.
    """
    found = opened(path, properties)
    if found is not None:
        return found
    user = pa.schema([field for field in schema if field.name not in META_FIELDS])
    given = {name: value for name, value in kind.items() if name in KIND and value is not None}
    if given.get("record_key"):
        given.setdefault("buckets", _BUCKETS)
    try:
        return create_table(path, user, properties=properties, **given)
    except TableExists:  # another process was first
        return open_table(path, properties)
