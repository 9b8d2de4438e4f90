"""The life of a vector index: create, refresh, rebuild, drop, and its part in a round of services.

**Create**: [[ the index is listed ]] (``index_list``); its first version is built (``building``). Until there
is one, searches are exact. A build that fails takes the index off the list again. A process that dies leaves
an index without a version: a refresh or a round of services completes it, and creating it again replaces it.
The metadata table is not involved, except for its folder: the code that needs the folder makes it, not this
module.

**Drop**: [[ the index leaves the list ]], then its files are removed (``tidying``). Its column keeps its id.

Writers are not involved at all: a search finds what they commit by comparing a version's files with those of
its snapshot. So an index adds no cost to a commit, and rollbacks and restores need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace

from mainstem.errors import CorruptTable, Invalid, MainstemError, naming
from mainstem.indexing.dropping import Dropped
from mainstem.indexing.initial_rows import Run
from mainstem.indexing.status import BUILDING, LEFT_OVER, READY, Index
from mainstem.layout.properties import load_config
from mainstem.limits import FILE_NAME_BYTES_MAX, VECTOR_CLUSTERS_MAX
from mainstem.options import VECTOR, VECTOR_AFTER_COMPACTION, VECTOR_FRESH_PERCENT, whole_number
from mainstem.readers.planning.table_state import TableState
from mainstem.readers.queries.snapshot import read_spec, scan
from mainstem.readers.rows.split import slices_of
from mainstem.services.progress import Progress, silent
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.instant import COMMIT
from mainstem.vectors.distances import metric_named
from mainstem.vectors.engines import DEFAULT, engine
from mainstem.vectors.index.building import build
from mainstem.vectors.index.index_list import change_indexes
from mainstem.vectors.index.snapshot_rows import column_of
from mainstem.vectors.index.snapshots import how_read
from mainstem.vectors.index.tidying import Tidied, tidy
from mainstem.vectors.index.version_manifest import VectorIndex, VectorIndexes, Version
from mainstem.vectors.index.versions import check_files, newest_version, read_indexes, version_numbers
from mainstem.writers.context import WriterContext

_NAMES = ("engine", "metric", "clusters", "embedding")

_SERVICES = ("COMPACT", "LOG_COMPACT", "CLUSTER", "BUCKET_RESCALE")
_COUNTS = ("numWrites", "numDeletes")

LOST = "lost"


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh. ``version``, ``rows``, ``clusters``, ``view`` and ``size`` (bytes) describe
    the version that is now active. ``built``: this call built it; else it was already current, or another
    process was first."""

    index: str
    version: int
    rows: int
    clusters: int
    view: str
    size: int
    built: bool

    def describe(self) -> str:
        """One line for people."""
        what = f"version {self.version} with {self.rows:,} vectors in {self.clusters} clusters"
        return f"vector index {self.index}: {what}" + ("" if self.built else ", nothing to do")


@dataclass(frozen=True)
class Status:
    """A vector index and its state: ``ready``, ``building``, ``left over`` (its builder died before the first
    version), or ``lost`` (its files were removed with the metadata table's folder). Searches use it only if
    it is ready; ``version`` is the active one. ``damaged``: what is wrong with newer versions."""

    index: VectorIndex
    state: str
    version: Version | None
    damaged: tuple[str, ...] = ()


def statuses(storage: Storage) -> list[Status]:
    """All vector indexes, by name. ``CorruptTable`` for a damaged list."""
    found = []
    for index in sorted(read_indexes(storage).found, key=lambda index: index.name):
        damaged: list[MainstemError] = []
        version = newest_version(storage, index, damaged)
        state = READY
        if version is None:
            state = LOST if index.lost else BUILDING if _is_being_built(storage, index) else LEFT_OVER
        found.append(Status(index, state, version, tuple(map(str, damaged))))
    return found


def vector_indexes(storage: Storage) -> list[Index]:
    """All vector indexes in the form in which users see any index. ``options``: those it was created with,
    and ``version``."""
    return [
        Index(
            status.index.name,
            f"{paths.VECTORS.rpartition('/')[2]}/column={status.index.id}",
            "vector",
            (status.index.column,),
            options=_shown(status),
            state=status.state,
            index_type=status.index.engine,
        )
        for status in statuses(storage)
    ]


