"""Nearest rows of a single query: finds the same as ``approximate``, without the cost of a batch.

A graph answers one query in tenths of a millisecond, and every NumPy or Arrow call costs a hundredth of that.
With all that a batch needs besides its graphs, a single query would wait longer for Python than for them.
Here the same clusters are searched and glanced at, equally widely, and rows are compared by the same
distances. Special cases are left to ``approximate``: clusters that are not searched by walking their graph,
and ties.

There is no second thread: waking one takes about as long as it saves.
"""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

from mainstem.vectors.distances import pair_distances
from mainstem.vectors.search.approximate import glance_of, of_cluster, of_fresh, walk_pays, wanted_of
from mainstem.vectors.search.exact import shown
from mainstem.vectors.search.hits import Hits, Texts, joined, nearest_of, nothing, whole
from mainstem.vectors.search.request import Question
from mainstem.vectors.search.search_plan import Plan

# Above this many rows, Arrow takes the keys.
_KEYS = 64

Found = tuple[int, np.ndarray, np.ndarray]
"""A cluster, with labels and distances (m,), ascending."""


def search_one(made: Plan, asked: Question, metric: str) -> tuple[Hits, int]:
    """The ``k`` nearest rows for the only query, and the number of clusters searched in full."""
    fresh = of_fresh(made, asked, metric) if len(made.keys) else None
    worst = math.inf if fresh is None or len(fresh) < asked.k else float(fresh.distance[asked.k - 1])
    walk = _Walk(made, asked, metric)
    searched = walk.through(worst)
    found = [part for part in searched if len(part[1])]
    return _nearest(made, asked, metric, _best(found, walk.wanted), fresh), len(searched)


class _Walk:
    """A walk through the graphs of a plan's clusters, for one query."""

    def __init__(self, made: Plan, asked: Question, metric: str) -> None:
        self._made, self._asked, self._metric = made, asked, metric
        self.wanted = wanted_of(made, asked)
        self._query = asked.queries.astype(np.float32)
        # The same for all graphs: a version's clusters share engine and metric.
        graph = made.opened.clusters[made.used[0]].graph if made.used else None
        self._prepared = None if graph is None else graph.prepared(self._query)

    def through(self, worst: float) -> list[Found]:
        """Search the query's own cluster, then those that may hold a row nearer than the k-th. ``worst``:
        distance of the k-th nearest among other rows."""
        used = self._made.used
        if len(used) < 2:
            return [self._search(at) for at in used]
        first, least = self._made.opened.reach.of_one(self._asked.queries[0])
        found = [self._search(first)] if first in used else []
        if found and len(found[0][2]) >= self._asked.k:
            worst = min(worst, float(found[0][2][self._asked.k - 1]))
        near = [at for at in used if at != first and least[at] <= worst and self._promises(at, worst)]
        return found + [self._search(at) for at in near]

    def _search(self, at: int) -> Found:
        """The nearest rows of a cluster."""
        made, ef = self._made, self._asked.ef
        cluster, allowed, standing = made.opened.clusters[at], made.allowed[at], made.standing[at]
        wanted = min(self.wanted, standing)
        if self._prepared is not None and wanted and walk_pays(wanted, standing):
            found = cluster.graph.walked(self._prepared, wanted, ef, allowed, standing)
            if found is not None:
                return at, *found
        labels, apart = of_cluster(cluster, self._query, wanted, ef, allowed, self._metric)
        there = labels[0] >= 0
        return at, labels[0][there], apart[0][there]

    def _promises(self, at: int, worst: float) -> bool:
        """Whether a glance at a cluster shows a near row; True without glances, or if it shows nothing."""
        made = self._made
        cluster, allowed, standing = made.opened.clusters[at], made.allowed[at], made.standing[at]
        glance = glance_of(made, self._asked, self._metric, len(cluster.slices), standing)
        if glance is None:
            return True
        effort, near = glance
        if self._prepared is not None and standing:
            found = cluster.graph.walked(self._prepared, 1, effort, allowed, standing)
            if found is not None:
                return float(found[1][0]) <= worst * near
        labels, apart = cluster.graph.search(self._query, 1, effort, allowed, 1)
        return labels[0, 0] < 0 or float(apart[0, 0]) <= worst * near


def _best(found: list[Found], wanted: int) -> list[tuple[int, np.ndarray]]:
    """Clusters and labels of the ``wanted`` best, by the graphs' distances."""
    if sum(len(labels) for _, labels, _ in found) <= wanted:
        return [(at, labels) for at, labels, _ in found]
    apart = np.concatenate([distances for _, _, distances in found])
    chosen = np.zeros(len(apart), bool)
    chosen[np.argpartition(apart, wanted - 1)[:wanted]] = True
    best, first = [], 0
    for at, labels, _ in found:
        best.append((at, labels[chosen[first : first + len(labels)]]))
        first += len(labels)
    return [part for part in best if len(part[1])]


def _nearest(
    made: Plan, asked: Question, metric: str, best: list[tuple[int, np.ndarray]], fresh: Hits | None
) -> Hits:
    """The ``k`` nearest of these candidates and the fresh rows, by double-precision distances."""
    clusters, k = made.opened.clusters, asked.k
    parts = [
        shown(metric, pair_distances(metric, asked.queries, clusters[at].vectors[labels]))
        for at, labels in best
    ]
    if fresh is not None and len(fresh):
        parts.append(fresh.distance)
    if not parts:
        return nothing()
    distances = np.concatenate(parts) if len(parts) > 1 else parts[0]
    order = distances.argsort(kind="stable")
    ascending = distances[order]
    keys = [made.key_texts[at] for at, _ in best]
    # Ties are ordered by key.
    if k > _KEYS or None in keys or (ascending[1:] == ascending[:-1]).any():
        hits = [_hits(made, at, labels, apart) for (at, labels), apart in zip(best, parts, strict=False)]
        return nearest_of(joined([*hits, fresh or nothing()]), k, made.snapshot.partitions)
    # The slice number in the snapshot for every candidate, but keys only for those that are found.
    slices = [made.places[clusters[at].slices[labels]] for at, labels in best]
    order, sources = order[:k], [(texts, part[1].tolist()) for texts, part in zip(keys, best, strict=True)]
    if fresh is not None and len(parts) > len(best):
        slices.append(fresh.slice)
        sources.append((Texts.of(fresh.key), range(len(fresh))))
    places = [(texts, row) for texts, rows in sources if texts is not None for row in rows]
    found = Texts.array(texts.at(row) for texts, row in map(places.__getitem__, order.tolist()))
    slices = np.concatenate(slices) if len(slices) > 1 else slices[0]
    return Hits(np.zeros(len(order), np.int64), slices[order], found, ascending[:k])


def _hits(made: Plan, at: int, labels: np.ndarray, distances: np.ndarray) -> Hits:
    cluster = made.opened.clusters[at]
    query, slices = np.zeros(len(labels), np.int64), made.places[cluster.slices[labels]]
    return Hits(query, slices, whole(cluster.keys.take(pa.array(labels))), distances)
