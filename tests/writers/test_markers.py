"""Goal: whenever a writer dies, Java's rollback finds every file that it made, by few markers where the files
are many.

Method: tables whose writers' calls on storage are counted from outside, or end at one of them for good. What
Java finds is modelled after ``MarkerBasedRollbackUtils``: lines of files, if a file tells so, else files.
``tests/interop/test_interop_services.py`` has the real Java.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.table import Table
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.writers import append
from tests.storage.counted_calls import counted_table
from tests.storage.steps import CHANGES, Proxy

pytestmark = pytest.mark.disk("it reads the folders of a disk")
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])


GONE = pa.field("_hoodie_is_deleted", pa.bool_())


def rows(count: int, v: int = 0, *, some_deleted: bool = False) -> pa.Table:
    keys = [f"k{n}" for n in range(count)]
    parts = [f"p{n % 2}" for n in range(count)]
    table = pa.table({"id": keys, "part": parts, "v": [v] * count}, schema=SCHEMA)
    return table.append_column(GONE, [[n % 5 == 0 for n in range(count)]]) if some_deleted else table


def made(path: Path, buckets: int, version: int = 9) -> Table:
    schema = SCHEMA.append(GONE) if version == 10 else SCHEMA
    return mainstem.create_table(
        path, schema, record_key="id", partition_by="part", buckets=buckets, table_version=version
    )


def data_files(base: Path) -> set[str]:
    found = (path.relative_to(base).as_posix() for path in base.rglob("*") if paths.parse_log_name(path.name))
    return {path for path in found if not path.startswith(".hoodie/")}


def of_instant(base: Path, instant: str) -> set[str]:
    return {path for path in data_files(base) if f"_{instant}" in path}


def java_finds(base: Path, instant: str) -> set[str]:
    """The data files that Java's rollback of the instant deletes."""
    folder = base / paths.marker_folder(instant)
    if not folder.exists():
        return set()
    kind = folder / "MARKERS.type"
    if kind.exists():
        assert kind.read_text() == "TIMELINE_SERVER_BASED"  # Java fails at any other text
        lists = [file for file in folder.iterdir() if file.name.startswith("MARKERS") and file != kind]
        marked = [line for file in lists for line in file.read_text().splitlines()]
    else:
        marked = [f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()]
    assert all(one.endswith(".marker.CREATE") for one in marked)  # Java fails at any other name
    return {one.removesuffix(".marker.CREATE") for one in marked}


def marker_puts(calls: list[tuple[str, str, bool]]) -> list[str]:
    """Paths of markers that were made as files, and the path of one for each further name that it got."""
    return [path for name, path, _ in calls if name in MAKING and path.startswith(f"{paths.TEMP}/")]


MAKING = ("put_new", "link")


def test_an_upsert_of_many_files_puts_their_markers_together_and_removes_them(tmp_path: Path) -> None:
    table, store = counted_table(made(tmp_path / "t", 100), {})
    outcome = table.upsert(rows(2000))
    assert outcome.files == 200
    names = [os.path.basename(path) for path in marker_puts(store.calls)]
    assert names == ["MARKERS.type", "MARKERS0"]
    first_file = [name for name, _, _ in store.calls].index("upload")
    assert len(marker_puts(store.calls[:first_file])) == 2
    assert not list((tmp_path / "t" / paths.TEMP).iterdir())
    assert table.scan().to_arrow().num_rows == 2000


def test_an_upsert_of_few_files_has_a_marker_for_each(tmp_path: Path) -> None:
    table, store = counted_table(made(tmp_path / "t", 4), {})
    table.upsert(rows(100))
    assert sorted(path.rpartition(".")[2] for path in marker_puts(store.calls)) == ["CREATE"] * 8


def test_a_transaction_that_learns_its_files_one_after_another_has_a_marker_for_each(tmp_path: Path) -> None:
    table, store = counted_table(made(tmp_path / "t", 100), {})
    with table.begin() as txn:
        txn.write(rows(1000))
        txn.write(rows(2000))
        base, instant = tmp_path / "t", txn.instant
        assert of_instant(base, instant) == java_finds(base, instant)
        assert len(marker_puts(store.calls)) == len(java_finds(base, instant)) == 200
        txn.commit()


def test_markers_are_names_of_one_empty_file(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 4)
    with table.begin() as txn:
        txn.write(rows(100))
        markers = list((tmp_path / "t" / paths.marker_folder(txn.instant)).rglob("*.CREATE"))
        assert len(markers) == 8 and len({file.parent for file in markers}) == 2
        files = {(file.stat().st_ino, file.stat().st_size) for file in markers}
        assert len(files) == 1 and {size for _, size in files} == {0}


