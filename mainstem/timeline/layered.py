"""Sets and dicts of which each next one differs in little, so that it costs what differs, not what is there.

A large common part is shared by all that came of it, beside the few differences of each; once these are many,
the common part is made anew. Small ones are always plain.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import cached_property
from itertools import chain
from typing import Generic, TypeVar

T = TypeVar("T")

# Below this size nothing is shared. So many differences are kept beside the common part.
_SMALL, _DIFFERENCES_MAX = 2_000, 400


class Names:
    """An immutable set of names."""

    def __init__(
        self, base: frozenset[str], plus: frozenset[str] = frozenset(), minus: frozenset[str] = frozenset()
    ) -> None:
        # ``plus`` lies outside ``base``, ``minus`` within.
        self._base, self._plus, self._minus = base, plus, minus

    @cached_property
    def all(self) -> frozenset[str]:
        """The names as one set."""
        if not (self._plus or self._minus):
            return self._base
        return (self._base - self._minus if self._minus else self._base) | self._plus

    def __contains__(self, name: str) -> bool:
        return name in self._plus or (name in self._base and name not in self._minus)

    def __len__(self) -> int:
        return len(self._base) + len(self._plus) - len(self._minus)

    def __iter__(self) -> Iterator[str]:
        return iter(self.all)

    def changed(self, fresh: frozenset[str], gone: frozenset[str] = frozenset()) -> Names:
        """With names that are not here, and without names that are."""
        if len(self._base) < _SMALL or len(self._plus) + len(self._minus) > _DIFFERENCES_MAX:
            return Names((self.all - gone if gone else self.all) | fresh)
        back = fresh & self._minus
        plus = ((self._plus - gone) if gone else self._plus) | (fresh - back)
        return Names(self._base, plus, (self._minus - back) | (gone & self._base))

    def without(self, other: Names) -> frozenset[str]:
        """The names that are not in another set."""
        if other._base is not self._base:
            return self.all - other.all
        here = chain(self._plus, other._minus)
        return frozenset(name for name in here if name in self and name not in other)


class Mapped(Generic[T]):
    """An immutable dict."""

    def __init__(self, base: dict[str, T], plus: Mapping[str, T] | None = None) -> None:
        self._base, self._plus = base, {} if plus is None else plus
        self._twice = sum(1 for key in self._plus if key in base)

    def __contains__(self, key: object) -> bool:
        return key in self._plus or key in self._base

    def __len__(self) -> int:
        return len(self._base) + len(self._plus) - self._twice

    def get(self, key: str) -> T | None:
        """The value; None if there is none."""
        found = self._plus.get(key)
        return self._base.get(key) if found is None else found

    @property
    def keys(self) -> Container[object]:
        """The keys, for many questions whether one is among them."""
        return self if self._plus else self._base.keys()

    def values(self) -> Iterator[T]:
        """Each value once."""
        if not self._plus:
            return iter(self._base.values())
        below = (value for key, value in self._base.items() if key not in self._plus)
        return chain(below, self._plus.values())

    def with_more(self, more: Mapping[str, T]) -> Mapped[T]:
        """With other values, which take the place of those of the same keys."""
        if not more:
            return self
        if len(self._base) < _SMALL or len(self._plus) > _DIFFERENCES_MAX:
            return Mapped({**self._base, **self._plus, **more})
        return Mapped(self._base, {**self._plus, **more})
