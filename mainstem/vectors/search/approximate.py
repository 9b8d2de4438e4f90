"""Finds the nearest rows of a plan: from the clusters' graphs, and from fresh rows one by one.

Clusters that cannot hold one of the best rows are left out (``cluster_bounds``). The query's own cluster is
searched as widely as the build found necessary. Each other cluster first gets a glance: the nearest row that
a narrow search finds, at a small part of the cost. If even that row is well beyond the k nearest known so
far, the cluster is done; otherwise it is searched as widely as the query's own. With ``ef`` given, or with
inner products, for which distances say nothing about how far away a cluster is, there are no glances.

Graphs rank by their library's float32 distances. Each is asked for somewhat more than ``k`` rows, and those
that may be among the best are compared again by double-precision distances of the stored vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mainstem.vectors.distances import COSINE, DOT, L2, nearest, pair_distances
from mainstem.vectors.search.exact import nearest_rows, shown
from mainstem.vectors.search.hits import Hits, joined, nearest_of, nothing, whole
from mainstem.vectors.search.opened_version import OpenCluster
from mainstem.vectors.search.request import Question
from mainstem.vectors.search.search_plan import Passing, Plan

# Extra neighbours requested beyond ``k``, since rounding may rank a true one slightly too low.
_MORE, _MORE_SHARE = 6, 0.1
# From this share of a cluster's rows on, comparing all of them is cheaper than walking its graph.
_MOST = 0.3

_FLOAT32_MAX = float(np.finfo(np.float32).max)
# How widely a glance searches, for engines whose narrow searches find something near. A cluster gets one only
# if it has this many rows, since small ones are compared row by row, and if this share of them is allowed.
_GLANCE = {"hnsw": 16}
_GLANCE_ROWS, _GLANCE_SHARE = 2_000, 0.5
# A cluster is searched if what a glance finds is at most this many times as far as the k-th nearest: a tenth
# more by Euclidean distance, and the same for cosine distances, which grow with its square.
_NEAR = {L2: 1.1, COSINE: 1.21}

Found = tuple[np.ndarray, np.ndarray]
"""Labels (q, m), -1 for none, and distances (q, m)."""


def search_plan(
    made: Plan, asked: Question, metric: str, passing: Passing | None, clusters: int | None
) -> tuple[Hits, int]:
    """The ``k`` nearest of the plan's rows (that pass) for each query, and the number of clusters searched.

    ``clusters``: search only this many, those with the nearest centroids; None: all that can hold one of the
    nearest rows.
    """
    masks = made.allowed if passing is None else passing.allowed
    fresh = of_fresh(made, asked, metric, passing)
    used = made.used
    if clusters is not None and clusters < len(used):
        chosen = _nearest_clusters(made, asked, clusters)
        tasks = [(at, np.flatnonzero((chosen == at).any(axis=1))) for at in used]
        found = _Candidates.of(made, asked, metric, masks)
        found.search(tasks)
    else:
        found = _everywhere(made, asked, metric, masks, used, fresh)
    hits = nearest_of(joined([found.measured(), fresh]), asked.k, made.snapshot.partitions)
    return hits, len(found.searched)


def _everywhere(
    made: Plan,
    asked: Question,
    metric: str,
    masks: Sequence[np.ndarray | None],
    used: Sequence[int],
    fresh: Hits,
) -> _Candidates:
    """Search each query's own cluster, then those that may hold a row nearer than its k-th so far."""
    found = _Candidates.of(made, asked, metric, masks)
    if len(used) < 2:
        found.search([(at, np.arange(len(asked.queries))) for at in used])
        return found
    first, least = made.opened.reach.least(asked.queries)
    found.search([(at, np.flatnonzero(first == at)) for at in used])
    worst = np.minimum(found.kth(), _kth_of(fresh, asked))
    open_to = (least <= worst[:, None]) & (np.arange(least.shape[1])[None, :] != first[:, None])
    tasks = [(at, np.flatnonzero(open_to[:, at])) for at in used]
    found.search([(at, found.promising(at, rows, worst[rows])) for at, rows in tasks if len(rows)])
    return found


