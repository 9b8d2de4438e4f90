"""Applies what is known about files to file slices.

A slice may hold a row that passes if one of its files may. Conditions are checked one by one. A condition on
a single column is checked per file, because each value of an emitted row was stored in one of the files.
Conditions on several columns are checked per slice, because a partial update combines values of several
files in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mainstem.filters.predicates import AllOf, AnyOf, Predicate, leaves

PerFile = Callable[[Predicate], np.ndarray]
"""A condition on one column -> in which of the files it may hold."""


def together(conjuncts: Sequence[Predicate]) -> list[Predicate]:
    """Combines conditions on the same single column: both bounds of a range must hold for the same value."""
    by_term: dict[object, list[Predicate]] = {}
    for number, conjunct in enumerate(conjuncts):
        terms = {leaf.term for leaf in leaves(conjunct)}
        by_term.setdefault(terms.pop() if len(terms) == 1 else number, []).append(conjunct)
    return [parts[0] if len(parts) == 1 else AllOf(tuple(parts)) for parts in by_term.values()]


def may_hold(predicate: Predicate, per_file: PerFile, owner: np.ndarray, slices: int) -> np.ndarray:
    """Mask of the slices in which a row may pass; ``owner``: the slice number of each file."""
    terms = {leaf.term for leaf in leaves(predicate)}
    if len(terms) > 1 and isinstance(predicate, AllOf):
        parts = [may_hold(part, per_file, owner, slices) for part in together(predicate.parts)]
        return np.logical_and.reduce(parts)
    if len(terms) > 1 and isinstance(predicate, AnyOf):
        parts = [may_hold(part, per_file, owner, slices) for part in predicate.parts]
        return np.logical_or.reduce(parts)
    return np.bincount(owner, weights=per_file(predicate), minlength=slices) > 0
