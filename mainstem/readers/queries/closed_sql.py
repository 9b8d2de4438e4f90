"""DuckDB for SQL that others wrote: it sees the rows that it is given, and no file, network or variable."""

from __future__ import annotations

from typing import Any

_CLOSED = {
    "enable_external_access": "false", "python_enable_replacements": "false",
    "autoload_known_extensions": "false", "autoinstall_known_extensions": "false",
    # Whatever is closed, DuckDB reads and writes below its folder for spilled rows; so it has none.
    "max_temp_directory_size": "0B", "temp_directory": "",
}  # fmt: skip


def closed_database(duckdb: Any, **limits: str) -> Any:
    """A connection to an empty database in memory, whose settings no statement changes. Rows are given with
    ``register``. ``duckdb``: the module; ``limits``: more settings of DuckDB."""
    database = duckdb.connect(":memory:", config={**_CLOSED, **limits})
    database.execute("SET lock_configuration = true")
    return database
