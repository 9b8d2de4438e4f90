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
        """The table's indexes by name, each with its kind, columns and state (``ready``, ``building``,
        ``planned``, ``left over``), and ``files``, the listing that they rest on. Vector indexes, which need
        no metadata table, come last; one is ``lost`` where its files went with the metadata table's folder:
        searches are exact until it is refreshed.

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
        """The index of this name, as SQL calls it, or in this partition of the metadata table.

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
        """Compare every partition of the metadata table with the data, while writers go on.

        ``report.ok`` is False where the two differ; ``kept`` differences per partition are listed, all are
        counted. Wider statistics and entries of keys that are gone are no differences and counted apart. None
        for a table without metadata table. Raises ``CorruptTable`` where it does not read at all,
        ``Unavailable`` where cleans kept removing files under the comparison. What is compared follows Hudi's
        ``HoodieMetadataTableValidator``.
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
        """Build an index beside running writers, of which none is stopped or waits; it is whole on return.

        ``kind``: ``files`` (the listing of files, with which the metadata table begins), ``column_stats``
        (``columns``: those that it is on, else ``hoodie.metadata.index.column.stats.column.list``, else the
        first 32 that have statistics), ``partition_stats`` (of partitioned tables, on the columns of
        ``column_stats``), ``bloom_filters`` (of record keys in base files), ``record_index`` or
        ``secondary_index`` (of one column), ``expr_index`` (of a function of one column, ``options={"expr":
        "upper"}``), ``vector`` (of one column of vectors, or of texts with the name of an embedding function:
        ``options={"engine": "hnsw", "metric": "cosine", "clusters": 4, "embedding": ...}`` and those of the
        engine). What an index rests on, and the table has not, is built first. ``name``: of kinds of which a
        table may have several (``secondary_index``, ``expr_index``, ``vector``), else that of the column.
        ``options``: Hudi's for the index, on top of the table's. ``progress(what, done, total)`` is called
        after a file group. Several indexes may be built at once. Raises ``Invalid`` for an index that is
        there or being built, for missing columns and impossible types, ``Unsupported`` for kinds that are not
        maintained here, ``Unavailable`` where it could not be ended (``indexing.index_build``); the table
        has no part of the index then. Hudi RFC-45 (``ScheduleIndexActionExecutor``,
        ``RunIndexActionExecutor``); of vectors RFC-103.
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
        """Raises ``Invalid`` where an index has this name already."""
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
                f"{index.describe()}; it is kept up by every commit, there is nothing to refresh. What is"
                " wrong in it goes with reindex()",
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
        """Build every index except ``files`` anew, one after the other, vector indexes last. If other indexes
        rest on one, they are rebuilt right after it. Raises what ``rebuild`` raises; indexes rebuilt before
        the failure stay."""
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
