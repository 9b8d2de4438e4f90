"""Goal: processes that were opened with other settings than each other lose nothing, or are refused at once.

Method: one table, two openings; each pair of settings writes in turn and at once, and one of them runs all
services after the other's commits. What must be the same everywhere is refused where it differs. Heartbeats:
tests/truetime/test_heartbeat_promises.py; locks between processes: tests/multiprocess/test_lock_processes.py.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from small_table import SCHEMA, content, rows

import mainstem
from mainstem import errors
from mainstem.storage import paths

#: of a process; each differs from the first one, which is Hudi's defaults, in what it is called by
SETTINGS = {
    "defaults": {},
    "times": {
        "hoodie.client.heartbeat.interval_in_ms": 100, "hoodie.client.heartbeat.tolerable.misses": 20,
        "hoodie.time.generator.max_expected_clock_skew_ms": 20, "hoodie.mainstem.lock.expire_ms": 1_000,
    },
    "no fsync": {"hoodie.mainstem.fsync": False},
    "logs": {"hoodie.logfile.max.size": 1024, "hoodie.logfile.data.block.format": "parquet"},
    "never rolls back": {"hoodie.clean.failed.writes.policy": "NEVER"},
    "few retained": {
        "hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3,
        "hoodie.compact.inline.max.delta.commits": 1,
    },
    "by versions": {
        "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": 1,
    },
    "ahead": {"hoodie.mainstem.clock.offset_ms": 5_000},
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations_with_replacement(SETTINGS, 2)))
def test_two_processes_with_other_settings_lose_nothing_of_each_other(make_table, one, other):
    path = make_table().path
    first, second = (mainstem.open_table(path, SETTINGS[name]) for name in (one, other))
    with first.begin() as held, second.begin() as late:
        held.write(rows([1], ts=1))
        late.write(rows([2], ts=1))
        second.upsert(rows([3], ts=1))
        first.upsert(rows([3], ts=2, value="w"))
        second.run_services(if_due=False)
        assert held.commit().status == "committed"
        first.run_services(if_due=False)
        assert late.commit().status == "committed"
    second.delete(rows([1], ts=1))
    first.upsert(rows([4], ts=1))
    for table in (first, second):
        table.run_services(if_due=False)
        assert content(table) == {"k2": "v2", "k3": "w3", "k4": "v4"}
    assert content(mainstem.open_table(path)) == {"k2": "v2", "k3": "w3", "k4": "v4"}


REFUSED = {
    "lock provider": {
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider"
    },
    "lock path": {"hoodie.write.lock.filesystem.path": "/tmp/elsewhere"},
    "concurrency": {"hoodie.write.concurrency.mode": "SINGLE_WRITER"},
    "eager rollback": {"hoodie.clean.failed.writes.policy": "EAGER"},
    "buckets": {"hoodie.bucket.index.num.buckets": 7},
    "key": {"hoodie.datasource.write.recordkey.field": "city"},
    "ordering": {"hoodie.datasource.write.precombine.field": "value"},
}


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(what, marks=pytest.mark.disk("only a disk has lock files in folders of one's choice"))
        if what == "lock path" else what
        for what in REFUSED
    ],
)
def test_what_all_must_share_is_refused_where_it_differs(make_table, what):
    path = make_table().path
    mainstem.open_table(path).upsert(rows([1], ts=1))
    with pytest.raises((errors.Invalid, errors.Unsupported)):
        mainstem.open_table(path, REFUSED[what]).upsert(rows([2], ts=1))
    assert content(mainstem.open_table(path)) == {"k1": "v1"}


def test_the_expiry_of_javas_lock_files_is_the_tables(make_table):
    minutes = "hoodie.write.lock.filesystem.expire"
    table = make_table(**{minutes.replace(".", "__"): 10})
    assert table.properties[minutes] == "10"
    for path_options in ({}, {minutes: "10"}):
        opened = mainstem.open_table(table.path, path_options)
        assert opened.opened.seams.lock.options.foreign_expire_ms == 600_000
    with pytest.raises(errors.Invalid, match="contradicts the table"):
        mainstem.open_table(table.path, {minutes: "1"})


def test_writers_of_a_table_in_local_time_must_mean_one_zone(make_table):
    zone = "hoodie.mainstem.timeline.zone"
    path = make_table().path
    file = Path(path, paths.PROPERTIES)
    file.write_text(file.read_text().replace("timeline.timezone=UTC", "timeline.timezone=LOCAL"))
    with pytest.raises(errors.Invalid, match="give that zone"):
        mainstem.open_table(path).upsert(rows([1], ts=1))
    mainstem.open_table(path, {zone: "Asia/Tokyo"}).upsert(rows([1], ts=1))
    with pytest.raises(errors.Invalid, match=r"'UTC', but other writers .* 'Asia/Tokyo'"):
        mainstem.open_table(path, {zone: "UTC"}).upsert(rows([2], ts=1))
    mainstem.open_table(path, {zone: "Asia/Tokyo"}).upsert(rows([2], ts=1))
    assert content(mainstem.open_table(path)) == {"k1": "v1", "k2": "v2"}


# -- fsync --------------------------------------------------------------------------------------------------


@pytest.fixture
def synced(monkeypatch) -> list[str]:
    """What was synced: paths of files and folders."""
    found: list[str] = []

    def noted(sync):
        def call(fd):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
            sync(fd)

        return call

    monkeypatch.setattr(os, "fsync", noted(os.fsync))
    monkeypatch.setattr(os, "fdatasync", noted(os.fdatasync))
    return found


SERVICES = {
    "compact": (lambda table: table.compact(), "/t/a"),
    "log_compact": (lambda table: table.log_compact(), ".hoodie/.mainstem/prepared/"),
    "archive": (lambda table: table.archive(), ".hoodie/timeline/history"),
}


@pytest.mark.disk("it watches fsync")
@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("created", [True, False])
def test_a_process_without_fsync_serves_those_who_sync_durably(tmp_path, synced, service, created):
    """Unless the table itself was created without it: else rows of others are in what a service makes."""
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="city", buckets=1,
        properties={"hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": created},
    )  # fmt: skip
    small = {"hoodie.clean.commits.retained": 1, "hoodie.keep.min.commits": 2, "hoodie.keep.max.commits": 3}
    careless = mainstem.open_table(table.path, {**small, "hoodie.mainstem.fsync": False})
    for number in range(5):
        careless.upsert(rows([number], ts=1))
    if service == "archive":
        careless.compact()
    synced.clear()
    careless.upsert(rows([9], ts=1))
    assert synced == [], "its own writes are not durable, as it asked"
    run, place = SERVICES[service]
    assert run(careless)
    assert any(place in path for path in synced) is created, synced
    synced.clear()
    careless.upsert(rows([8], ts=1))
    assert synced == []
