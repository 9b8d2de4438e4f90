"""A plain writer process: one stream of batches, each committed under a guard; its argument is JSON.

What ``commit`` told goes to a journal that survives the process; errors of ours go to a second one, and the
batch is tried again. After a restart it goes on behind the journal. It ends when the stop file exists.
``sabotage`` makes it break one promise (``SABOTAGE``), which the checks must find.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mainstem
from mainstem.errors import MainstemError
from mainstem.publish.link_fence import LinkEpoch, LinkFence
from mainstem.truetime.locks.zookeeper import ZooKeeperLease
from mainstem.writers.stream_guard import StreamGuard
from tests.chaos.rows import rows
from tests.multiprocess.writer_worker import Journal, entries

#: the batch that a sabotaged writer spoils
SPOILED = 3


def main(given: dict) -> None:
    done, trouble = Journal(given["journal"]), Journal(given["journal"] + ".errors")
    number = len(entries(Path(given["journal"])))
    source, size, sabotage = given["source"], given["rows"], given["sabotage"]
    if sabotage == "unfenced":
        _publish_whatever_happens(Path(given["path"], ".hoodie/timeline"))
    table = None
    while True:
        try:
            table = table or mainstem.open_table(given["path"], properties=given["properties"])
            with table.begin("upsert", guard=StreamGuard(given["name"], number)) as txn:
                for first in (0, size // 2):
                    txn.write(_batch(source, number * size + first, size // 2, number, sabotage))
                    time.sleep(given["pause_s"] / 3)  # open for some time, as transactions are
                if sabotage == "lost" and number == SPOILED:
                    txn.abort()
                    done.add(batch=number, status="committed", attempts=1)
                    number += 1
                    continue
                outcome = txn.commit()
        except MainstemError as error:
            trouble.add(error=type(error).__name__, batch=number, message=str(error))
            time.sleep(0.05)
            continue
        done.add(batch=number, status=outcome.status, instant=outcome.instant,
                 completion=outcome.completion_time, attempts=outcome.attempts)  # fmt: skip
        number += 1
        if os.path.exists(given["stop"]):
            return
        time.sleep(given["pause_s"] / 3)


def _batch(source: int, first: int, count: int, number: int, sabotage: str):
    batch = rows(source, first, count)
    if sabotage == "altered" and number == SPOILED:  # row 3 of four has a key of its own
        changed = batch["amount"].to_pylist()
        changed[3 - first % 4] += 1
        batch = batch.set_column(batch.schema.get_field_index("amount"), "amount", [changed])
    return batch


#: two looks of those who watch the timeline
_SEEN_S = 3


def _publish_whatever_happens(timeline: Path) -> None:
    """No fence and no look at the lease; and once it stands still right before it publishes a commit, until
    it was overtaken: another commit is there, and was for some time."""
    stopped = []
    def publish(self: LinkEpoch, target: str) -> None:
        if target.endswith(".deltacommit") and not stopped:
            stopped.append(target)
            pid = os.getpid()
            others = f"find {timeline} -name '*_*.deltacommit' -newerct @{time.time()}"
            wake = f'until [ -n "$({others})" ]; do sleep 0.1; done; sleep {_SEEN_S}; kill -CONT {pid}'
            subprocess.Popen(["sh", "-c", wake])
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.1)  # this thread may run on for a moment
        self._storage.link(self._content or self.marker, target)

    LinkEpoch.publish = publish
    LinkFence._seen = lambda self, names: 0
    LinkEpoch.check = ZooKeeperLease.check = lambda self: None


SABOTAGE = {
    "lost": "one batch is told as committed and never written",
    "altered": "one cell of one row is another than the source's",
    "unfenced": "it was stopped for longer than its session, and publishes all the same",
}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