def test_a_file_whose_marker_is_there_gets_another_name(tmp_path: Path, monkeypatch) -> None:
    def taken(self, path: str, data: object, **named):
        if path.endswith(".CREATE") and not refused:
            refused.append(path)
            raise FileExistsError(path)
        return put_new(self, path, data, **named)

    refused: list[str] = []
    put_new = LocalStorage.put_new

    def refusing(self, path: str, data: object, **named):
        if path in refused:
            raise FileExistsError(path)
        return taken(self, path, data, **named)

    monkeypatch.setattr(LocalStorage, "put_new", refusing)
    table = made(tmp_path / "t", 4)
    assert table.upsert(rows(100)).files == 8
    assert len(refused) == 1 and table.scan().to_arrow().num_rows == 100


def test_markers_are_files_of_their_own_once_a_file_has_as_many_names_as_it_may(
    tmp_path: Path, monkeypatch
) -> None:
    def full(self, source: str, target: str, **named):
        if target.startswith(f"{paths.TEMP}/"):
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), source)
        return link(self, source, target, **named)

    link = LocalStorage.link
    monkeypatch.setattr(LocalStorage, "link", full)
    table = made(tmp_path / "t", 4)
    with table.begin() as txn:
        txn.write(rows(100))
        base, instant = tmp_path / "t", txn.instant
        assert of_instant(base, instant) == java_finds(base, instant)
        txn.commit()
    assert table.scan().to_arrow().num_rows == 100


def test_a_file_that_gets_another_name_is_marked_before_it_is_made(tmp_path: Path, monkeypatch) -> None:
    class Taken(Proxy):
        """The first name of one file is another process's."""

        def upload(self, path: str):
            if path.startswith("p1/") and not refused:
                refused.append(path)
                (base / path).touch()
                raise FileExistsError(path)
            if path.startswith("p"):
                seen.append((path, java_finds(base, os.path.basename(path).split("_")[1].partition(".")[0])))
            return self.inner.upload(path)

    monkeypatch.setattr(append, "TOGETHER_MIN", 4)
    base, seen, refused = tmp_path / "t", [], []
    table = made(base, 4)
    table = Table(replace(table.opened.seams, storage=Taken(table.opened.seams.storage)), table.config, {})
    table.upsert(rows(100))
    assert any(".log.2_" in path for path, _ in seen)
    assert all(path in found for path, found in seen)


class Dead(BaseException):
    """The process is."""


class Dies(Proxy):
    """Changes nothing from its step ``at`` on."""

    def __init__(self, inner, at: int) -> None:
        super().__init__(inner)
        self.left = at

    def __getattr__(self, name: str):
        found = getattr(self.inner, name)
        if name not in CHANGES:
            return found

        def step(*given, **named):
            if self.left <= 0:
                raise Dead
            self.left -= 1
            return found(*given, **named)

        return step


@pytest.mark.parametrize(("together", "version"), [(True, 9), (False, 9), (True, 10)])
def test_java_finds_every_file_of_a_writer_that_dies_at_any_step(
    tmp_path: Path, monkeypatch, together: bool, version: int
) -> None:
    monkeypatch.setattr(append, "TOGETHER_MIN", 4 if together else 10**6)
    base, gone = tmp_path / "t", version == 10
    table = made(base, 4, version)
    table.upsert(rows(100, 1, some_deleted=gone))
    found_some, kinds, at = 0, set(), 0
    while True:
        dying = Dies(table.opened.seams.storage, at)
        writer = Table(replace(table.opened.seams, storage=dying), table.config, {})
        with suppress(Dead):
            writer.upsert(rows(100, 2, some_deleted=gone))
        if dying.left > 0:
            break
        at += 1
        instants = [i.requested for i in table.timeline() if not i.is_completed]
        for instant in instants:
            made_files = of_instant(base, instant)
            assert made_files <= java_finds(base, instant), at
            found_some += bool(made_files)
            kinds.add((base / paths.markers_kind(instant)).exists())
        for beat in (base / paths.HEARTBEATS).iterdir():
            os.utime(beat, (time.time() - 10_000,) * 2)
        if instants:
            fresh = mainstem.open_table(base)
            assert [done.instant for done in fresh.rollback_failed_writes()] == instants
            for instant in instants:
                assert not of_instant(base, instant) and not (base / paths.marker_folder(instant)).exists()
    assert found_some > 5 and (True in kinds) == together
    assert set(table.scan().to_arrow()["v"].to_pylist()) == {2}
