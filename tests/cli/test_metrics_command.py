"""Goal: `mainstem metrics` tells Prometheus of writers and work, and the dashboard asks for what there is.

Method: its output through Prometheus' own parser, beside `table.activity()`; a server of the command; the
queries of docs/grafana.json against the names that a watched process and the command give.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64())])
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"
#: of each step that tests/writers/test_telemetry.py sees, and of stores
STEPS = {
    "begin", "write", "commit", "metadata_prepare", "lock_wait", "lock_held", "service", "storage_request",
}  # fmt: skip
COUNTERS = {"commits", "commit_rows", "commit_bytes", "rollbacks"}


@pytest.fixture
def table(tmp_path: Path) -> mainstem.Table:
    made = mainstem.create_table(tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1)
    job = mainstem.open_table(made.path, properties={"hoodie.mainstem.writer.name": "job-1"})
    for number in range(3):
        job.upsert({"id": [number], "ts": [1]})
    return made


def samples(text: str) -> dict[str, list]:
    return {one.name: one.samples for one in text_string_to_metric_families(text)}


@pytest.mark.disk("a path on the command line")
def test_writers_and_work_of_several_tables_are_told(table, tmp_path: Path, capsys) -> None:
    open_write = table.begin()
    assert main(["metrics", table.path, str(tmp_path / "nothing"), "--once"]) == 0
    out, err = capsys.readouterr()
    told = samples(out)
    assert {s.labels["mainstem_table"]: s.value for s in told["mainstem_table_up"]} == {
        table.path: 1, str(tmp_path / "nothing"): 0,
    }  # fmt: skip
    assert "nothing" in err
    (rate,) = told["mainstem_writer_row_rate"]
    assert rate.labels == {
        "mainstem_table": table.path, "mainstem_writer": "job-1", "mainstem_action": "deltacommit",
    }  # fmt: skip
    assert rate.value == pytest.approx(3 / 60)
    (pending,) = told["mainstem_table_pending_instants"]
    assert (pending.value, pending.labels["mainstem_alive"]) == (1, "true")
    (active,) = told["mainstem_table_active_instants"]
    assert active.value == table.activity().instants
    open_write.abort()


@pytest.mark.disk("a path on the command line")
def test_the_command_serves_until_it_is_ended(table) -> None:
    command = [sys.executable, "-m", "mainstem", "metrics", table.path, "--port", "0", "--every", "0s"]
    refused = subprocess.run([*command[:5], "--port", "99999"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 1 and "cannot be served" in refused.stderr
    # Shells start what runs in the background with SIGINT ignored, and programs inherit that.
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as serving:
        try:
            assert serving.stderr is not None
            url = serving.stderr.readline().split()[-1]
            for _ in range(2):
                told = samples(urllib.request.urlopen(url, timeout=60).read().decode())
                assert told["mainstem_table_up"][0].value == 1
            serving.send_signal(signal.SIGINT)
            assert serving.wait(60) == 130
        finally:
            signal.signal(signal.SIGINT, ignored)
            serving.kill()


def test_the_dashboard_asks_only_for_metrics_that_there_are() -> None:
    from mainstem.cli.serve_metrics import _GAUGES

    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"(mainstem_\w+)\{", query)}
    there = set(_GAUGES) | {f"mainstem_{name}_total" for name in COUNTERS}
    parts = ("sum", "count", "bucket")
    there |= {f"mainstem_{name}_duration_seconds_{part}" for name in STEPS for part in parts}
    assert len(asked) > 15 and asked <= there
