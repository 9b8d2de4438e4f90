"""Steps of this process as spans and metrics, where the program watches itself by OpenTelemetry.

Whoever wants them loads OpenTelemetry and sets its providers, as for every other library (or Hudi's option
``hoodie.metrics.on`` does, ``reporters``). Until its API is loaded, a step is one look into ``sys.modules``.

Metrics have few attributes, each of few values; what tells one commit from another stands in its span. Names
and units follow OpenTelemetry's conventions: ``mainstem.<step>.duration`` in seconds, ``error.type``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

_METRICS, _TRACE = "opentelemetry.metrics", "opentelemetry.trace"
_NAME = "mainstem"
#: of spans that others continue: W3C's
_TRACEPARENT = "traceparent"
# From a fast local call to a compaction of hours.
_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0,
)  # fmt: skip
#: what instruments tell, for who looks at them
_SAYS = {
    "begin.duration": "A transaction begins: its requested file is durable.",
    "write.duration": "Rows are encoded and appended.",
    "commit.duration": "What was written becomes durable and is published, with waiting for the lock.",
    "abort.duration": "A transaction is given up.",
    "task.duration": "A task of an engine writes its part.",
    "lock.wait.duration": "Waiting for the table lock, in a commit.",
    "lock.held.duration": "Holding the table lock, in a commit.",
    "metadata.prepare.duration": "Rows of the metadata table are made for a commit.",
    "index.build.duration": "An index is built.",
    "scan.duration": "All rows, or their number, are read.",
    "service.duration": "One table service runs in a round.",
    "service.errors": "Table services that failed.",
    "storage.request.duration": "One request to an object store or HDFS.",
    "commits": "Transactions that ended with a commit, with nothing to write, or as committed before.",
    "commit.rows": "Rows of commits.",
    "commit.bytes": "Bytes of their files.",
    "commit.files": "Their files.",
    "commit.attempts": "How often commits asked for the lock.",
    "ingest.rows": "Rows that an ingestion committed.",
    "ingest.dead_letters": "Records that became no rows, and were kept apart.",
    "ingest.lag": "Records that wait in the partitions that this process reads, after its newest commit.",
    "rollbacks": "Instants of dead or given up work that this process took back.",
}
_instruments: dict[str, Any] = {}

Value = str | int | float | bool


class Step:
    """A step that nobody watches. ``with step(...) as now: now.tell(...)``."""

    __slots__ = ()

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def tell(self, **told: Value | None) -> None:
        """Add attributes to the span: ``rows=5`` is ``mainstem.rows``."""


_UNWATCHED = Step()


class _WatchedStep(Step):
    __slots__ = ("_attributes", "_began", "_name", "_span", "_within")

    def __init__(self, name: str, attributes: dict[str, Value], parent: str) -> None:
        self._name, self._attributes = name, attributes
        self._began = time.perf_counter()
        tracer = sys.modules[_TRACE].get_tracer(_NAME)
        self._within = tracer.start_as_current_span(
            name, context=_context(parent) if parent else None, attributes=attributes
        )

    def __enter__(self) -> Step:
        self._span = self._within.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _record(self._name, self._began, self._attributes, kind)
        self._within.__exit__(kind, error, trace)

    def tell(self, **told: Value | None) -> None:
        for name, value in told.items():
            if value is not None:
                self._span.set_attribute(f"{_NAME}.{name}", value)


def watched() -> bool:
    """Whether this process has loaded OpenTelemetry."""
    return _METRICS in sys.modules and _TRACE in sys.modules


def step(name: str, table: str = "", *, parent: str = "", **attributes: str) -> Step:
    """A step as a span ``mainstem.<name>`` and a value of the histogram ``mainstem.<name>.duration``.

    ``attributes``: of both. ``parent``: ``here()`` of the step, in another process, that this is a part of.
    """
    if _METRICS not in sys.modules or _TRACE not in sys.modules:
        return _UNWATCHED
    return _WatchedStep(f"{_NAME}.{name}", _named(table, attributes), parent)


class _Timed(Step):
    __slots__ = ("_attributes", "_began", "_name")

    def __init__(self, name: str, attributes: dict[str, Value]) -> None:
        self._name, self._attributes = name, attributes
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _record(self._name, self._began, self._attributes, kind)


def timed(name: str, table: str = "", **attributes: str) -> Step:
    """As ``step``, without a span: for what happens often."""
    if _METRICS not in sys.modules:
        return _UNWATCHED
    return _Timed(f"{_NAME}.{name}", _named(table, attributes))


def took(name: str, milliseconds: float, table: str = "", **attributes: str) -> None:
    """A value of the histogram ``mainstem.<name>.duration``, without a span."""
    if _METRICS in sys.modules:
        _histogram(f"{_NAME}.{name}.duration").record(milliseconds / 1000, _named(table, attributes))


def counted(name: str, amount: int, unit: str, table: str = "", **attributes: str) -> None:
    """Add to the counter ``mainstem.<name>``, in ``unit`` (``{row}``, ``By``)."""
    if _METRICS not in sys.modules:
        return
    key = f"{_NAME}.{name}"
    instrument = _instruments.get(key)
    if instrument is None:
        instrument = _instruments.setdefault(key, _meter().create_counter(key, unit, _SAYS[name]))
    instrument.add(amount, _named(table, attributes))


def stands_at(name: str, value: int, unit: str, table: str = "", **attributes: str) -> None:
    """Say where the gauge ``mainstem.<name>`` stands."""
    if _METRICS not in sys.modules:
        return
    key = f"{_NAME}.{name}"
    instrument = _instruments.get(key)
    if instrument is None:
        instrument = _instruments.setdefault(key, _meter().create_gauge(key, unit, _SAYS[name]))
    instrument.set(value, _named(table, attributes))


def here() -> str:
    """The span that runs now, for ``step(parent=...)`` in another process; "" where nobody watches."""
    if _TRACE not in sys.modules:
        return ""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get(_TRACEPARENT, "")


def _context(parent: str) -> Any:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({_TRACEPARENT: parent})


def _meter() -> Any:
    return sys.modules[_METRICS].get_meter(_NAME)


def _record(
    name: str, began: float, attributes: dict[str, Value], failed: type[BaseException] | None
) -> None:
    if failed is not None:
        attributes = {**attributes, "error.type": failed.__name__}
    _histogram(f"{name}.duration").record(time.perf_counter() - began, attributes)


def _histogram(key: str) -> Any:
    instrument = _instruments.get(key)
    if instrument is None:
        says = _SAYS[key.removeprefix(f"{_NAME}.")]
        made = _meter().create_histogram(key, "s", says, explicit_bucket_boundaries_advisory=_BUCKETS_S)
        instrument = _instruments.setdefault(key, made)
    return instrument


def _named(table: str, attributes: Mapping[str, str]) -> dict[str, Value]:
    named: dict[str, Value] = {f"{_NAME}.{name}": value for name, value in attributes.items()}
    if table:
        named[f"{_NAME}.table"] = table
    return named
