"""The facet ``table.indexes``: lists, builds, refreshes and drops indexes.

The metadata table's indexes live in ``indexing``, vector indexes in ``vectors.index``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mainstem.errors import Invalid, naming
from mainstem.layout.properties import load_config

if TYPE_CHECKING:
    from mainstem.api.opened_table import OpenedTable
    from mainstem.indexing.differences import MetadataReport
    from mainstem.indexing.dropping import Dropped
    from mainstem.indexing.index_build import Built
    from mainstem.indexing.status import Index
    from mainstem.services.progress import Progress
    from mainstem.vectors.index.lifecycle import Refreshed

VECTOR = "vector"


class Indexes:
    """``table.indexes``: lists, builds and drops indexes while writers run.

    ``table.indexes()`` lists them. Names are those of SQL or partitions of the metadata table. All methods
    raise ``Unsupported`` or ``Invalid`` for a table that mainstem does not write, and ``Unavailable`` if a
    retry may succeed.
    """

    def __init__(self, opened: OpenedTable) -> None:
        self._opened = opened

    @property
    def _path(self) -> str:
        return self._opened.path

    def __call__(self) -> list[Index]:
        """The table's indexes, sorted by name, each with its kind, columns and state (``ready``,
        ``building``, ``planned``, ``left over``). ``files``, the listing that the others depend on, is among
        them. Vector indexes, which need no metadata table, come last. A vector index is ``lost`` if its files
        were removed with the metadata table's folder: searches are exact until it is refreshed.

        Raises ``CorruptTable`` for damaged definitions or plans. Hudi keeps definitions in ``index.json``
        (``HoodieIndexMetadata``) and states in ``hoodie.properties``.
        """
        from mainstem.indexing.status import indexes
        from mainstem.timeline.active import load_timeline
        from mainstem.vectors.index.lifecycle import vector_indexes

        with naming(self._path, "the table's indexes cannot be read", "try again"):
            storage = self._opened.seams.storage
            config = load_config(storage)
            config.check_readable(self._path)
            return [*indexes(storage, config, load_timeline(storage)), *vector_indexes(storage)]

    def get(self, name: str) -> Index:
        """The index with this SQL name, or in this partition of the metadata table.

        Raises ``Invalid`` if there is no such index, or if the name is ambiguous.
        """
        known = self()
        found = self._find(name, known)
        if found is None:
            there = ", ".join(i.name for i in known) or "none"
            raise Invalid(f"no index is called {name!r}; there are: {there}", table=self._path)
        return found

    def _find(self, name: str, known: Sequence[Index]) -> Index | None:
        from mainstem.indexing.status import find

        if not isinstance(name, str) or not name.strip():
            raise Invalid(f"{name!r} names no index", table=self._path)
        return find(name.strip(), known, self._path)

    def validate(self, *, kept: int = 100) -> MetadataReport | None:
        """Compares every partition of the metadata table with the data, while writers go on.

        ``report.ok`` is False if the two differ. The report lists up to ``kept`` differences per partition
        and counts all. Statistics that are too wide and entries of deleted keys are no differences; they are
        counted apart. Returns None for a table without a metadata table. Raises ``CorruptTable`` if the
        metadata table cannot be read, ``Unavailable`` if cleans kept removing files during the comparison.
        Compares what Hudi's ``HoodieMetadataTableValidator`` does.
        """
        from mainstem.indexing.spill import spilled
        from mainstem.indexing.validate import validate_metadata

        if kept < 0:
            raise Invalid(f"kept={kept}; expected a number of differences to list", table=self._path)
        with naming(self._path, "the metadata table cannot be compared", "try again"):
            storage, damaged = self._opened.seams.storage, self._opened.damaged
            with spilled() as keep:
                return validate_metadata(storage, kept=kept, damaged=damaged, keep=keep)

    def create(
        self,
        kind: str,
        columns: Sequence[str] = (),
        *,
        name: str | None = None,
        options: Mapping[str, object] | None = None,
        progress: Progress | None = None,
    ) -> Built | Refreshed:
        """Builds an index beside running writers: none stops or waits. The index is complete on return.

        ``kind`` is one of

        - ``files``: the listing of files, with which a metadata table begins
        - ``column_stats``: on ``columns``, else on ``hoodie.metadata.index.column.stats.column.list``, else
          on the first 32 columns that can have statistics
        - ``partition_stats``: for partitioned tables, on the columns of ``column_stats``
        - ``bloom_filters``: of the record keys in base files
        - ``record_index``: of the record keys
        - ``secondary_index``: on one column
        - ``expr_index``: on a function of one column, as in ``options={"expr": "upper"}``
        - ``vector``: on one column of vectors, or of texts together with an embedding function; ``options``
          are ``{"engine": "hnsw", "metric": "cosine", "clusters": 4, "embedding": name}`` and the engine's
          own

        An index that this one depends on is built first if the table lacks it. ``name``: for kinds that a
        table may have several of (``secondary_index``, ``expr_index``, ``vector``); by default the column's.
        ``options``: Hudi's options for this index, on top of the table's. ``progress(what, done, total)`` is
        called after each file group. Several indexes may be built at once.

        Raises ``Invalid`` for an index that exists or is being built, for missing columns and impossible
        types; ``Unsupported`` for kinds that mainstem does not maintain; ``Unavailable`` if the build could
        not be finished (``indexing.index_build``). After a failure the table has no part of the index. Hudi:
        RFC-45 (``ScheduleIndexActionExecutor``, ``RunIndexActionExecutor``), RFC-103 for vectors.
        """
        from mainstem.indexing.creating import create_index

        given = {str(k): str(v) for k, v in (options or {}).items()}
        if kind == VECTOR:
            from mainstem.services.progress import silent
            from mainstem.vectors.index.lifecycle import create

            self.check_new_name(name)
            return create(self._opened.index_context(), list(columns), name, given, progress or silent)
        return create_index(self._opened.index_context(), kind, list(columns), given, progress, name)

    def check_new_name(self, name: str | None) -> None:
        """Raises ``Invalid`` if an index has this name already."""
        taken = None if name is None else self._find(name, self())
        if taken is not None:
            raise Invalid(f"an index is called {name!r} already: {taken.describe()}", table=self._path)

    def refresh(self, name: str, *, progress: Progress | None = None) -> Refreshed:
        """Builds the next version of a vector index from all current rows, beside writers and searches.

        Searches use the previous version until the new one is complete, and always find newer rows too.
        Nothing is built if no file of the table has changed. Raises ``Invalid`` for an index that is not a
        vector index, or whose column now has vectors of another dimension (use ``rebuild``), ``Unavailable``
        if the build could not be finished.
        """
        from mainstem.services.progress import silent
        from mainstem.vectors.index.lifecycle import refresh

        index = self.get(name)
        if index.kind != VECTOR:
            raise Invalid(
                f"{index.describe()}; every commit maintains it, so there is nothing to refresh. If it has"
                " wrong entries, rebuild it: reindex()",
                table=self._path,
            )
        return refresh(self._opened.index_context(), index.name, progress or silent)

    def rebuild(self, name: str, *, progress: Progress | None = None) -> Built | Refreshed:
        """Builds an index anew on the same columns, beside running writers, to remove wrong entries.

        A vector index gets another version, even if nothing changed. Any other index is dropped first, so
        reads do without it until it is complete; if this process dies in between, the table has no such
        index (``create``). Raises ``Invalid`` for an index that does not exist, that another one needs, or
        whose kind is not built here.
        """
        from mainstem.indexing import creating
        from mainstem.services.progress import silent
        from mainstem.vectors.index.lifecycle import refresh

        index = self.get(name)
        if index.kind == VECTOR:
            return refresh(self._opened.index_context(), index.name, progress or silent, anew=True)
        return creating.rebuild(self._opened.index_context(), index, progress)

    def rebuild_all(self, *, progress: Progress | None = None) -> list[Built | Refreshed]:
        """Rebuilds every index except ``files``, one after the other, vector indexes last. Indexes that
        depend on another are rebuilt right after it. Raises what ``rebuild`` raises; indexes rebuilt before a
        failure stay."""
        from mainstem.indexing import creating

        made: list[Built | Refreshed] = list(creating.rebuild_all(self._opened.index_context(), progress))
        for index in [index for index in self() if index.kind == VECTOR]:
            made.append(self.rebuild(index.partition, progress=progress))
        return made

    def drop(self, name: str, *, if_exists: bool = False) -> Dropped | None:
        """Drops an index while writers run: none is stopped, and none maintains it from now on.

        ``name``: its SQL name, or its partition of the metadata table. Also drops an index under
        construction (its builder ends) and the remains of a dead builder. ``if_exists``: returns None instead
        of raising ``Invalid`` if there is no such index. Raises ``Invalid`` for an index that another needs
        (``record_index`` under secondary indexes, ``column_stats`` under ``partition_stats``),
        ``Unavailable`` while another process compacts the metadata table.
        Hudi's ``DropIndexCommand``.
        """
        from mainstem.indexing.dropping import drop
        from mainstem.vectors.index.lifecycle import drop as drop_vectors

        if if_exists and self._find(name, self()) is None:
            return None
        index = self.get(name)
        if index.kind == VECTOR:
            return drop_vectors(self._opened.index_context(), index.name)
        return drop(self._opened.index_context(), index.partition)
