"""Goal: a micro-batch that is said to be committed survives a crash of the machine.

Who is told so forgets the batch. So the name of the commit that holds it must be durable by then, although
its writer died, failed or was interrupted between publishing it and syncing the folder.
"""

from __future__ import annotations

import pytest

import mainstem
from mainstem.errors import OutcomeUnknown
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
