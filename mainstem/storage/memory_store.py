"""An object store in this process's memory, for tests: the semantics of a store, and no server.

``memory://NAME/PATH`` names one; it lives as long as the process, and no other process sees it.
"""

from __future__ import annotations

from typing import Any

from mainstem.forks import Mutex

_named: dict[str, Any] = {}
_guard = Mutex()


def memory_store(name: str) -> Any:
    """The store of this name; it is made when it is first asked for."""
    from obstore.store import MemoryStore

    with _guard.held:
        return _named.setdefault(name, MemoryStore())


def forget(name: str) -> None:
    """Drop a store with all that is in it."""
    with _guard.held:
        _named.pop(name, None)
