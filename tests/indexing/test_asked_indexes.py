"""Goal: a job's options give its table the indexes that they ask for, and take none away.

Method: tables are opened by options as the engines' jobs do, with a writer or a builder at work where that
matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.given_options import sorted_out
from mainstem.api.job_table import asked_indexes, open_for_job
from mainstem.cli.main import main
from mainstem.errors import Invalid
from mainstem.indexing.index_plan import schedule
from mainstem.storage.backends import location_of
from mainstem.storage.location import Location

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
TABLE = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.mainstem.fsync": "false",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}
METADATA, STATS = "hoodie.metadata.enable", "hoodie.metadata.index.column.stats.enable"


@dataclass
class Job:
    """What a job of an engine says about its table."""

    location: Location
    operation: str
    table: Mapping[str, str]
    given: Mapping[str, str]
    passed: Mapping[str, str]


def job(path: Path, **more: str) -> Job:
    return Job(location_of(path), "upsert", *sorted_out({**TABLE, **more}))


def opened(path: Path, **more: str) -> mainstem.Table:
    return open_for_job(job(path, **more), SCHEMA)


def states(path: Path) -> dict[str, str]:
    return {index.name: index.state for index in mainstem.open_table(path).indexes()}


def rows(*ids: int) -> pa.Table:
    return pa.table([pa.array(ids, pa.int64())] * 2, schema=SCHEMA)


@pytest.mark.supports("Indexes", "builds: by Spark and Flink jobs whose options ask for them")
def test_a_new_table_has_what_the_job_asks_for(tmp_path):
    table = opened(tmp_path / "t", **{METADATA: "true", STATS: "true"})
    assert states(tmp_path / "t") == {"files": "ready", "column_stats": "ready"}
    table.upsert(rows(1, 2, 3))
    report = table.validate_metadata()
    assert report is not None and report.ok


def test_nothing_is_made_unless_it_is_asked_for(tmp_path):
    opened(tmp_path / "t").upsert(rows(1))
    assert states(tmp_path / "t") == {}
    opened(tmp_path / "t", **{METADATA: "false", STATS: "true"})
    assert states(tmp_path / "t") == {}


def test_a_table_with_rows_and_a_writer_at_work_gets_what_it_lacks(tmp_path):
    before = opened(tmp_path / "t")
    before.upsert(rows(1, 2))
    at_work = before.begin("upsert")
    at_work.write(rows(2, 3))
    opened(tmp_path / "t", **{METADATA: "true"})
    assert states(tmp_path / "t") == {"files": "ready"}
    at_work.commit()
    opened(tmp_path / "t", **{STATS: "true"})
    assert states(tmp_path / "t") == {"files": "ready", "column_stats": "ready"}
    report = before.validate_metadata()
    assert report is not None and report.ok


def test_a_job_that_asks_for_less_maintains_all_and_drops_nothing(tmp_path):
    opened(tmp_path / "t", **{STATS: "true"}).upsert(rows(1))
    opened(tmp_path / "t", **{METADATA: "false", STATS: "false"}).upsert(rows(1, 2))
    assert states(tmp_path / "t") == {"files": "ready", "column_stats": "ready"}
    report = mainstem.open_table(tmp_path / "t").validate_metadata()
    assert report is not None and report.ok


def test_an_index_that_a_living_process_builds_is_left_to_it(tmp_path):
    table = opened(tmp_path / "t", **{METADATA: "true"})
    context = table.index_context()
    action = schedule(context, "column_stats", {})
    try:
        with pytest.raises(Invalid, match="whose process lives"):
            table.create_index("column_stats")
        assert states(tmp_path / "t")["column_stats"] == "planned"
        opened(tmp_path / "t", **{STATS: "true"})
    finally:
        context.heartbeats.stop(action)


def test_a_value_that_does_not_parse_is_refused():
    with pytest.raises(Invalid, match=r"hoodie\.metadata\.enable='yes', expected true or false"):
        asked_indexes({METADATA: "yes"})


def test_switches_of_an_open_table_are_answered_with_the_call_that_makes_an_index(tmp_path):
    opened(tmp_path / "t")
    with pytest.warns(UserWarning, match=r"column\.stats\.enable; .* Table\.create_index"):
        mainstem.open_table(tmp_path / "t", {STATS: "true"})


def test_all_indexes_are_built_anew_with_those_that_rest_on_others_behind_these(tmp_path, capsys):
    table = opened(tmp_path / "t", **{STATS: "true"})
    table.upsert(rows(1, 2, 3))
    table.create_index("secondary_index", ["v"])
    built = [one.index for one in table.reindex_all()]
    assert built == ["column_stats", "record_index", "secondary_index_v"]
    assert set(states(tmp_path / "t").values()) == {"ready"}
    assert main(["index", "rebuild", str(tmp_path / "t")]) == 0
    assert capsys.readouterr().out.count("built by") == 3
    report = table.validate_metadata()
    assert report is not None and report.ok
