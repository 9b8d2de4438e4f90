"""The facet ``table.vectors``: the public interface of vector search, which ``vectors.search`` does."""

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
    from mainstem.vectors.search.index_coverage import Coverage
    from mainstem.vectors.search.searching import Searcher


class Vectors:
    """``table.vectors``: finds the rows with the nearest vectors, with an index or without."""

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

        ``vectors``: one query (a list or array of numbers), or several (a list of lists, or an array of shape
        (queries, values)). If the column's index has an embedding function, also a text or several
        (``mainstem.register_embedding``). ``metric``: ``cosine`` (1 - cos; a zero vector has distance 1 from
        all), ``l2``, ``dot_product`` (minus the product), or Hudi's other names for them. The default is the
        metric of the column's index, else ``cosine``.

        The result has ``columns``, by default all except the searched one, and ``_hudi_distance`` (double).
        For several queries it also has ``_hudi_query_index`` and is ordered by query. Rows without a vector
        are left out. Ties are broken by record key, then partition. ``columns=["_hoodie_record_key"]`` is
        fastest: no rows are read.

        If the column has a vector index, the search walks its graphs, and compares vectors committed since
        its last refresh one by one. Without an index, with ``exact=True`` or with another metric than the
        index's, it compares all vectors. ``ef``: how widely graphs are searched; more finds more of the true
        neighbours. ``clusters``: how many clusters of the index to search, nearest first; by default all.
        ``filter``: searches only rows that pass it. ``as_of``: the table as of a requested time, as in
        ``scan``.

        Keep the table open between searches: it keeps graphs and fresh vectors in memory. Raises ``Invalid``
        for a column without vectors, another dimension, NaN or an unknown metric; ``Unavailable`` if files
        were removed during the search. For a damaged index it warns and compares all vectors. Metrics are
        Hudi's (RFC-103).
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
        """How ``search`` finds its rows: with which version of the index, in how many clusters, how many
        fresh vectors it compares, or why it compares all. It does search, but does not read the rows it
        finds."""
        how = {"filter": filter, "as_of": as_of, "exact": exact, "clusters": clusters}
        return self._found(column, vectors, k, metric, ef, columns=[], **how)[1]

    def coverage(self, name: str) -> Coverage:
        """How much of the table the newest version of the index with this SQL name covers as it is now: its
        file slices, counted by what a search does with them. Reads no vector. Raises ``Invalid`` if no vector
        index has the name."""
        from mainstem.vectors.search.index_coverage import coverage

        opened = self._opened
        with naming(opened.path, "the index cannot be looked at", "try again"):
            return coverage(opened.seams.storage, name, damaged=opened.damaged, use=opened.use)

    def _found(
        self, column: str, vectors: Any, k: int, metric: str | None, ef: int | None, **how: Any
    ) -> tuple[pa.Table, SearchExplanation]:
        from mainstem.vectors.search.request import question

        with naming(self._opened.path, "the table cannot be searched", "try again"):
            asked = question(column, vectors, k, metric=metric, ef=ef)
            found = self._search_state().search(asked, **how)
            # Without this check, the result might mix two tables.
            check_table(self._opened.seams.storage, self._opened.identity)
            return found

    def _search_state(self) -> Searcher:
        if self._searcher is None:
            from mainstem.vectors.search.searching import Searcher

            opened = self._opened
            self._searcher = Searcher(opened.seams.storage, damaged=opened.damaged, use=opened.use)
        return self._searcher
