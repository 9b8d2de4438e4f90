"""A table environment that stands for another one, and the way back to that one.

What takes either (``source``) needs no more of ``environment.Environment`` than this, and lies below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment


class WrappedEnvironment:
    """What is not defined by a subclass is the wrapped environment's own."""

    def __init__(self, t_env: TableEnvironment) -> None:
        self._t_env = t_env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._t_env, name)


def unwrapped(t_env: TableEnvironment | WrappedEnvironment) -> TableEnvironment:
    """Flink's own environment."""
    return t_env._t_env if isinstance(t_env, WrappedEnvironment) else t_env
