"""The facet ``table.vectors``: searching vectors as users call it. Searches live in ``vectors.search``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mainstem.errors import naming
from mainstem.publish.table_identity import check_table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from mainstem.api.opened_table import OpenedTable
    from mainstem.vectors.search.explanation import SearchExplanation
    from mainstem.vectors.search.searching import Searcher


class Vectors:
    """``table.vectors``: the nearest rows by a vector column, with an index and without."""

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened
        self._searcher: Searcher | None = None

    def search(
        self,
        column: str,
        vectors: Any,
        k: int,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        metric: str | None = None,
        ef: int | None = None,
        exact: bool = False,
        columns: Sequence[str] | None = None,
        *,
        clusters: int | None = None,
    ) -> pa.Table:
        """The ``k`` rows whose vectors in ``column`` are nearest, nearest first, as of the newest commit.

        ``vectors``: one query (a list or array of numbers), or several (lists of lists, (queries, values));
        texts, where the column's index has an embedding function (``mainstem.register_embedding``).
        The rows have all columns but the searched one, or ``columns``, and ``_hudi_distance`` (double); of
        several queries also ``_hudi_query_index``, query by query. Rows without a vector are left out, ties
        are broken by record key and partition. ``metric``: ``cosine`` (1 - cos; a zero vector is at distance
        1 of all), ``l2``, ``dot_product`` (minus the product) or Hudi's other names for them; the default is
        that of the column's index, else ``cosine``.

        With a vector index on the column its graphs are searched, and what was committed since it was
        refreshed is compared vector by vector; without one, with ``exact=True`` or with another metric all
        vectors are. ``ef``: how widely graphs are searched, more finds more of the true neighbours;
        ``clusters``: only so many clusters of the index, the nearest ones, instead of all. ``filter``: only
        rows that pass it; the ``k`` nearest of these are found. ``as_of``: the table as of a requested time,
        as ``scan`` has it. ``columns=["_hoodie_record_key"]`` is the fastest: no rows are read.

        Keep the table open between searches: graphs and what is fresh are remembered. Raises ``Invalid`` for
        a column without vectors, another dimension, NaN, an unknown metric, ``Unavailable`` where files went
        under the search. A damaged index is a warning, and all vectors are compared. Metrics are Hudi's
        (RFC-103).
        """
        how = {"filter": filter, "as_of": as_of, "exact": exact, "clusters": clusters}
        return self._found(column, vectors, k, metric, ef, columns=columns, **how)[0]

    def explain(
        self,
        column: str,
        vectors: Any,
        k: int,
        filter: pc.Expression | None = None,
        as_of: str | None = None,
        metric: str | None = None,
        ef: int | None = None,
        exact: bool = False,
        *,
        clusters: int | None = None,
    ) -> SearchExplanation:
        """How ``search`` finds its rows: by which version of the index, how many clusters, how many fresh
        vectors are compared, or why all are. It searches, and reads no rows of what it finds."""
        how = {"filter": filter, "as_of": as_of, "exact": exact, "clusters": clusters}
        return self._found(column, vectors, k, metric, ef, columns=[], **how)[1]

    def _found(
        self, column: str, vectors: Any, k: int, metric: str | None, ef: int | None, **how: Any
    ) -> tuple[pa.Table, SearchExplanation]:
        from mainstem.vectors.search.request import question

        with naming(self._opened.path, "the table cannot be searched", "try again"):
            asked = question(column, vectors, k, metric=metric, ef=ef)
            found = self._search_state().search(asked, **how)
            check_table(self._opened.seams.storage, self._opened.identity)  # else it may be of two tables
            return found

    def _search_state(self) -> Searcher:
        if self._searcher is None:
            from mainstem.vectors.search.searching import Searcher

            opened = self._opened
            self._searcher = Searcher(opened.seams.storage, damaged=opened.damaged, use=opened.use)
        return self._searcher
