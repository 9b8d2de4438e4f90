"""Measures how widely a graph must be searched by default, with its own vectors while it is built.

The effort for a given recall depends on the data: clustered vectors need a tenth of what uniform ones need. A
constant would be slow for one and wrong for the other. So rows spread evenly over the build are held back at
first, and searched for with growing effort until the graph finds their true neighbours, known from an exact
search. Rows already in the graph would not do: their own edges lead to their neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from mainstem.vectors.distances import nearest

# Neighbours searched for, rows held back, and the share to find: 0.95 with room for the error of a sample,
# and for what searches miss in clusters that they only glance at.
_NEIGHBOURS, _ROWS, _RECALL = 10, 200, 0.97
# Efforts for graphs: how many candidates a walk keeps.
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)


def held_back(count: int) -> np.ndarray:
    """bool (count,): rows to search for before they are added; none in a small build."""
    held = np.zeros(count, bool)
    held[np.linspace(0, count - 1, min(_ROWS, count // 20)).astype(np.int64)] = True
    return held


def measured(
    metric: str,
    vectors: np.ndarray,
    held: np.ndarray,
    efforts: Iterable[int],
    search: Callable[[np.ndarray, int, int], np.ndarray],
) -> int:
    """The first of ``efforts`` (ascending) that finds enough neighbours of the held rows, else the last.

    If the value halfway to the previous effort also suffices, returns that. ``search(queries, k, effort)``
    returns labels (q, m), -1 for none, in a graph of the other rows.
    """
    queries = vectors[held]
    true, _ = nearest(metric, queries, vectors, _NEIGHBOURS, allowed=~held)

    def enough(effort: int) -> bool:
        found = search(queries, _NEIGHBOURS, effort)
        hit = ((true[:, :, None] == found[:, None, :]) & (true[:, :, None] >= 0)).any(axis=2)
        return bool(hit.sum() >= _RECALL * (true >= 0).sum())

    before = effort = 0
    for effort in efforts:
        if enough(effort):
            middle = (before + effort) // 2
            return middle if before < middle < effort and enough(middle) else effort
        before = effort
    return effort