def _shown(status: Status) -> dict[str, str]:
    index, version = status.index, status.version
    known = {
        "engine": index.engine, "metric": index.metric, "clusters": str(index.clusters or ""),
        "embedding": index.embedding, **index.options, "version": str(version.number) if version else "",
    }  # fmt: skip
    return {key: value for key, value in known.items() if value}


def _is_being_built(storage: Storage, index: VectorIndex) -> bool:
    """Whether there is a file of a builder whose heartbeat still exists."""
    beats = set(storage.names(paths.VECTOR_BUILDERS))
    for number in version_numbers(storage, index.id):
        for name in storage.names(paths.vector_version(index.id, number)):
            parsed = paths.parse_vector_name(name)
            if parsed is not None and parsed[0] in beats:
                return True
    return False


# -- create ------------------------------------------------------------------------------------------


def _work(ctx: WriterContext, what: str) -> AbstractContextManager[None]:
    """Turn trouble with storage into ``Unavailable``: what was done stands, and can be resumed."""
    return naming(ctx.base, f"{what} did not finish", "searches stay correct, try again")


def create(
    ctx: WriterContext,
    columns: Sequence[str],
    name: str | None,
    options: Mapping[str, str],
    progress: Progress = silent,
    run: Run | None = None,
) -> Refreshed:
    """``Table.create_index("vector", ...)``; ``run``: makes the graphs elsewhere; None: here.

    ``options``: ``engine``, ``metric``, ``clusters`` and ``embedding``, with or without the prefix
    ``hoodie.mainstem.vector.``, and those of the engine. Raises ``Invalid`` for a column that cannot be
    indexed or already has a vector index, or for a name in use, and what ``building.build`` raises.
    """
    with _work(ctx, "creating a vector index"):
        return _created(ctx, _wish(ctx, columns, name, options), progress, run)


def _created(ctx: WriterContext, wish: VectorIndex, progress: Progress, run: Run | None) -> Refreshed:
    column_of(scan(ctx.seams.storage).schema, wish)
    tidy(ctx)

    def listed(before: VectorIndexes) -> VectorIndexes:
        _check_free(ctx, before, wish)
        column_id, first = before.place(wish.column)
        numbers = version_numbers(ctx.seams.storage, column_id)
        later = max([first, *(number + 1 for number in numbers)])
        return before.with_index(replace(wish, id=column_id, first=later))

    index = change_indexes(ctx, listed).of_column(wish.column)
    assert index is not None
    try:
        return _built(ctx, index, progress, run)
    except BaseException:
        with suppress(MainstemError, OSError):  # on failure it stays as left over, and a round completes it
            if newest_version(ctx.seams.storage, index, []) is None:  # a version that searches use stays
                _unlist(ctx, index)
        raise


def _wish(
    ctx: WriterContext, columns: Sequence[str], name: str | None, options: Mapping[str, str]
) -> VectorIndex:
    if len(columns) != 1 or not isinstance(columns[0], str):
        raise Invalid(f"a vector index is on one column; given are {', '.join(map(str, columns)) or 'none'}")
    (column,) = columns
    if column == "columns":
        raise Invalid("a column called 'columns' can have no vector index: their list could not name it")
    given = {**_defaults(ctx), **{key.removeprefix(VECTOR): value for key, value in options.items()}}
    own = {key: given.pop(key) for key in _NAMES if key in given}
    chosen = engine(own.get("engine") or DEFAULT)
    made = {key: str(value) for key, value in given.items()}
    chosen.check(made)
    clusters = whole_number(own, "clusters", 0, 0, VECTOR_CLUSTERS_MAX)
    called = column if name is None else name.strip()
    if not called or len(called) > FILE_NAME_BYTES_MAX or not called.isprintable():
        raise Invalid(f"name={name!r}; expected a text of at most {FILE_NAME_BYTES_MAX} characters")
    metric = metric_named(own.get("metric"))
    token = f"{ctx.seams.random.getrandbits(128):032x}"
    return VectorIndex(
        called, column, "000", token, chosen.name, metric, clusters, made, own.get("embedding", "")
    )


