"""Goal: the processes of one data source write share one transaction, however they come and go.

Method: ``SharedJob`` objects stand for task and commit workers (each opens the table itself), on a
real folder; no Spark session is started.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
import mainstem
from mainstem.api.job_table import open_or_create
from mainstem.errors import CorruptTable
from mainstem.spark import jobs
from mainstem.spark.batch_ids import GuardIds
from mainstem.spark.jobs import FOLDER, Job, SharedJob, decode_job, encode_job
from mainstem.spark.options import WriteOptions
from mainstem.storage.memory_store import forget
from mainstem.writers.write_task import write_task

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
    "hoodie.mainstem.exclusive": True,
}


def _job(path: Path | str, name: str = "job") -> SharedJob:
    options = WriteOptions.parse(OPTIONS, path=str(path))
    return SharedJob(open_or_create(options, SCHEMA), options, name)


def _ids(run: str = "run", batch: int = 0) -> GuardIds:
    return GuardIds("chk", "query", batch, run, None, None)


def _write(job: Job, rows: range, partition: int) -> bytes:
    assert job.spec is not None
    batch = pa.record_batch({"id": list(rows), "v": list(rows)}, schema=SCHEMA)
    return write_task(job.spec, [batch], task_partition=partition, stage=0, attempt=partition)


def test_many_tasks_begin_one_transaction_and_another_process_commits_it(tmp_path: Path) -> None:
    _job(tmp_path)
    found: list[Job] = []

    def task() -> None:
        job = _job(tmp_path)
        job.enter(_ids(), counted=True, looks="upsert(id,v)")
        found.append(job.begin(SCHEMA))

    threads = [threading.Thread(target=task) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.spec.instant for job in found if job.spec}) == 1 and len(found) == 6
    assert len(mainstem.open_table(tmp_path).timeline()) == 1
    results = [_write(job, range(10 * n, 10 * n + 10), n) for n, job in enumerate(found)]
    outcome = _job(tmp_path).commit(results[:5])
    assert outcome is not None and (outcome.status, outcome.rows) == ("committed", 50)
    keys = mainstem.open_table(tmp_path).scan(columns=["id"]).to_arrow()["id"].to_pylist()
    assert sorted(keys) == list(range(50))  # the sixth attempt's files are gone
    assert len(list(tmp_path.glob(".*.log.*"))) == outcome.files


def test_a_replay_finds_the_batch_committed_before_it_writes(tmp_path: Path) -> None:
    first = _job(tmp_path, "first")
    first.enter(_ids("one"), counted=True, looks="upsert(id,v)")
    first.commit([_write(first.begin(SCHEMA), range(3), 0)])
    again = _job(tmp_path, "again")
    again.enter(_ids("two"), counted=True, looks="upsert(id,v)")
    assert again.begin(SCHEMA).earlier is not None
    outcome = again.commit([])
    assert outcome is not None and outcome.status == "already_committed"
    assert len(mainstem.open_table(tmp_path).timeline()) == 1


def test_an_aborted_job_leaves_no_files_and_no_pending_instant(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.enter(None, counted=True, looks="")
    _write(job.begin(SCHEMA), range(3), 0)
    _job(tmp_path).abort()
    _job(tmp_path).abort()  # harmless
    table = mainstem.open_table(tmp_path)
    assert not [i for i in table.timeline() if i.state != "completed"]
    assert not list(tmp_path.glob(".*.log.*"))


def test_a_write_without_rows_still_takes_its_ordinal(tmp_path: Path) -> None:
    empty, full = _job(tmp_path, "empty"), _job(tmp_path, "full")
    empty.enter(_ids(), counted=True, looks="upsert(id,v)")
    assert empty.commit([]) is None
    job = full.enter(_ids(), counted=True, looks="upsert(id,v)")
    assert job.guard is not None and job.guard.ordinal == 1
    assert mainstem.open_table(tmp_path).timeline() == []


def test_records_of_ended_jobs_are_swept(tmp_path: Path) -> None:
    for number in range(40):
        job = _job(tmp_path, f"job-{number}")
        job.enter(None, counted=True, looks="")
        job.begin(SCHEMA)
        job.commit([])
    assert len(list((tmp_path / FOLDER).iterdir())) <= 20


def test_a_record_is_read_back_as_it_was_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    job = _job(tmp_path)
    job.enter(_ids(), counted=True, looks="upsert(id,v)")
    begun = job.begin(SCHEMA)
    assert decode_job(encode_job(begun), "p", "t") == begun
    for damaged in (b"", b"{}", encode_job(begun)[:-9]):
        with pytest.raises(CorruptTable, match="delete it"):
            decode_job(damaged, "p", "t")


def test_new_columns_and_wider_types_of_a_dataframe_are_in_the_schema_before_any_task_writes(
    tmp_path: Path,
) -> None:
    job = _job(tmp_path)
    job.enter(None, counted=False, looks="")
    wider = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("city", pa.string())])
    begun = job.begin(wider)
    assert begun.spec is not None
    batch = pa.record_batch({"id": [1], "v": [0.5], "city": ["Oslo"]}, schema=wider)
    result = write_task(begun.spec, [batch], task_partition=0, stage=0, attempt=0)
    _job(tmp_path).commit([result])
    table = mainstem.open_table(tmp_path)
    assert table.schema.equals(wider)
    assert table.scan(columns=["id", "v", "city"]).to_arrow().to_pylist() == batch.to_pylist()
    with pytest.raises(mainstem.Invalid, match="time64"):
        job = _job(tmp_path, "other")
        job.enter(None, counted=False, looks="")
        job.begin(pa.schema([*wider, ("t", pa.time64("us"))]))
    assert [i for i in table.timeline() if not i.is_completed] == []


# -- in an object store --------------------------------------------------------------------------------


@pytest.fixture
def url() -> Iterator[str]:
    yield "memory://jobs/t"
    forget("jobs")


def test_in_a_store_one_task_begins_and_the_others_wait_for_it(url: str) -> None:
    _job(url)
    found: list[Job] = []

    def task() -> None:
        job = _job(url)
        job.enter(_ids(), counted=True, looks="upsert(id,v)")
        found.append(job.begin(SCHEMA))

    threads = [threading.Thread(target=task) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.spec.instant for job in found if job.spec}) == 1 and len(found) == 6
    assert len(mainstem.open_table(url).timeline()) == 1, "nobody began another one"
    results = [_write(job, range(10 * n, 10 * n + 10), n) for n, job in enumerate(found)]
    outcome = _job(url).commit(results[:5])
    assert outcome is not None and (outcome.status, outcome.rows) == ("committed", 50)
    assert mainstem.open_table(url).scan().to_arrow().num_rows == 50


def test_in_a_store_a_task_that_is_slow_to_begin_is_overtaken_and_takes_its_own_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_BEGINS_MS", 1)
    slow, other = _job(url), _job(url)
    slow.enter(None, counted=True, looks="")
    begun: list[Job] = []
    real = SharedJob._begun

    def stands_still(self: SharedJob, job: Job, schema: pa.Schema) -> Job:
        made = real(self, job, schema)
        if self is slow:
            begun.append(made)
            begun.append(other.begin(SCHEMA))
        return made

    monkeypatch.setattr(SharedJob, "_begun", stands_still)
    found = slow.begin(SCHEMA)
    assert found.spec is not None and begun[0].spec is not None and begun[1].spec is not None
    assert found.spec.instant == begun[1].spec.instant != begun[0].spec.instant
    pending = [i.requested for i in mainstem.open_table(url).timeline() if not i.is_completed]
    assert pending == [found.spec.instant]


def test_in_a_store_a_task_that_fails_to_begin_lets_others_begin_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _job(url).enter(None, counted=True, looks="")
    with monkeypatch.context() as patch:
        patch.setattr(SharedJob, "_begun", lambda *_: pytest.fail("no"))
        with pytest.raises(BaseException, match="no"):
            _job(url).begin(SCHEMA)
    monkeypatch.setattr(jobs, "_BEGINS_MS", 1e12)
    assert _job(url).begin(SCHEMA).spec is not None


def test_the_record_of_a_job_holds_no_secrets_and_its_readers_have_their_own(url: str) -> None:
    secret = {**OPTIONS, "fs.s3a.secret.key": "hidden"}

    def job() -> SharedJob:
        options = WriteOptions.parse(secret, path=url)
        return SharedJob(open_or_create(options, SCHEMA), options, "job")

    job().enter(None, counted=True, looks="")
    assert job().begin(SCHEMA).spec is not None
    storage = mainstem.open_table(url).opened.seams.storage
    (name,) = storage.names(FOLDER)
    assert b"hidden" not in storage.read(f"{FOLDER}/{name}", max_bytes=1 << 20)
    read = job()._read()
    assert read is not None and read.spec is not None
    assert read.spec.location.option_values()["fs.s3a.secret.key"] == "hidden"


def test_a_table_in_a_store_stays_open_until_its_properties_change(url: str) -> None:
    options = WriteOptions.parse(OPTIONS, path=url)
    open_or_create(options, SCHEMA)
    first = open_or_create(options, SCHEMA)
    assert open_or_create(options, SCHEMA) is first
    mainstem.open_table(url).create_index("files")
    assert open_or_create(options, SCHEMA) is not first
