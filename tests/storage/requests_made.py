"""Counts the requests that a storage makes: ``ObjectStorage(store, location, calls=Requests())``.

A listing counts as one request, though a store answers 1,000 names at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import obstore


class Requests:
    """obstore's functions; ``made``: how often each was called, ``log``: function and key of each call."""

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self.log: list[tuple[str, object]] = []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(obstore, name)

        def counted(store: Any, key: Any = None, *more: Any, **how: Any) -> Any:
            kind = "head" if how.get("options", {}).get("head") else name
            self.made[kind] += 1
            self.log.append((kind, key))
            return function(store, key, *more, **how)

        return counted
