"""Goal: a version of a vector index whose manifest is in place keeps its files, whatever its builder met.

Method: the builder is interrupted, or storage fails, after the link that puts the manifest in place.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from mainstem.errors import MainstemError
from mainstem.storage.local import LocalStorage
from tests.crash import crash_worker
from tests.crash.crash_worker import serviced, vectors


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
    link, settle, linked = LocalStorage.link, LocalStorage.settle, []

    def noted(self: LocalStorage, source: str, target: str, *, durable: bool = False) -> None:
        link(self, source, target, durable=durable)
        if target.endswith("/manifest.json"):
            linked.append(target)

    def interrupted(self: LocalStorage, uploads, folders=(), *, durable: bool) -> None:
        folders = list(folders)
        if linked and any("/version=" in folder for folder in folders):
            raise trouble
        settle(self, uploads, folders, durable=durable)

    monkeypatch.setattr(LocalStorage, "link", noted)
    monkeypatch.setattr(LocalStorage, "settle", interrupted)
    with pytest.raises((type(trouble), MainstemError)):
        crash_worker.ACTIONS[f"{begun}_vector_index"](str(path))
    monkeypatch.undo()
    assert len(linked) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = serviced(path)
        asked = [0.0, 0.0, 1.0]
        found = table.search("v", asked, 4, metric="l2")
        assert found.equals(table.search("v", asked, 4, metric="l2", exact=True))
        explained = table.explain_search("v", asked, 4, metric="l2")
    assert explained.version == (1 if begun == "create" else 2)