def _kth_of(hits: Hits, asked: Question) -> np.ndarray:
    """Distance of each query's k-th hit, given sorted hits; infinity if there are fewer."""
    worst = np.full(len(asked.queries), np.inf)
    if len(hits):
        counts = np.bincount(hits.query, minlength=len(worst))
        full = np.flatnonzero(counts >= asked.k)
        worst[full] = hits.distance[(np.cumsum(counts) - counts)[full] + asked.k - 1]
    return worst


@dataclass
class _Candidates:
    """What graphs found: labels and the graphs' distances (q, m), best first after each search, the clusters
    to which the labels belong, and the clusters searched so far."""

    made: Plan
    asked: Question
    metric: str
    masks: Sequence[np.ndarray | None]
    queries: np.ndarray
    wanted: int
    labels: np.ndarray
    distances: np.ndarray
    owners: np.ndarray
    searched: set[int]

    @classmethod
    def of(
        cls, made: Plan, asked: Question, metric: str, masks: Sequence[np.ndarray | None]
    ) -> _Candidates:
        wanted = wanted_of(made, asked)
        none = np.full((len(asked.queries), 0), -1, np.int64)
        queries = asked.queries.astype(np.float32)
        apart = np.zeros(none.shape, np.float32)
        return cls(made, asked, metric, masks, queries, wanted, none, apart, none, set())

    def search(self, tasks: Sequence[tuple[int, np.ndarray]]) -> None:
        """Search clusters, each for some of the queries (ascending numbers)."""
        labels, distances, owners = [self.labels], [self.distances], [self.owners]
        for at, mine in tasks:
            if not len(mine):
                continue
            whole = len(mine) == len(self.queries)
            cluster, queries = self.made.opened.clusters[at], self.queries if whole else self.queries[mine]
            part = of_cluster(cluster, queries, self.wanted, self.asked.ef, self.masks[at], self.metric)
            self.searched.add(at)
            found, apart = part if whole else _spread(part, mine, len(self.queries))
            labels.append(found)
            distances.append(apart)
            owners.append(np.broadcast_to(np.int64(at), found.shape))
        if len(labels) == 1:
            return
        self.labels, self.distances = np.concatenate(labels, axis=1), np.concatenate(distances, axis=1)
        self.owners = np.concatenate(owners, axis=1)
        if self.labels.shape[1] > self.wanted:
            best = np.argpartition(self.distances, self.wanted - 1, axis=1)[:, : self.wanted]
            rows = np.arange(len(best))[:, None]
            self.labels, self.owners = self.labels[rows, best], self.owners[rows, best]
            self.distances = self.distances[rows, best]

    def promising(self, at: int, rows: np.ndarray, worst: np.ndarray) -> np.ndarray:
        """Those of the queries ``rows`` for which a glance at a cluster finds something near. ``worst``: the
        distance of the k-th nearest so far, for each of them."""
        cluster, mask = self.made.opened.clusters[at], self.masks[at]
        there = len(cluster.slices)
        standing = there if mask is None else int(np.count_nonzero(mask))
        glance = glance_of(self.made, self.asked, self.metric, there, standing)
        if glance is None:
            return rows
        effort, near = glance
        queries = self.queries[rows]
        labels, apart = cluster.graph.search(queries, 1, effort, mask, _threads(queries))
        return rows[(labels[:, 0] < 0) | (apart[:, 0] <= worst * near)]

    def kth(self) -> np.ndarray:
        """Distance of each query's k-th nearest so far; infinity if there are fewer."""
        k = self.asked.k
        if self.distances.shape[1] < k:
            return np.full(len(self.queries), np.inf)
        return np.partition(self.distances, k - 1, axis=1)[:, k - 1].astype(np.float64)

    def measured(self) -> Hits:
        """The candidates with double-precision distances."""
        opened, parts = self.made.opened, []
        for at in np.unique(self.owners).tolist():
            cluster = opened.clusters[at]
            query, place = np.nonzero((self.owners == at) & (self.labels >= 0))
            rows = self.labels[query, place]
            if not len(rows):
                continue
            apart = pair_distances(self.metric, self.asked.queries[query], cluster.vectors[rows])
            keys = whole(cluster.keys.take(pa.array(rows)))
            parts.append(Hits(query, self.made.places[cluster.slices[rows]], keys, shown(self.metric, apart)))
        return joined(parts)


