"""Goal: compaction, cleaning and archiving run beside Flink jobs as their options say, partitioned tables
included, where Hudi's own Flink compaction never commits.

Method: two pipelines write one table, as in Hudi's demo; the options of the first ask for services after few
commits, those of the second switch them off. Numbers from 1 up show that every row is there once, and that
every commit is on the timeline or in the archive.
"""

from __future__ import annotations

import pytest
from test_flink_writers import WAIT_MS, numbers, rows_of, wait_for

import mainstem
from demos.services_done import services_done
from mainstem.lsm_archive.reader import Archive
from mainstem.storage.local import LocalStorage

SOON = {
    "compaction.delta_commits": "2", "clean.retain_commits": "1", "archive.min_commits": "2",
    "archive.max_commits": "4", "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}  # fmt: skip
OFF = {
    "compaction.schedule.enabled": "false", "compaction.async.enabled": "false",
    "clean.async.enabled": "false", "hoodie.archive.automatic": "false",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",
}  # fmt: skip
COLUMNS = "who STRING, id BIGINT, city STRING, PRIMARY KEY (who, id) NOT ENFORCED"


def pipeline(flink, name: str, path, options: dict[str, str]):
    """An endless job whose rows say who wrote them."""
    more = "".join(f", '{key}' = '{value}'" for key, value in options.items())
    flink.execute_sql(
        f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (city) WITH ('connector' = 'hudi', 'path' ="
        f" '{path}', 'table.type' = 'MERGE_ON_READ', 'index.type' = 'BUCKET',"
        f" 'hoodie.bucket.index.num.buckets' = '2'{more})"
    )
    city = "CASE WHEN MOD(id, 2) = 0 THEN 'oslo' ELSE 'rome' END"
    source = numbers(flink, f"{name}_source", 100_000, 500)
    return flink.execute_sql(f"INSERT INTO {name} SELECT '{name}', id, {city} FROM {source}")


@pytest.mark.supports("Services", "services beside Flink jobs, as Flink's options say")
def test_services_run_beside_two_jobs_and_no_row_is_lost(environment, tmp_path):
    path = tmp_path / "t"
    flink = environment("200 ms", 1)
    jobs = {name: pipeline(flink, name, path, given) for name, given in (("served", SOON), ("plain", OFF))}
    wait_for(lambda: all(job.outcomes for job in jobs.values()))

    def all_served() -> bool:
        done = services_done(path)
        return done.compactions >= 1 and done.cleans >= 1 and done.archived >= 1

    wait_for(all_served)
    for job in jobs.values():
        job.get_job_client().stop_with_savepoint(False, str(tmp_path / "saved")).result()
        job.wait(WAIT_MS)
        assert job.error is None
    rows = rows_of(path)
    for name, job in jobs.items():
        written = sum(outcome.rows for outcome in job.outcomes)
        assert sorted(row["id"] for row in rows if row["who"] == name) == list(range(1, written + 1))
    opened = mainstem.open_table(path)
    shown = [*opened.timeline(), *Archive.load(LocalStorage(opened.path)).instants()]
    done = {outcome.instant for job in jobs.values() for outcome in job.outcomes}
    assert done <= {instant.requested for instant in shown}
    assert {one.partition for one in opened.file_slices() if one.base_file} == {"oslo", "rome"}
