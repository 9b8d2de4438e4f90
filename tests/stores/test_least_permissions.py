"""Goal: the policies of docs/stores.md are enough to write and to read a table, and allow nothing else.

Method: MinIO gives temporary keys that are bound to the page's own text (STS AssumeRole with a session
policy). With a writer's a table goes through its life; with a reader's it is read, and no write gets through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

import mainstem
from mainstem.errors import Unavailable
from mainstem.storage import object_store
from tests.servers.object_stores import Minio
from tests.stores.table_life import ROOT, batch, check_metadata, content, create, open_there

PREFIX = "team/tables"
QUICK = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "10", "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.mainstem.exclusive": "true",
}  # fmt: skip


def statements(count: int) -> list[dict[str, Any]]:
    """The first statements of the policy that the page shows."""
    page = (ROOT / "docs" / "stores.md").read_text(encoding="utf-8")
    found = re.search(r"```json\n(\{\n  \"Version\".*?)```", page, re.DOTALL)
    assert found is not None
    shown = json.loads(found[1].replace("BUCKET", "bucket").replace("PREFIX", PREFIX))["Statement"]
    assert len(shown) == 3
    return shown[:count]


class BoundMinio(Minio):
    """The same server as somebody who may do less."""

    bound: dict[str, str] | None = None

    def bind(self, policy: list[dict[str, Any]]) -> None:
        self.bound = None
        text = json.dumps({"Version": "2012-10-17", "Statement": policy})
        asked = {"Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": "3600", "Policy": text}
        form = {"content-type": "application/x-www-form-urlencoded"}
        said = self.ask("POST", "/", body=urlencode(asked).encode(), service="sts", headers=form)
        names = {"access.key": "AccessKeyId", "secret.key": "SecretAccessKey",
                 "session.token": "SessionToken"}  # fmt: skip
        found = {name: re.search(f"<{tag}>([^<]+)</{tag}>", said) for name, tag in names.items()}
        self.bound = {f"fs.s3a.{name}": match[1] for name, match in found.items() if match}

    def options(self) -> dict[str, str]:
        return {**super().options(), **(self.bound or {})}


@pytest.fixture(scope="module")
def server() -> Iterator[BoundMinio]:
    with BoundMinio() as running:
        running.make_bucket("bucket")
        yield running


@pytest.mark.supports("Stores", "S3: least permissions of writers and readers")
def test_a_writer_needs_no_more(server: BoundMinio, monkeypatch) -> None:
    server.bind(statements(3))
    table = create(server, "bucket", f"{PREFIX}/t", {"hoodie.metadata.enable": True, **QUICK})
    for ts in range(5):
        table.upsert(batch(range(ts, ts + 8), ts))
    table.create_index("column_stats", ["ts"])
    savepoint = table.savepoint()
    table.delete(batch([2], 9).select(["id", "city"]))
    table.restore(savepoint.instant)
    table.delete_savepoint(savepoint.instant)
    monkeypatch.setattr(object_store, "STORE_PUT_BYTES_MAX", 1000)  # base files are put in parts
    assert table.log_compact() and table.compact()
    monkeypatch.undo()
    runs = table.run_services(if_due=False)
    assert all(run.error is None for run in runs), runs
    with table.begin() as dead:
        dead.write(batch(range(3), 50))
    table.rollback_failed_writes()
    assert len(content(open_there(server, "bucket", f"{PREFIX}/t"))) == 12
    check_metadata(table)


@pytest.mark.parametrize("place", ["elsewhere/t", f"{PREFIX}2/t"])
def test_a_writer_writes_nothing_else(place: str, server: BoundMinio) -> None:
    server.bind(statements(3))
    with pytest.raises(Unavailable, match="AccessDenied"):
        create(server, "bucket", place)
    server.bound = None
    assert server.storage("bucket", place).entries("") == []


def test_a_reader_needs_no_more_and_writes_nothing(server: BoundMinio) -> None:
    server.bind(statements(3))
    create(server, "bucket", f"{PREFIX}/read", QUICK).upsert(batch(range(9), 1))
    server.bind(statements(2))
    table: mainstem.Table = open_there(server, "bucket", f"{PREFIX}/read")
    assert len(content(table)) == 9 and table.changes(after="0").to_arrow().num_rows == 9
    for write in (lambda: table.upsert(batch([1], 7)), table.compact, table.clean, table.savepoint):
        with pytest.raises(Unavailable, match=r"PUT s3://bucket.*grant s3:PutObject"):
            write()
    assert len(content(table)) == 9
