"""Goal: a folder that is watched shows what a listing shows, or says that it does not know.

Method: other processes create, link, rename and remove names in a real folder while it is watched; the
system's queue overflows; the folder goes away, and another takes its place; the watching process forks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.storage import inotify
from mainstem.storage.local import LocalStorage
from mainstem.storage.watches import is_worth_watching, watch
from mainstem.timeline.active import TimelineReader

pytestmark = pytest.mark.disk("folders of a local disk are watched")

STIR = """
import os, random, sys
folder, seed, left = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
for n in range(left):
    name = f"{folder}/2026010100000{n:04}.{seed}"
    kind = random.randrange(5)
    if kind < 2:
        open(name, "x").close()
    elif kind == 2:
        open(f"{folder}/../{seed}-{n}", "x").close()
        os.link(f"{folder}/../{seed}-{n}", name)
    elif kind == 3:
        open(f"{name}.part", "x").close()
        os.rename(f"{name}.part", name)
    mine = [found for found in os.listdir(folder) if found.endswith(f".{seed}")]
    if kind == 4 and mine:
        os.unlink(f"{folder}/{random.choice(mine)}")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".hoodie" / "timeline"
    made.mkdir(parents=True)
    for n in range(1200):
        (made / f"20250101{n:09}.deltacommit.requested").touch()
    if inotify.watched(str(made)) is None:
        pytest.skip("this system cannot watch folders")
    return made


def changed(names: set[str], news: list[tuple[str, bool]] | None) -> set[str]:
    assert news is not None
    for name, came in news:
        (names.add if came else names.discard)(name)
    return names


def test_what_is_told_is_what_a_listing_shows_while_others_change_the_folder(folder: Path) -> None:
    seen = inotify.watched(str(folder))
    assert seen is not None
    names, steps = set(seen.names), 0
    ever = set(names)
    others = [
        subprocess.Popen([sys.executable, "-c", STIR, str(folder), str(seed), "150"]) for seed in (1, 2)
    ]
    while any(other.poll() is None for other in others):
        before = set(os.listdir(folder))
        assert seen.stands()
        told = changed(names, seen.news())
        after = set(os.listdir(folder))
        # No name is used twice: what is in both listings was there all the time, what went was gone for good.
        assert before & after <= told and not told & (ever - before)
        ever |= before | told
        steps += 1
    assert [other.returncode for other in others] == [0, 0] and steps > 2
    assert seen.stands() and changed(names, seen.news()) == set(os.listdir(folder))


def test_a_reader_that_stays_shows_a_long_timeline_without_listing_it_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, listed = LocalStorage(str(tmp_path)), []
    assert is_worth_watching(store, 1200) and not is_worth_watching(store, 50)
    listing = LocalStorage.names
    monkeypatch.setattr(LocalStorage, "names", lambda *a, **k: listed.append(a[1]) or listing(*a, **k))
    reader = TimelineReader(store, stays=True)
    reader.load()
    assert reader.load().count == 1200 and len(listed) == 1
    subprocess.run([sys.executable, "-c", STIR, str(folder), "3", "200"], check=True)
    before, view = reader.last, reader.load()
    assert listed == [".hoodie/timeline"], "the second reading began a watch, the third one asked it"
    fresh = TimelineReader(store).load()
    assert view.names == fresh.names == frozenset(os.listdir(folder))
    assert view.since(before) == fresh.names - before.names
    for name in os.listdir(folder)[900:]:
        (folder / name).unlink()
    assert reader.load().names == frozenset(os.listdir(folder))


def test_a_watch_that_lost_something_says_so_and_the_folder_is_listed(folder: Path, tmp_path: Path) -> None:
    reader = TimelineReader(LocalStorage(str(tmp_path)), stays=True)
    reader.load()
    reader.load()
    seen = inotify.watched(str(folder))
    assert seen is not None
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if room > 100_000:
        pytest.skip("the system's queue is long")
    for _ in range(room // 2 + 1):
        (folder / "x").touch()
        (folder / "x").unlink()
    (folder / "20260101000000000.deltacommit.requested").touch()
    assert seen.stands() and seen.news() is None
    assert reader.load().has("20260101000000000.deltacommit.requested")
    (folder / "20260101000000002.deltacommit.requested").touch()
    assert reader.load().has("20260101000000002.deltacommit.requested"), "a new watch"


@pytest.mark.parametrize("how", ["moved away", "removed"])
def test_a_folder_that_took_another_ones_place_is_not_taken_for_it(folder: Path, how: str) -> None:
    seen = inotify.watched(str(folder))
    assert seen is not None and seen.stands()
    if how == "removed":
        shutil.rmtree(folder)
    else:
        folder.rename(folder.with_name("before"))
    assert not seen.stands() and seen.news() is None
    folder.mkdir()
    assert not seen.stands() or seen.news() is None, "another folder may have its number"


def test_a_forked_child_takes_no_news_from_its_parent(folder: Path) -> None:
    seen = inotify.watched(str(folder))
    assert seen is not None
    (folder / "x").touch()
    if (child := os.fork()) == 0:
        os._exit(0 if seen.news() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert seen.news() == [("x", True)]


def test_file_systems_that_others_may_change_and_too_many_folders_are_not_watched(folder: Path) -> None:
    assert watch(LocalStorage("/proc"), "self") is None
    assert watch(LocalStorage(str(folder)), "missing") is None
    kept = [inotify.watched(str(folder)) for _ in range(20)]
    assert 0 < len([one for one in kept if one is not None]) < 20