def wanted_of(made: Plan, asked: Question) -> int:
    """How many neighbours to request from each graph."""
    more = asked.k + max(_MORE, int(asked.k * _MORE_SHARE))
    return more * max((cluster.graph.oversample for cluster in made.opened.clusters), default=1)


def glance_of(
    made: Plan, asked: Question, metric: str, rows: int, standing: int
) -> tuple[int, float] | None:
    """How widely a glance searches a cluster with this many rows, and how many times the k-th distance its
    finding may be away; None if there are no glances."""
    effort, near = _GLANCE.get(made.opened.version.engine), _NEAR.get(metric)
    if effort is None or near is None or asked.ef is not None or rows < _GLANCE_ROWS:
        return None
    return None if standing < _GLANCE_SHARE * rows else (effort, near)


def walk_pays(wanted: int, standing: int) -> bool:
    """Whether to ask a graph for this many of a cluster's rows, instead of comparing all of them."""
    return wanted <= _MOST * standing


def of_cluster(
    cluster: OpenCluster,
    queries: np.ndarray,
    wanted: int,
    ef: int | None,
    mask: np.ndarray | None,
    metric: str,
) -> Found:
    """The ``wanted`` nearest of a cluster's rows that the mask allows, or as many as there are."""
    rows = len(cluster.slices)
    possible = rows if mask is None else int(np.count_nonzero(mask))
    wanted = min(wanted, possible)
    if not wanted or not len(queries):
        return np.zeros((len(queries), 0), np.int64), np.zeros((len(queries), 0), np.float32)
    if not walk_pays(wanted, possible):
        return nearest(metric, queries, cluster.vectors, wanted, allowed=mask)
    labels, distances = cluster.graph.search(queries, wanted, ef, mask, _threads(queries))
    short = np.flatnonzero(labels[:, -1] < 0)
    if len(short):  # the graph's edges do not lead to enough rows
        labels, distances = labels.copy(), distances.copy()
        labels[short], distances[short] = nearest(
            metric, queries[short], cluster.vectors, wanted, allowed=mask
        )
    return labels, distances


def _threads(queries: np.ndarray) -> int:
    """One thread for a single query: it is answered sooner than another thread starts."""
    return 1 if len(queries) == 1 else 0


def _spread(part: Found, rows: np.ndarray, queries: int) -> Found:
    labels = np.full((queries, part[0].shape[1]), -1, np.int64)
    distances = np.full(labels.shape, np.inf, np.float32)
    labels[rows], distances[rows] = part
    return labels, distances


def of_fresh(made: Plan, asked: Question, metric: str, passing: Passing | None = None) -> Hits:
    """The nearest fresh rows (that pass) for each query, ascending."""
    if not len(made.keys):
        return nothing()
    if passing is None:
        return nearest_rows(made.vectors, made.keys, made.numbers, asked, metric)
    rows = np.flatnonzero(passing.fresh)
    return nearest_rows(made.vectors[rows], made.keys.take(rows), made.numbers[rows], asked, metric)


def _nearest_clusters(made: Plan, asked: Question, clusters: int) -> np.ndarray:
    """(q, clusters): the clusters with the nearest centroids. An inner product also grows with length, so for
    it clusters are chosen by the product."""
    version = made.opened.version
    centroids = np.stack([cluster.centroid for cluster in version.clusters]).astype(np.float64)
    metric = version.metric if version.metric in (COSINE, DOT) else "l2"
    there = np.array([cluster.rows > 0 for cluster in version.clusters])
    return nearest(metric, asked.queries, centroids, clusters, allowed=there)[0]


def in_range(question: Question) -> bool:
    """Whether graphs can be searched: the queries' values fit into float32."""
    if float(np.abs(question.queries).max(initial=0)) <= _FLOAT32_MAX:
        return True
    with np.errstate(over="ignore"):  # values slightly above the largest are rounded to it
        return bool(np.isfinite(question.queries.astype(np.float32)).all())
