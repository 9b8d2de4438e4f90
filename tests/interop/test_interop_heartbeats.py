"""Goal: Java judges our heartbeats by their times, whatever they say of themselves; only the dead go.

Method: two transactions of ours are open, one with an old heartbeat, while Java cleans, which is when it
rolls back.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import event_batches
import pytest
from java_hudi import JavaHudi, nbcc_options

import mainstem
from mainstem.storage import paths

pytestmark = pytest.mark.timeout(600)


def test_java_leaves_a_living_writer_of_ours_alone_and_rolls_a_dead_one_back(
    java: JavaHudi, tmp_path: Path
) -> None:
    path = str(tmp_path / "beating")
    mainstem.create_table(
        path, event_batches.SCHEMA, record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=1
    )
    options = nbcc_options(
        "beating", record_key=["id"], ordering=["ts"], partition_by=["city"], buckets=1,
        extra={"hoodie.clean.automatic": "true"},
    )  # fmt: skip
    living, dead = mainstem.open_table(path).begin(), mainstem.open_table(path).begin()
    assert os.path.getsize(f"{path}/{paths.heartbeat(living.instant)}") > 0
    dead._ctx.heartbeats.leave(dead.instant)
    old = time.time() - 3600
    os.utime(f"{path}/{paths.heartbeat(dead.instant)}", (old, old))
    java.clean(path, options)
    pending = {i.requested for i in mainstem.open_table(path).timeline() if not i.is_completed}
    assert pending == {living.instant}
    living.abort()
