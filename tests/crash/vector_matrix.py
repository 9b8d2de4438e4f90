"""``python -m tests.crash.vector_matrix``: actions on vector indexes killed at every step (``make crash``).

``crash_worker`` kills a real process at steps of making, refreshing, dropping and tidying a vector index,
each on a copy of a table. A search, by the index where there is one, equals an exact one at once; somebody
else does the work while the dead process still looks alive; long after, a round of services leaves whole
versions and nothing else. ``--store`` as for ``crash_matrix``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import mainstem
from mainstem.errors import Invalid, LockUnavailable
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.vectors.index.versions import indexes, read_version, version_numbers
from tests.crash import crash_worker
from tests.crash.bodies import BODIES, DISK, Body, Death, current, place
from tests.crash.crash_matrix import Run, leftovers, worker
from tests.crash.crash_worker import VECTOR_OPTIONS, vectors
from tests.crash.requests import arrive, taken
from tests.multiprocess import table_files


def serviced(path: Path) -> mainstem.Table:
    return crash_worker.serviced(place(path))


QUERIES = [[0.0, 0.0, 1.0], [6.0, 4.0, 102.0]]
# Centroids are chosen by chance, so that files may be a few bytes and steps shorter.
_LAST = 5


def plain(path: Path) -> None:
    crash_worker.create_vectors(place(path))


def indexed(path: Path) -> None:
    """An index with two versions, and rows since."""
    plain(path)
    crash_worker.create_vector_index(place(path))
    serviced(path).upsert(vectors(range(4), 2))
    serviced(path).refresh_index("v")
    serviced(path).upsert(vectors(range(2, 15), 3))


def superseded(path: Path) -> None:
    """More versions than are kept, and a dropped index on the same column before them."""
    indexed(path)
    serviced(path).drop_index("v")
    for salt in (4, 5, 6):
        serviced(path).upsert(vectors(range(salt), salt))
        if salt == 4:
            crash_worker.create_vector_index(place(path))
        else:
            serviced(path).refresh_index("v")
    serviced(path).upsert(vectors(range(14), 7))


def in_use(path: Path) -> int:
    """The version that searches use, 0 for none; what they find is what is there."""
    table = serviced(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = table.search("v", QUERIES, 4, metric="l2")
    assert found.equals(table.search("v", QUERIES, 4, metric="l2", exact=True))
    return table.explain_search("v", QUERIES, 4, metric="l2").version or 0


def again(path: Path) -> None:
    """Somebody else, who does not know what happened."""
    table = serviced(path)
    try:
        if indexes(LocalStorage(str(path))):
            table.refresh_index("v")
        else:
            table.create_index("vector", ["v"], options=VECTOR_OPTIONS)
    except Invalid as error:
        assert "being built" in str(error)
    except LockUnavailable:
        assert current().by_requests, "there nobody sees that the holder of a lock is dead"


def settle(path: Path) -> None:
    """Long after, a round of services: the index is whole, and nothing is left over."""
    table_files.age(path)
    table = serviced(path)
    table.upsert(vectors(range(20, 22), 9))
    table.rollback_failed_writes()
    runs = {run.service: run for run in table.run_services(["vectors", "metadata"])}
    assert all(run.error is None for run in runs.values()), runs
    storage = LocalStorage(str(path))
    known = {index.id: index for index in indexes(storage)}
    for index in known.values():
        assert table.index(index.name).state == "ready"
    for column_id in filter(None, map(paths.parse_vector_column, storage.names(paths.VECTOR_FILES))):
        for number in version_numbers(storage, column_id):
            version = read_version(storage, column_id, number)
            assert version is not None and version.index == known[column_id].token
            named = {file.name for file in version.files} | {"manifest.json"}
            assert set(storage.names(paths.vector_version(column_id, number))) == named
    assert storage.names(paths.VECTOR_BUILDERS) == []
    assert not (left := leftovers(path)), left


ACTIONS: dict[str, Callable[[Path], None]] = {
    "create_vector_index": plain,
    "refresh_vector_index": indexed,
    "drop_vector_index": indexed,
    "tend_vector_indexes": superseded,
}


def check(run: Run, folder: Path, action: str, every: int) -> int:
    """Kill an action at each ``every``-th step; how many steps it has."""
    template, whole = folder / "template", folder / "whole"
    ACTIONS[action](template)
    shutil.copytree(template, whole)
    steps = run(action, whole)["steps"]
    before, after = in_use(template), in_use(whole)
    seen = set()
    for number, death in enumerate(current().deaths(steps, every, random.Random(0))):
        if current() is DISK and death.at >= steps - _LAST:
            break
        path = folder / f"killed-{number}"
        shutil.copytree(template, path)
        try:
            seen.add(_cell(run, action, path, death))
        except AssertionError as error:
            raise AssertionError(f"{action} {death} of {steps}: {error}") from error
        shutil.rmtree(path)
    assert seen <= {before, after}, action
    return steps


def _cell(run: Run, action: str, path: Path, death: Death) -> int:
    """One death, and everybody who comes after it; the version that was in use then."""
    run(action, path, death.at, death.travels)
    travelling = taken(path)
    found = in_use(path)
    again(path)
    in_use(path)
    if travelling is not None and death.at % 2:
        arrive(path, travelling)
        in_use(path)
    settle(path)
    in_use(path)
    if travelling is not None and not death.at % 2:
        arrive(path, travelling)
        in_use(path)
        settle(path)
        in_use(path)
    return found


def main(body: Body) -> None:
    with worker(body) as call:
        for name in sorted(ACTIONS):
            with tempfile.TemporaryDirectory() as folder:
                print(f"{name}: killed at each of {check(call, Path(folder), name, 1)} steps", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.crash.vector_matrix", description=__doc__)
    parser.add_argument("--store", choices=BODIES, default=DISK.name, help="what the tables lie on")
    main(BODIES[parser.parse_args().store])
