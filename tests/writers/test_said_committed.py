"""Goal: a micro-batch that is said to be committed survives a crash of the machine.

Who is told so forgets the batch. So the name of the commit that holds it must be durable by then, although
its writer died, failed or was interrupted between publishing it and syncing the folder.
"""

from __future__ import annotations

import pytest

import mainstem
from mainstem.errors import OutcomeUnknown
from mainstem.options.locks import RETRIES, WAIT_MS
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.writers.stream_guard import StreamGuard
from tests.writers.small_table import SCHEMA, rows

GUARD = StreamGuard("stream", 0)


@pytest.mark.disk("a store makes names durable at once")
@pytest.mark.parametrize("trouble", [OSError("the disk is away"), KeyboardInterrupt()])
def test_a_batch_is_not_said_to_be_committed_before_the_commits_name_is_durable(
    tmp_path, monkeypatch, trouble: BaseException
) -> None:
    mainstem.create_table(tmp_path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2)
    sync, synced = LocalStorage.sync_folder, []

    def failing(self: LocalStorage, path: str) -> None:
        if path == paths.TIMELINE:
            raise trouble
        sync(self, path)

    def watched(self: LocalStorage, path: str) -> None:
        synced.append(path)
        sync(self, path)

    txn = mainstem.open_table(tmp_path).begin("upsert", guard=GUARD)
    txn.write(rows([1], 1))
    monkeypatch.setattr(LocalStorage, "sync_folder", failing)
    with pytest.raises((OutcomeUnknown, KeyboardInterrupt)):
        txn.commit()
    with pytest.raises(mainstem.errors.Unavailable if isinstance(trouble, OSError) else KeyboardInterrupt):
        mainstem.open_table(tmp_path).begin("upsert", guard=GUARD)
    monkeypatch.setattr(LocalStorage, "sync_folder", watched)
    table = mainstem.open_table(tmp_path)
    assert table.begin("upsert", guard=GUARD).already_committed
    assert synced == [paths.TIMELINE]
    assert table.begin("upsert", guard=GUARD).already_committed
    assert synced == [paths.TIMELINE], "once for a commit is enough"


@pytest.mark.disk("a store makes names durable at once")
def test_others_commit_while_a_writer_waits_for_the_disk(tmp_path, monkeypatch) -> None:
    mainstem.create_table(tmp_path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2)
    at_once = {WAIT_MS: "100", RETRIES: "0"}
    one, other = (mainstem.open_table(tmp_path, properties=at_once) for _ in range(2))
    one.upsert(rows([1], 1))
    other.upsert(rows([2], 1))
    sync, met = LocalStorage.sync_folder, []
    with one.begin("upsert") as txn:
        txn.write(rows([1, 3], 2))

        def while_it_waits(self: LocalStorage, path: str) -> None:
            if path == paths.TIMELINE:
                monkeypatch.setattr(LocalStorage, "sync_folder", sync)
                met.append(other.upsert(rows([2, 4], 2)).completion_time)
            sync(self, path)

        monkeypatch.setattr(LocalStorage, "sync_folder", while_it_waits)
        completed = txn.commit().completion_time
    assert len(met) == 1 and completed < met[0]
    assert sorted(one.scan().to_arrow()["id"].to_pylist()) == ["k1", "k2", "k3", "k4"]


@pytest.mark.disk("a store makes names durable at once")
def test_a_commit_found_by_abort_is_made_durable_before_its_outcome_is_told(tmp_path, monkeypatch) -> None:
    mainstem.create_table(tmp_path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=2)
    sync, synced = LocalStorage.sync_folder, []

    def interrupted(self: LocalStorage, path: str) -> None:
        if path == paths.TIMELINE:
            raise KeyboardInterrupt
        sync(self, path)

    def watched(self: LocalStorage, path: str) -> None:
        synced.append(path)
        sync(self, path)

    txn = mainstem.open_table(tmp_path).begin("upsert")
    txn.write(rows([1], 1))
    monkeypatch.setattr(LocalStorage, "sync_folder", interrupted)
    with pytest.raises(KeyboardInterrupt):
        txn.commit()
    monkeypatch.setattr(LocalStorage, "sync_folder", watched)
    txn.abort()
    assert txn.commit().status == "committed"
    assert paths.TIMELINE in synced
