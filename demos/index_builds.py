"""Indexes of the wide table, built side by side while the streams write, and asked before and afterwards.

A thread of the demo's process waits until every stream has committed its first files, asks the questions,
starts one process per index, waits for all of them and asks again. Nobody waits for it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from demos.questions import Question, Reading, ask
from demos.supervise import Process, Writer
from demos.throughput_picture import Build
from demos.timeline_picture import instant_ms

#: kind -> columns
INDEXES: Mapping[str, tuple[str, ...]] = {
    "record_index": (),
    "secondary_index": ("tailnum",),
    "column_stats": ("distance", "dep_delay", "arr_delay"),
}
_POLL_S = 0.05


@dataclass
class Told:
    """What an index builder said."""

    index: str = ""
    build: Build | None = None
    rows: int = 0
    seconds: float = 0.0

    def note(self, what: dict[str, object]) -> None:
        if "built" in what:
            self.index = str(what["built"])
            times = [instant_ms(str(what[name])) for name in ("action", "completion")]
            self.build = Build(self.index, *times)
            self.rows = int(str(what["rows"]))
            self.seconds = float(str(what["seconds"]))


@dataclass
class IndexBuilds:
    """``questions``: by kind of index. ``first``: so many batches every stream has written before."""

    logs: Path
    table: str
    clock_offset_ms: int
    questions: Mapping[str, Question]
    first: int
    before: dict[str, Reading] = field(default_factory=dict)
    after: dict[str, Reading] = field(default_factory=dict)
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._builders: dict[str, Process] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, writers: Mapping[str, Writer]) -> None:
        """Begin to wait for the streams' first batches."""
        self._thread = threading.Thread(target=self._run, args=(writers,), daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what stopped it."""
        if self.error is not None:
            raise self.error

    @property
    def done(self) -> bool:
        """Whether all indexes are there and all questions answered."""
        return self._thread is not None and not self._thread.is_alive()

    def end(self) -> None:
        """Stop whatever still runs."""
        self._ended.set()
        for builder in list(self._builders.values()):
            builder.kill()
        if self._thread is not None:
            self._thread.join()

    @property
    def told(self) -> list[Told]:
        """What was built, in the order of ``INDEXES``."""
        return [said for b in self._builders.values() if isinstance(said := b.said, Told) and said.build]

    def _run(self, writers: Mapping[str, Writer]) -> None:
        try:
            if not self._until(lambda: all(len(w.said.batches) >= self.first for w in writers.values())):
                return
            self.before = self._answers()
            for kind, columns in INDEXES.items():
                self._start(kind, columns)
            if self._until(lambda: all(builder.finished for builder in self._builders.values())):
                self.after = self._answers()
        except Exception as error:  # the main thread raises it
            self.error = error

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for it; False if this is to end before. Raises ``WriterFailed`` when a builder does."""
        while not condition():
            for builder in self._builders.values():
                builder.check()
            if self._ended.wait(_POLL_S):
                return False
        return True

    def _start(self, kind: str, columns: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "demos.index_builder"]
        command += [self.table, str(self.clock_offset_ms), kind, *columns]
        self._builders[kind] = Process(command, self.logs / f"{kind}.log", Told())
        self._builders[kind].start()

    def _answers(self) -> dict[str, Reading]:
        return {kind: ask(self.table, question) for kind, question in self.questions.items()}
