"""Goal: the fence of renames lets one section publish, loses no content, and never reports a wrong outcome.

Method: two fences on a folder whose store renames and has no links; each fault of a rename at each place.
``tests/model`` checks the protocol, ``tests/stores/test_hdfs_tables.py`` runs it on HDFS.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from mainstem.errors import CorruptTable, LeaseLost, OutcomeUnknown, Unavailable
from mainstem.publish import staging
from mainstem.publish.rename_fence import RenameFence
from mainstem.storage import paths
from mainstem.truetime.clock import SystemClock
from tests.publish.renaming_store import RenamingStorage

TARGET = f"{paths.TIMELINE}/20260101000000001_20260101000000003.deltacommit"
AHEAD = f"{paths.METADATA_TIMELINE}/20260101000000001_20260101000000002.deltacommit"
DAY_MS = 24 * 3_600_000


@pytest.fixture
def storage(tmp_path: Path) -> RenamingStorage:
    for folder in (paths.TIMELINE, paths.METADATA_TIMELINE, paths.PREPARED):
        (tmp_path / folder).mkdir(parents=True)
    return RenamingStorage(str(tmp_path))


def fence(storage: RenamingStorage, offset_ms: int = 0) -> RenameFence:
    return RenameFence(storage, SystemClock(offset_ms), random.Random())


def private(storage: RenamingStorage, content: bytes = b"content") -> str:
    path = paths.prepared("20260101000000001", f"{random.getrandbits(64):016x}")
    storage.put_new(path, content, durable=True)
    return path


def content_at(storage: RenamingStorage, path: str) -> bytes | None:
    try:
        return storage.read(path, max_bytes=100)
    except FileNotFoundError:
        return None


def test_a_section_publishes_by_moving_its_private_file(storage) -> None:
    path = private(storage)
    epoch = fence(storage).enter(path)
    assert content_at(storage, path) is None and epoch.now_ms() > 0
    epoch.publish(TARGET)
    epoch.leave()
    assert content_at(storage, TARGET) == b"content" and storage.names(paths.FENCE) == []


def test_a_section_that_was_superseded_publishes_nothing_and_finds_its_content_again(storage) -> None:
    ours, theirs = fence(storage), fence(storage)
    path = private(storage)
    old = ours.enter(path)
    new = theirs.enter(private(storage, b"other"))
    with pytest.raises(LeaseLost):
        old.check()
    with pytest.raises(LeaseLost):
        old.publish(TARGET)
    assert not old.published(TARGET) and content_at(storage, TARGET) is None
    old.leave()
    new.publish(TARGET)
    new.leave()
    again = ours.enter(path)
    with pytest.raises(FileExistsError):
        again.publish(TARGET)
    again.leave()
    assert content_at(storage, path) == b"content" and content_at(storage, TARGET) == b"other"
    assert storage.names(paths.FENCE) == []


def test_a_content_that_nobody_comes_back_for_is_deleted_a_day_later(storage) -> None:
    def swept() -> list[bytes | None]:
        names = [name for name in storage.names(paths.FENCE) if name.startswith("swept-")]
        return [content_at(storage, f"{paths.FENCE}/{name}") for name in names]

    fence(storage).enter(private(storage))
    fence(storage).enter()
    fence(storage, DAY_MS - 1000).enter()
    assert b"content" in swept()
    fence(storage, DAY_MS + 1000).enter()
    assert b"content" not in swept()


def test_a_section_that_publishes_nothing_gives_its_content_back(storage) -> None:
    path, ahead = private(storage), private(storage, b"ahead")
    epoch = fence(storage).enter(path, ahead)
    epoch.leave()
    assert content_at(storage, path) == b"content" and content_at(storage, ahead) == b"ahead"


def test_the_file_ahead_is_published_once_although_its_section_was_superseded_right_after(storage) -> None:
    ours = fence(storage)
    path, ahead = private(storage), private(storage, b"ahead")
    first = ours.enter(path, ahead)
    first.publish_ahead(AHEAD, [])
    fence(storage).enter().leave()
    with pytest.raises(LeaseLost):
        first.publish(TARGET)
    first.leave()
    second = ours.enter(path, ahead)
    second.publish(TARGET)
    second.leave()
    assert content_at(storage, AHEAD) == b"ahead" and content_at(storage, TARGET) == b"content"


def test_a_replacement_is_superseded_or_there(storage) -> None:
    storage.put("file", b"old", durable=True)
    epoch = fence(storage).enter()
    epoch.replace(private(storage, b"new"), "file")
    epoch.leave()
    assert content_at(storage, "file") == b"new"
    old, path = fence(storage).enter(), private(storage, b"late")
    old.place_ticket(path)
    fence(storage).enter().leave()
    with pytest.raises(LeaseLost):
        old.put_in_place("file")
    assert content_at(storage, "file") == b"new"


@pytest.mark.parametrize("fault", ["repeated", "after"])
def test_a_rename_that_took_effect_and_reports_trouble_is_a_publication(fault, storage) -> None:
    epoch = fence(storage).enter(private(storage), private(storage, b"ahead"))
    storage.faults = [fault, fault]
    epoch.publish_ahead(AHEAD, [])
    epoch.publish(TARGET)
    epoch.leave()
    assert content_at(storage, TARGET) == b"content" and content_at(storage, AHEAD) == b"ahead"
    storage.put("file", b"old", durable=True)
    epoch = fence(storage).enter()
    epoch.place_ticket(private(storage, b"new"))
    storage.faults = [fault]
    epoch.put_in_place("file")
    assert content_at(storage, "file") == b"new"


def test_a_failure_is_reported_only_once_a_late_rename_finds_nothing(storage) -> None:
    path = private(storage)
    epoch = fence(storage).enter(path)
    storage.faults = ["late"]
    with pytest.raises(Unavailable, match="nothing was published"):
        epoch.publish(TARGET)
    epoch.leave()
    storage.arrive()
    assert content_at(storage, TARGET) is None and content_at(storage, path) == b"content"


def test_an_outcome_that_cannot_be_found_out_is_called_unknown(storage) -> None:
    epoch = fence(storage).enter(private(storage))
    storage.faults = ["late", "late"]
    with pytest.raises(OutcomeUnknown):
        epoch.publish(TARGET)
    other = fence(storage).enter(private(storage))
    storage.faults = ["repeated"]
    original, storage._rename_now = storage._rename_now, lambda *given: _archived(storage, original, *given)
    with pytest.raises(OutcomeUnknown):
        other.publish(TARGET)


def _archived(storage: RenamingStorage, rename, source: str, target: str, flags: int) -> None:
    rename(source, target, flags)
    storage.delete(target)


@pytest.mark.parametrize("fault", ["repeated", "after"])
def test_an_entry_whose_reply_was_lost_loses_no_content(fault, storage) -> None:
    path = private(storage)
    ours = fence(storage)
    ours.enter().leave()
    storage.faults = [fault]
    if fault == "repeated":
        epoch = ours.enter(path)
        epoch.publish(TARGET)
        assert content_at(storage, TARGET) == b"content"
    else:
        with pytest.raises(OSError):
            ours.enter(path)
        assert content_at(storage, TARGET) is None


def test_a_missing_timeline_and_a_missing_private_file_are_named(storage) -> None:
    with pytest.raises(Unavailable, match="is gone"):
        fence(storage).enter("nothing")
    path = private(storage)
    epoch = fence(storage).enter(path)
    storage.delete_tree(paths.TIMELINE)
    with pytest.raises(CorruptTable, match="folder is missing"):
        epoch.publish(TARGET)
    assert content_at(storage, path) == b"content"


def test_eight_fences_without_any_lock_publish_each_content_once(storage) -> None:
    counts = dict.fromkeys(range(8), 0)

    def work(number: int) -> None:
        mine = fence(storage)
        for turn in range(10):
            path = private(storage, f"{number}-{turn}".encode())
            while True:
                try:
                    epoch = mine.enter(path)
                except LeaseLost:
                    continue
                try:
                    epoch.publish(f"{paths.TIMELINE}/{len(storage.names(paths.TIMELINE)):06}")
                    counts[number] += 1
                    break
                except (LeaseLost, FileExistsError):
                    continue
                finally:
                    epoch.leave()

    threads = [threading.Thread(target=work, args=(n,)) for n in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    published = [content_at(storage, f"{paths.TIMELINE}/{n}") for n in storage.names(paths.TIMELINE)]
    assert sorted(published) == sorted(f"{n}-{t}".encode() for n in counts for t in range(10))
    assert storage.names(paths.PREPARED) == [] and set(counts.values()) == {10}


def test_a_section_that_runs_again_finds_what_its_first_run_moved(storage) -> None:
    path, other = private(storage), private(storage, b"other")
    assert staging.put_once(storage, path, "base") and not staging.put_once(storage, path, "base")
    assert staging.is_same(storage, path, "base")
    staging.put_anew(storage, path, "base")
    assert content_at(storage, "base") == b"content"
    staging.put_anew(storage, other, "base")
    assert content_at(storage, "base") == b"other" and not staging.is_same(storage, path, "base")
    with pytest.raises(FileNotFoundError):
        staging.put(storage, path, "base")


def test_replacements_of_one_section_do_not_meet(storage) -> None:
    for name in ("one", "two"):
        storage.put(name, b"old", durable=True)
    epoch = fence(storage).enter()
    epoch.place_ticket(private(storage, b"first"))
    storage.faults = ["late"]
    with pytest.raises(Unavailable):
        epoch.put_in_place("one")
    epoch.replace(private(storage, b"second"), "two")
    storage.arrive()
    assert content_at(storage, "one") == b"old" and content_at(storage, "two") == b"second"
