"""A wrapper around a table environment, and a function that unwraps it.

Modules below ``environment.Environment`` that accept either kind (``source``) need only this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment


class WrappedEnvironment:
    """Passes everything that a subclass does not define to the wrapped environment."""

    def __init__(self, t_env: TableEnvironment) -> None:
        self._t_env = t_env

    def __getattr__(self, name: str) -> Any:
        return getattr(self._t_env, name)


def unwrapped(t_env: TableEnvironment | WrappedEnvironment) -> TableEnvironment:
    """Flink's own environment."""
    return t_env._t_env if isinstance(t_env, WrappedEnvironment) else t_env
