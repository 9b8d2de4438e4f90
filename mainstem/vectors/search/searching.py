"""Searches the vectors of a table: as of the newest commit or any retained instant, filtered, by index or
exactly.

1. The timeline's folder is listed and the table's properties are read. If both are the same as in the last
search, so
   are the snapshot, the opened version of the index, and the rows that are fresh beside it.
2. Otherwise the snapshot is loaded as by ``Table.scan``; the newest complete version is opened (``serving``);
and each
   file slice is compared with what the version covers of it (``delta``).
3. With a filter, the keys of rows that pass are read by an ordinary filtered scan of the same snapshot.
4. Graphs are searched without the rows that do not stand or do not pass, and fresh rows are compared one by
one
   (``approximate``). If no version can serve, all rows are compared (``exact``).
5. The rows of what was found are read by key from their slices (``found_rows``).

Every complete version gives correct answers for every snapshot: which one is used affects only speed. A
version that a cleaner removes during use stays readable, since its files are open. If a version disappears
before they are, another one is looked for, and without any the search is exact. If a clean removes a data
file, the search starts again with a new snapshot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import Unavailable
from mainstem.forks import Mutex
from mainstem.limits import VECTOR_DELTA_BYTES_MAX
from mainstem.options.services import CLEAN_COMMITS
from mainstem.readers.planning.known_views import forget
from mainstem.readers.planning.query_times import instant_time
from mainstem.readers.rows.split import Split
from mainstem.readers.skipping.chooser import Use
from mainstem.storage.protocol import Storage
from mainstem.vectors.distances import COSINE
from mainstem.vectors.index.snapshots import Listing, Signs, Snapshot, how_read, listing, signs
from mainstem.vectors.search.approximate import in_range, search_plan
from mainstem.vectors.search.delta import NotByIndex
from mainstem.vectors.search.exact import search_splits
from mainstem.vectors.search.explanation import SearchExplanation
from mainstem.vectors.search.found_rows import empty_result, result
from mainstem.vectors.search.hits import Hits, nearest_of
from mainstem.vectors.search.one_query import search_one
from mainstem.vectors.search.opened_version import Opened
from mainstem.vectors.search.request import Question, check_column, counted, output_names
from mainstem.vectors.search.search_plan import Deltas, Plan, passing, plan
from mainstem.vectors.search.serving import Served, Serving

_ATTEMPTS = 4
# Snapshots remembered: the current one, and those of moments that are requested repeatedly.
_SNAPSHOTS = 8


@dataclass
class _Ready:
    """What the searches of one moment share. ``listed``: the last listing with these signs. ``read``: column
    -> digest of how its values are read (``how_read``)."""

    signs: Signs
    snapshot: Snapshot
    listed: Listing
    plans: dict[tuple[str, str], Plan] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)

    def how_read(self, column: str) -> str:
        """The digest of how a column's values are read, computed once."""
        found = self.read.get(column)
        if found is None:
            found = self.read[column] = how_read(self.snapshot.spec, column)
        return found


