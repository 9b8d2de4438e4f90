"""Goal: a version of a vector index whose manifest is in place keeps its files, whatever its builder met.

Method: the builder is interrupted, or storage fails, after the link that puts the manifest in place.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from mainstem.errors import MainstemError
from tests.crash import crash_worker
from tests.crash.crash_worker import serviced, vectors
from tests.storage.steps import before_naming, storage_at


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), MemoryError(), OSError("the disk is away")])
@pytest.mark.parametrize("begun", ["create", "refresh"])
def test_a_published_version_outlives_the_interrupt_of_its_builder(
    tmp_path: Path, monkeypatch, trouble: BaseException, begun: str
) -> None:
    path = tmp_path / "t"
    crash_worker.create_vectors(str(path))
    if begun == "refresh":
        crash_worker.create_vector_index(str(path))
        serviced(path).upsert(vectors(range(4), 2))
    kind, named = type(storage_at(path)), []
    settle = kind.settle

    def noted(target: str) -> None:
        if target.endswith("/manifest.json"):
            named.append(target)

    def interrupted(self, uploads, folders=(), *, durable: bool) -> None:
        folders = list(folders)
        if named and any("/version=" in folder for folder in folders):
            raise trouble
        settle(self, uploads, folders, durable=durable)

    monkeypatch.setattr(kind, "settle", interrupted)
    with before_naming(noted, after=True), pytest.raises((type(trouble), MainstemError)):
        crash_worker.ACTIONS[f"{begun}_vector_index"](str(path))
    monkeypatch.undo()
    assert len(named) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = serviced(path)
        asked = [0.0, 0.0, 1.0]
        found = table.search("v", asked, 4, metric="l2")
        assert found.equals(table.search("v", asked, 4, metric="l2", exact=True))
        explained = table.explain_search("v", asked, 4, metric="l2")
    assert explained.version == (1 if begun == "create" else 2)
