"""Goal: secrets are in no log, error, warning, ``repr``, output of a command or file of a table, and where
they are given by the name of a variable, in no pickle either.

Method: a table in a small S3 server, with every kind of secret of S3's, lives for a while, in this process
and by the command line, while requests fail in every way; all that can be seen is searched for their text.
"""

from __future__ import annotations

import logging
import pickle
import traceback
import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import mainstem
from mainstem.cli.main import main
from mainstem.errors import MainstemError
from tests.servers.small_s3 import SmallS3

SECRET = "NeVeR-To-Be-SeEn"
NAMES = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
VARIABLE = "TEST_HIDDEN_SECRET"
SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64())])
ROWS = pa.table({"id": ["a", "b"], "ts": [1, 2]}, SCHEMA)
URL = "s3://bucket/t"


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


@pytest.fixture(params=["text", "variable"])
def options(request, server: SmallS3, monkeypatch) -> dict[str, str]:
    monkeypatch.setenv(VARIABLE, SECRET)
    given = {"text": SECRET, "variable": f"env:{VARIABLE}"}[request.param]
    return {
        **dict.fromkeys(NAMES, given), "fs.s3a.endpoint": server.endpoint,
        "hoodie.mainstem.storage.retries": "0",
    }  # fmt: skip


def live(options: dict[str, str]) -> mainstem.Table:
    """Every kind of write, a service and an index."""
    made = {**options, "hoodie.metadata.enable": "true", "hoodie.mainstem.exclusive": "true"}
    table = mainstem.create_table(URL, SCHEMA, record_key="id", ordering="ts", buckets=1, properties=made)
    table.upsert(ROWS)
    table.delete({"id": ["b"]})
    table.compact()
    table.create_index("column_stats", ["ts"])
    table.run_services(if_due=False)
    return table


def failures(server: SmallS3, options: dict[str, str], table: mainstem.Table) -> Iterator[str]:
    """What is said while requests of each kind are refused."""
    calls: list[Callable[[], object]] = [
        lambda: mainstem.open_table(URL, options).scan().to_arrow(),
        lambda: mainstem.open_table(URL, options).upsert(ROWS),
        lambda: mainstem.create_table("s3://bucket/n", SCHEMA, record_key="id", properties=options),
        table.clean,
    ]
    text = "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message></Error>"
    for status in (400, 403, 404, 503):
        for method in ("GET", "PUT", "POST", "HEAD"):
            for call in calls:
                server.fail(method, "", status, 3, text)
                try:
                    call()
                except (MainstemError, OSError) as error:
                    yield "".join(traceback.format_exception(error))
                server.faults.clear()


def test_a_secret_is_seen_nowhere(server: SmallS3, options: dict[str, str], caplog, capfd) -> None:
    caplog.set_level(logging.DEBUG)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        table = live(options)
        told = [*failures(server, options, table)]
    assert len(told) > 20
    seams = table.opened.seams
    parts = (table, table.opened, seams, seams.storage, seams.storage.location, seams.lock, table.config,
             table.scan(), table.scan().explain(), table.dataset(), table.writer_context(),
             table.staging_spec(SCHEMA), table.properties, table.timeline())  # fmt: skip
    shown = [f"{part!r} {part}" for part in parts]
    given = [word for name, text in options.items() for word in ("-o", f"{name}={text}")]
    for command in ("timeline", "slices", "scan", "properties", "compact", "clean", "archive", "rollback"):
        assert main([command, URL, *given]) == 0
    server.fail("GET", "", 403, 99)
    assert main(["scan", URL, *given]) != 0
    server.faults.clear()
    out = capfd.readouterr()
    for where, text in {
        "messages": "".join(told), "parts": "".join(shown), "log": caplog.text, "output": out.out + out.err,
        "warnings": "".join(str(one.message) for one in warned),
    }.items():  # fmt: skip
        assert SECRET not in text, where
    for key, one in server.objects.items():
        assert SECRET.encode() not in one.content and SECRET not in str(one.metadata), key
    for one in (table, table.staging_spec(SCHEMA), table.opened.seams.storage.location):
        assert SECRET.encode() not in pickle.dumps(one), one
    assert pickle.loads(pickle.dumps(table)).scan().to_arrow().num_rows == table.scan().to_arrow().num_rows
