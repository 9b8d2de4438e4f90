"""Reports this process's metrics as Hudi's options ask for it, with OpenTelemetry's SDK.

``PROMETHEUS``: a web server of this process, asked by Prometheus. ``CONSOLE``: lines on standard output. A
program that has set a provider of metrics of its own keeps it: it reports these metrics, too.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from mainstem.errors import Invalid
from mainstem.forks import Mutex
from mainstem.options.metrics import CONSOLE_S, METRICS, METRICS_HOST, METRICS_PORT, REPORTER

_SERVED = ("PROMETHEUS", "CONSOLE")
_MISSING = "pip install 'mainstem[metrics]'"
_log = logging.getLogger(__name__)
_mutex = Mutex()
_reported: set[object] = set()


def report(properties: Mapping[str, str], table: str) -> None:
    """Begin what the options ask for, once in a process. Raises ``Invalid`` if OpenTelemetry is missing. A
    port that is taken is a warning in the log: no write fails for want of metrics."""
    if not METRICS.read(properties):
        return
    kind = REPORTER.read(properties).upper()
    if kind not in _SERVED:
        with _mutex.held:
            if kind not in _reported:
                _reported.add(kind)
                _log.warning("%s=%s has no effect: metrics go to %s", REPORTER, kind, " or ".join(_SERVED))
        return
    place: tuple[object, ...] = (kind,)
    if kind == "PROMETHEUS":
        place = (kind, METRICS_HOST.read(properties), METRICS_PORT.read(properties))
    with _mutex.held:
        if place in _reported:
            return
        _begin(kind, properties, table)
        _reported.add(place)


def _begin(kind: str, properties: Mapping[str, str], table: str) -> None:
    try:
        from opentelemetry import metrics, trace  # noqa: F401 - steps look whether both are loaded
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
    except ImportError as error:
        raise Invalid(f"{METRICS}=true needs OpenTelemetry: {_MISSING}", table=table) from error
    if isinstance(metrics.get_meter_provider(), MeterProvider):
        _log.info("the program's own provider of metrics reports those of mainstem")
        return
    if kind == "CONSOLE":
        every_ms = CONSOLE_S.read(properties) * 1000
        reader = PeriodicExportingMetricReader(ConsoleMetricExporter(), export_interval_millis=every_ms)
    else:
        reader = _prometheus(METRICS_HOST.read(properties), METRICS_PORT.read(properties), table)
    metrics.set_meter_provider(MeterProvider([reader]))


def _prometheus(host: str, port: int, table: str) -> object:
    try:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import start_http_server
    except ImportError as error:
        raise Invalid(f"{REPORTER}=PROMETHEUS needs its exporter: {_MISSING}", table=table) from error
    try:
        start_http_server(port, host)
    except OSError as error:
        _log.warning(
            "metrics of this process are not served: %s:%d: %s; give each process of this machine a %s",
            host, port, error, METRICS_PORT,
        )  # fmt: skip
    return PrometheusMetricReader()