def _defaults(ctx: WriterContext) -> dict[str, str]:
    """Options for new indexes in the table's properties and the caller's options."""
    known = {**ctx.config.raw, **ctx.given}
    return {name: known[VECTOR + name] for name in _NAMES if name != "embedding" and VECTOR + name in known}


def _check_free(ctx: WriterContext, before: VectorIndexes, wish: VectorIndex) -> None:
    same = before.of_column(wish.column)
    storage = ctx.seams.storage
    if same is not None and (newest_version(storage, same, []) or _is_being_built(storage, same)):
        raise Invalid(
            f"column {wish.column!r} already has the vector index {same.name!r}, or it is being built:"
            " refresh it, or drop it first"
        )
    named = before.called(wish.name)
    if named is not None and named.column != wish.column:
        raise Invalid(f"a vector index is called {wish.name!r} already, on column {named.column!r}")


def _unlist(ctx: WriterContext, index: VectorIndex) -> VectorIndexes:
    """Take this creation of the index off the list, if it is listed."""

    def without(before: VectorIndexes) -> VectorIndexes:
        found = before.of_column(index.column)
        if found is None or found.token != index.token:
            return before
        numbers = version_numbers(ctx.seams.storage, found.id)
        return before.without(found, max([found.first, *(number + 1 for number in numbers)]))

    return change_indexes(ctx, without)


# -- refresh and drop --------------------------------------------------------------------------------


def refresh(
    ctx: WriterContext,
    name: str,
    progress: Progress = silent,
    run: Run | None = None,
    *,
    anew: bool = False,
) -> Refreshed:
    """``Table.refresh_index``; ``anew``: rebuild even if nothing, or the dimension, has changed."""
    with _work(ctx, f"refreshing the vector index {name}"):
        return _refreshed(ctx, name, progress, run, anew=anew)


def _refreshed(
    ctx: WriterContext, name: str, progress: Progress, run: Run | None, *, anew: bool
) -> Refreshed:
    index = _named(ctx, name)
    damaged: list[MainstemError] = []
    version = newest_version(ctx.seams.storage, index, damaged)
    if not anew and version is not None and not damaged and _is_current(ctx.seams.storage, version):
        return _said(index, version, built=False)
    if index.lost:
        index = _listed_again(ctx, index)
    dimension = None if anew or version is None else version.dimension or None
    done = _built(ctx, index, progress, run, dimension)
    tidy(ctx)
    return done


def _named(ctx: WriterContext, name: str) -> VectorIndex:
    known = read_indexes(ctx.seams.storage)
    found = known.called(name)
    if found is None:
        there = ", ".join(sorted(index.name for index in known.found)) or "none"
        raise Invalid(f"no vector index is called {name!r}; there are: {there}", table=ctx.base)
    return found


def drop(ctx: WriterContext, name: str) -> Dropped:
    """Drop a vector index, whatever its state. ``Invalid`` if there is none."""
    with _work(ctx, f"dropping the vector index {name}"):
        index = _named(ctx, name)
        if index.lost:
            index = _listed_again(ctx, index)
        _unlist(ctx, index)
        gone = tidy(ctx)
        return Dropped(index.name, 0 if gone is None else gone.files)


def _listed_again(ctx: WriterContext, index: VectorIndex) -> VectorIndex:
    """Put the list back in place after the metadata table's folder was removed."""
    found = change_indexes(
        ctx, lambda before: VectorIndexes(tuple(replace(i, lost=False) for i in before.found), before.kept)
    )
    again = found.of_column(index.column)
    if again is None or again.token != index.token:
        raise Invalid(f"the vector index {index.name!r} was dropped or rebuilt meanwhile")
    return again


def _built(
    ctx: WriterContext,
    index: VectorIndex,
    progress: Progress,
    run: Run | None,
    dimension: int | None = None,
) -> Refreshed:
    made = build(ctx, index, progress, run, dimension)
    return _said(index, made.version, built=made.ours)


