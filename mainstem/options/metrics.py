"""Options of metrics (``telemetry.reporters``): Hudi's, where they have a meaning here."""

from __future__ import annotations

from mainstem.options.declaration import Flag, Text, Whole

_REPORTERS = "telemetry.reporters"

METRICS = Flag(
    "hoodie.metrics.on", False, read_by=_REPORTERS,
    says="This process reports its metrics (docs/metrics.md); a program with OpenTelemetry needs no option.",
)  # fmt: skip
REPORTER = Text(
    "hoodie.metrics.reporter.type", "PROMETHEUS", like="PROMETHEUS or CONSOLE", read_by=_REPORTERS,
    says="Where metrics go; Hudi's other reporters have no effect, with a warning in the log.",
)  # fmt: skip
METRICS_PORT = Whole(
    "hoodie.metrics.prometheus.port", 9090, 1, 65_535, read_by=_REPORTERS,
    says="The port at which Prometheus asks.",
)  # fmt: skip
METRICS_HOST = Text(
    "hoodie.mainstem.metrics.prometheus.host", "127.0.0.1", like="address", read_by=_REPORTERS,
    says="The address of that port; 0.0.0.0: all of this machine.",
)  # fmt: skip
CONSOLE_S = Whole(
    "hoodie.metrics.console.report.interval.seconds", 30, 1, 86_400, "seconds", read_by=_REPORTERS,
    says="How often metrics are printed.",
)  # fmt: skip
METRICS_OPTIONS = (METRICS, REPORTER, METRICS_PORT, METRICS_HOST, CONSOLE_S)