class Searcher:
    """The searches of one open table; several threads may use it."""

    def __init__(self, storage: Storage, *, damaged: str, use: Use) -> None:
        self._storage = storage
        self._damaged = damaged
        self._use = use
        self._mutex = Mutex()
        self._ready: OrderedDict[str | None, _Ready] = OrderedDict()
        self._serving = Serving(storage)
        self._deltas = Deltas()

    def search(
        self,
        asked: Question,
        *,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        exact: bool = False,
        columns: Sequence[str] | None = None,
        clusters: int | None = None,
    ) -> tuple[pa.Table, SearchExplanation]:
        """The rows found, and an explanation. Raises ``Invalid`` for what cannot be asked of the table,
        ``Unavailable`` if cleans kept removing files during the search, and what ``Table.scan`` raises."""
        until = None if as_of is None else instant_time(as_of, "as_of")
        clusters = None if clusters is None else counted(clusters, "clusters")
        for _ in range(_ATTEMPTS):
            try:
                return self._once(asked, filter, until, exact, columns, clusters)
            except FileNotFoundError as error:
                missing = error
                forget(self._storage)
                with self._mutex.held:
                    self._ready.pop(until, None)
        raise Unavailable(
            f"files of the view were removed while it was searched ({missing}); a clean retains too few"
            f" commits for searches of this length: search again, or raise {CLEAN_COMMITS}",
            table=self._storage.base,
        ) from missing

    def _once(
        self,
        asked: Question,
        filter: pc.Expression | None,
        until: str | None,
        exact: bool,
        columns: Sequence[str] | None,
        clusters: int | None,
    ) -> tuple[pa.Table, SearchExplanation]:
        ready = self._moment(until)
        snapshot, served = ready.snapshot, self._serves(asked.column)
        asked = asked.embedded("" if served.index is None else served.index.embedding)
        check_column(asked, snapshot.schema)
        names = output_names(asked, snapshot.schema, columns)
        if not len(asked.queries):
            return empty_result(snapshot.schema, names, asked), _nothing_asked(asked)
        hits, told, splits = self._hits(asked, served, filter, ready, exact, clusters)
        if not len(hits):
            return empty_result(snapshot.schema, names, asked), told
        config = snapshot.view.state.config
        rows = result(self._storage, splits, hits, asked, names, config, told.metric)
        return rows, told

    def _hits(
        self,
        asked: Question,
        served: Served,
        filter: pc.Expression | None,
        ready: _Ready,
        exact: bool,
        clusters: int | None,
    ) -> tuple[Hits, SearchExplanation, Sequence[Split]]:
        """The hits, their explanation, and the splits of all slices from which to read the rows."""
        if served.lost is not None and asked.metric is None:
            raise served.lost
        metric = asked.metric or (served.index.metric if served.index is not None else COSINE)
        why = "exact=True" if exact else served.why or _unfit(served, asked, metric, ready)
        if not why:
            try:
                found = self._by_index(asked, filter, ready, served, clusters)
                return *found, ready.snapshot.splits
            except NotByIndex as error:
                why = error.message
        return self._exactly(asked, filter, ready.snapshot, metric, why)

    def _exactly(
        self, asked: Question, filter: pc.Expression | None, snapshot: Snapshot, metric: str, why: str
    ) -> tuple[Hits, SearchExplanation, Sequence[Split]]:
        splits = list(enumerate(snapshot.splits)) if filter is None else snapshot.filtered(filter)
        found, compared = search_splits(
            self._storage, [split for _, split in splits], [number for number, _ in splits], asked, metric
        )
        hits = nearest_of(found, asked.k, snapshot.partitions)
        queries = len(asked.queries)
        told = SearchExplanation(asked.column, metric, asked.k, queries, True, why, compared=compared)
        # Read with the filter, which decides which of several rows with one key passed.
        searched = dict(splits)
        return hits, told, [searched.get(at, split) for at, split in enumerate(snapshot.splits)]

    def _by_index(
        self,
        asked: Question,
        filter: pc.Expression | None,
        ready: _Ready,
        served: Served,
        clusters: int | None,
    ) -> tuple[Hits, SearchExplanation]:
        index, opened = served.index, served.opened
        assert index is not None and opened is not None
        made, cached = self._plan(asked.column, ready, opened)
        metric, version = opened.version.metric, opened.version
        chosen = None if filter is None else passing(self._storage, made, filter)
        if chosen is None and len(asked.queries) == 1 and (clusters is None or clusters >= len(made.used)):
            hits, searched = search_one(made, asked, metric)
        else:
            hits, searched = search_plan(made, asked, metric, chosen, clusters)
        return hits, SearchExplanation(
            asked.column,
            metric,
            asked.k,
            len(asked.queries),
            exact=False,
            index=index.name,
            version=version.number,
            clusters=searched,
            clusters_total=len(version.clusters),
            rows=version.rows,
            masked=made.masked_rows,
            fresh=len(made.keys) if chosen is None else int(chosen.fresh.sum()),
            slices=made.kinds,
            slices_cached=cached,
            passed=served.passed,
        )

    def _moment(self, until: str | None) -> _Ready:
        """The snapshot; the last search's, while timeline and properties show no change."""
        listed = listing(self._storage)
        with self._mutex.held:
            known = self._ready.get(until)
            if known is None or known.listed != listed:
                seen = signs(listed, until)
                if known is None or known.signs != seen:
                    snapshot = Snapshot.load(self._storage, until, damaged=self._damaged, use=self._use)
                    known = self._ready[until] = _Ready(seen, snapshot, listed)
                known.listed = listed
            self._ready.move_to_end(until)
            while len(self._ready) > _SNAPSHOTS:
                self._ready.popitem(last=False)
            return known

    def _plan(self, column: str, ready: _Ready, opened: Opened) -> tuple[Plan, int]:
        """The plan for the version in the snapshot, and the number of slices with deltas known before."""
        key = (column, opened.version.token)
        with self._mutex.held:
            known = ready.plans.get(key)
            if known is not None:
                differing = len(ready.snapshot.splits) - known.kinds["unchanged"]
                return known, differing
            made = plan(self._storage, ready.snapshot, column, opened, self._deltas)
            ready.plans = {k: v for k, v in ready.plans.items() if k[0] != column} | {key: made}
            self._bound()
            return made, made.cached

    def _bound(self) -> None:
        """Forget the moments requested longest ago, while all moments together hold too many fresh rows."""
        while len(self._ready) > 1 and self._fresh_bytes() > VECTOR_DELTA_BYTES_MAX:
            self._ready.popitem(last=False)

    def _fresh_bytes(self) -> int:
        return sum(made.vectors.nbytes for ready in self._ready.values() for made in ready.plans.values())

    def _serves(self, column: str) -> Served:
        with self._mutex.held:
            return self._serving.of(column)


def _unfit(served: Served, asked: Question, metric: str, ready: _Ready) -> str:
    """Why the version cannot answer this question; "" if it can."""
    assert served.opened is not None
    version = served.opened.version
    if metric != version.metric:
        return f"the index is built for {version.metric}"
    if version.dimension != asked.queries.shape[1] and version.rows:
        return f"the index holds vectors of {version.dimension} values; refresh it"
    if version.dimension != asked.queries.shape[1]:
        return "the index holds no vectors yet"
    if version.reading not in ("", ready.how_read(asked.column)):
        return "the column, or how rows are merged, has changed since the index was built; refresh it"
    if not in_range(asked):
        return "numbers of the queries are too large for float32"
    return ""


def _nothing_asked(asked: Question) -> SearchExplanation:
    metric = asked.metric or COSINE
    return SearchExplanation(asked.column, metric, asked.k, 0, True, "no queries")
