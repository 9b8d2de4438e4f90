"""Keeps the cluster running that Flink creates within this process for a local job.

A task manager shuts itself down if closing a task fails, or if it cannot cancel a task within
``task.cancellation.timeout``. A real cluster starts another one. A local cluster does not, and the job waits
for slots forever. Killed or stalled Python workers sometimes cause this (seen with Flink 2.3.0): closing
Beam's side of them fails ("Reference count must not be negative"), the last bytes of an Arrow stream cannot
be delivered, or nothing answers.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from mainstem.flink.stream_workers import java_field

_log = logging.getLogger(__name__)
_KIND = "MiniClusterJobClient"
_PAUSE_S = 2.0
# The time that a task manager may need to register, even on a busy machine.
_START_S = 20.0
_ANSWER_S = 30


class LocalCluster:
    """The cluster of a job if it is local; for other clusters ``look`` does nothing.

    ``job``: its Java client. Call ``look`` regularly while the job runs, from the thread that created this.
    """

    def __init__(self, job: Any) -> None:
        from pyflink.java_gateway import get_gateway

        local = job.getClass().getSimpleName() == _KIND
        self._cluster = java_field(job, "miniCluster") if local else None
        self._seconds = get_gateway().jvm.java.util.concurrent.TimeUnit.SECONDS
        self._most = 1
        self._next = time.monotonic() + _START_S

    def look(self) -> None:
        """Starts another task manager if one has ended."""
        if self._cluster is None or time.monotonic() < self._next:
            return
        from py4j.protocol import Py4JError
        from pyflink.util.exceptions import JavaException

        self._next = time.monotonic() + _PAUSE_S
        try:
            overview = self._cluster.requestClusterOverview().get(_ANSWER_S, self._seconds)
            there = overview.getNumTaskManagersConnected()
            self._most = max(self._most, there)
            if there < self._most:
                _log.warning("a local task manager ended (Flink's log says why): another one starts")
                self._cluster.startTaskManager()
                self._next = time.monotonic() + _START_S
        except (Py4JError, JavaException):  # no answer: the cluster is closing together with the job
            return
