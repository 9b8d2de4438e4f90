"""Goal: whoever watches by OpenTelemetry sees each step with its numbers; whoever does not pays nothing.

Method: one process with the real SDK runs transactions, tasks, services, scans and failures, and says what it
saw; another serves its metrics as Hudi's options ask for it, and Prometheus' own parser reads them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk")
pytestmark = pytest.mark.here("other processes write the table")

SET_UP = """
import json, pathlib, sys
import pyarrow as pa
import mainstem
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
ROWS = pa.table({"id": range(20), "ts": [1] * 20}, SCHEMA)
def made(path):
    return mainstem.create_table(path, SCHEMA, record_key="id", ordering="ts", buckets=2,
                                 properties={"hoodie.metadata.enable": "true"})
"""
WATCHED = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from mainstem.writers.write_task import write_task

reader, spans, provider = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
metrics.set_meter_provider(MeterProvider([reader]))
trace.set_tracer_provider(provider)

table = made(sys.argv[1])
with trace.get_tracer("a job").start_as_current_span("a job"):
    table.upsert(ROWS)
    with table.begin() as txn:
        spec = txn.task_spec()
        txn.add_task_result(write_task(spec, ROWS.to_batches(), task_partition=0, stage=1, attempt=0))
        txn.commit()
try:
    table.upsert({"id": [None], "ts": [1]})
except mainstem.Invalid:
    pass
table.begin().abort()
late = table.begin()
late.write(ROWS)
mainstem.open_table(sys.argv[1]).resize(3)
assert late.commit().instant != late.instant  # its rows were routed anew
table.compact()
table.services.run()
assert table.scan().to_arrow().num_rows == 20
folder = pathlib.Path(sys.argv[1]).parent / "in"
folder.mkdir()
(folder / "a.json").write_text('{"id": 1, "ts": 1}')
ingested = str(folder.parent / "ingested")
mainstem.ingest(ingested, files=f"{folder}/*", record_key="id", ordering="ts", once=True)

points = {}
for one in reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics:
    for point in one.data.data_points:
        value = getattr(point, "count", None) or getattr(point, "value", None)
        points.setdefault(f"{one.name} {one.unit}", []).append([dict(point.attributes), value])
tree = [
    [s.name, dict(s.attributes), s.context.trace_id, s.status.status_code.name]
    for s in spans.get_finished_spans()
]
print(json.dumps([points, tree]))
"""


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", SET_UP + script, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> tuple[dict, list]:
    points, tree = json.loads(run(WATCHED, tmp_path_factory.mktemp("watched") / "t"))
    return points, tree


def total(points: list, **wanted: str) -> int:
    return sum(v for told, v in points if all(told.get(f"mainstem.{k}") == w for k, w in wanted.items()))


def test_commits_are_counted_with_their_rows_and_times(seen) -> None:
    points, _ = seen
    assert total(points["mainstem.commits {commit}"], operation="upsert", status="committed") == 4
    assert total(points["mainstem.commit.rows {row}"], operation="upsert") == 61
    assert total(points["mainstem.commit.files {file}"], operation="upsert") == 8
    assert total(points["mainstem.commit.bytes By"]) > 0
    assert total(points["mainstem.ingest.rows {row}"]) == 1
    assert [value for _, value in points["mainstem.ingest.lag {record}"]] == [0]
    for name in ("begin", "write", "commit", "lock.wait", "lock.held", "metadata.prepare", "task"):
        assert total(points[f"mainstem.{name}.duration s"]) >= 1, name
    refused = [told for told, _ in points["mainstem.write.duration s"] if "error.type" in told]
    assert [told["error.type"] for told in refused] == ["Invalid"]
    services = {told["mainstem.service"] for told, _ in points["mainstem.service.duration s"]}
    assert {"compact", "clean", "archive"} <= services
    assert any(told["mainstem.table"].endswith("/t") for told, _ in points["mainstem.commit.duration s"])


def test_spans_of_a_write_and_of_its_tasks_belong_to_the_span_around_them(seen) -> None:
    _, tree = seen
    (job,) = [trace for name, _, trace, _ in tree if name == "a job"]
    inside = [name for name, _, trace, _ in tree if trace == job]
    assert inside.count("mainstem.commit") == 2 and inside.count("mainstem.task") == 1
    told = [attributes for name, attributes, _, _ in tree if name == "mainstem.commit"]
    assert told[0]["mainstem.rows"] == 20 and len(told[0]["mainstem.instant"]) == 17
    assert {name for name, *_ in tree} >= {"mainstem.scan", "mainstem.service", "mainstem.abort"}
    assert [status for name, _, _, status in tree if name == "mainstem.write"].count("ERROR") == 1


def test_a_process_that_nobody_watches_loads_nothing_of_it(tmp_path: Path) -> None:
    script = "made(sys.argv[1]).upsert(ROWS); print([m for m in sys.modules if 'opentele' in m])"
    assert run(script, tmp_path / "t") == "[]\n"


def test_hudis_options_serve_the_metrics_of_a_job_to_prometheus(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    script = """
import socket, urllib.request
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
made(sys.argv[1])
given = {"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "PROMETHEUS",
         "hoodie.metrics.prometheus.port": str(port)}
for _ in range(2):  # a second handle is no second server
    mainstem.open_table(sys.argv[1], properties=given).upsert(ROWS)
print(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
"""
    families = {one.name: one for one in text_string_to_metric_families(run(script, tmp_path / "t"))}
    (rows,) = families["mainstem_commit_rows"].samples
    assert rows.value == 40 and rows.labels["mainstem_operation"] == "upsert"
    assert families["mainstem_commit_duration_seconds"].type == "histogram"


def test_another_reporter_of_hudi_is_a_warning_and_no_failure(tmp_path: Path) -> None:
    script = """
import logging
logging.basicConfig(stream=sys.stdout)
made(sys.argv[1])
given = {"hoodie.metrics.on": "true", "hoodie.metrics.reporter.type": "GRAPHITE"}
mainstem.open_table(sys.argv[1], properties=given).upsert(ROWS)
"""
    assert "GRAPHITE has no effect" in run(script, tmp_path / "t")