def _said(index: VectorIndex, version: Version, *, built: bool) -> Refreshed:
    return Refreshed(
        index.name, version.number, version.rows, len(version.clusters), version.view, version.size, built
    )


def _is_current(storage: Storage, version: Version) -> bool:
    """Whether the table consists of the very files of which the version was made, read with the same meaning,
    and the version's own files are intact (by their checksums)."""
    if not _has_files(storage, version):
        return False
    covered = {(s.partition, s.file_id): (s.base_file, s.log_files) for s in version.slices}
    state = TableState.load(storage, load_config(storage))
    if not _is_read_alike(state, version) or covered != _slices_now(storage):
        return False
    try:
        check_files(storage, version)
    except (CorruptTable, FileNotFoundError):
        return False
    return True


def _has_files(storage: Storage, version: Version) -> bool:
    for file in version.files:
        info = storage.stat(version.path(file))
        if info is None or info.size != file.size:
            return False
    return True


def _is_read_alike(state: TableState, version: Version) -> bool:
    spec = read_spec(state, None, None, None, "error")
    return version.reading in ("", how_read(spec, version.column))


def _slices_now(storage: Storage) -> dict[tuple[str, str], tuple[str | None, tuple[str, ...]]]:
    return {
        (split.partition, split.file_id): (
            None if split.base_file is None else split.base_file.rpartition("/")[2],
            tuple(path.rpartition("/")[2] for path in split.log_files),
        )
        for split in slices_of(scan(storage, columns=[]).splits())
    }


# -- a round of services -----------------------------------------------------------------------------


def tend(
    ctx: WriterContext, if_due: bool = True, progress: Progress = silent
) -> Iterator[Refreshed | Tidied]:
    """The part of a round of services: refresh every index that is due, and remove what is no longer needed.

    An index is due if it has no usable version, as far as file sizes tell (``refresh`` also compares
    checksums); if its version is older than the newest compaction
    (``hoodie.mainstem.vector.refresh.after.compaction``, default true); or if more than
    ``hoodie.mainstem.vector.refresh.fresh.percent`` of its rows (default 20, 0: never) were written since. An
    index is not due while a living process builds a version of it. Without ``if_due``, every index that is
    not current is refreshed. A failure does not stop the others; the first error is raised at the end.
    """
    storage, failed = ctx.seams.storage, []
    with _work(ctx, "looking at vector indexes"):
        if not storage.names(paths.VECTOR_FILES) and not read_indexes(storage).found:
            return
        gone = tidy(ctx)
        due = [status.index.name for status in statuses(storage) if not if_due or _is_due(ctx, status)]
    if gone is not None:
        yield gone
    for name in due:
        try:
            done = refresh(ctx, name, progress)
        except MainstemError as error:
            failed.append(error)
            continue
        if done.built:
            yield done
    if failed:
        raise failed[0]


def _is_due(ctx: WriterContext, status: Status) -> bool:
    storage = ctx.seams.storage
    properties = {**ctx.config.raw, **ctx.given}
    version = status.version
    if _is_being_built(storage, status.index):
        return False  # if its builder died, the heartbeat will soon be removed
    if version is None or status.damaged or not _has_files(storage, version):
        return True
    state = TableState.load(storage, load_config(storage))
    if not _is_read_alike(state, version):
        return True
    if VECTOR_AFTER_COMPACTION.read(properties) and _newest_compaction(state) > version.view:
        return True
    percent = VECTOR_FRESH_PERCENT.read(properties)
    return bool(percent) and 100 * _written_since(state, version.view) > percent * max(version.rows, 1)


def _newest_compaction(state: TableState) -> str:
    done = (i for i in state.timeline.completed if i.action == COMMIT)
    return max((i.completion or "" for i in done), default="")


def _written_since(state: TableState, view: str) -> int:
    """Rows written by commits since then, not services: at least the fresh ones, unless archived."""
    total = 0
    for instant in state.writes:
        metadata = state.metadata(instant.requested) if (instant.completion or "") > view else None
        if metadata is not None and metadata.operation not in _SERVICES:
            counts = (s.get(key) for found in metadata.stats.values() for s in found for key in _COUNTS)
            total += sum(count for count in counts if isinstance(count, int))
    return total
