"""The cluster that Flink makes within this process for a local job, kept at work.

A task manager that meets an error while it closes a task, or that cannot cancel one within
``task.cancellation.timeout``, ends itself. In a real cluster somebody starts another one; in a local one
nobody does, and the job asks for slots for ever. Python workers that are killed or stand still lead there now
and then (seen with Flink 2.3.0): closing what Beam has of them fails ("Reference count must not be
negative"), or the last bytes of an Arrow stream have nowhere to go, or nothing answers.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from mainstem.flink.stream_workers import java_field

_log = logging.getLogger(__name__)
_KIND = "MiniClusterJobClient"
_PAUSE_S = 2.0
# What a task manager may take to make itself known, on a busy machine too.
_START_S = 20.0
_ANSWER_S = 30


class LocalCluster:
    """The cluster of a job if it is a local one; other clusters are not looked at.

    ``job``: its Java client. ``look``: called now and then, by the thread that made it, while the job runs.
    """

    def __init__(self, job: Any) -> None:
        from pyflink.java_gateway import get_gateway

        local = job.getClass().getSimpleName() == _KIND
        self._cluster = java_field(job, "miniCluster") if local else None
        self._seconds = get_gateway().jvm.java.util.concurrent.TimeUnit.SECONDS
        self._most = 1
        self._next = time.monotonic() + _START_S

    def look(self) -> None:
        """Start another task manager for one that has ended."""
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
        except (Py4JError, JavaException):  # no answer: it is being closed, with the job
            return
