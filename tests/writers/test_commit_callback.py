"""Goal: each commit is told to the server that Hudi's options name, and no trouble with it harms a commit.

Method: a real web server. The names of fields are those that Java Hudi 1.2.0 sent to such a server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.options.writing import KAFKA_CLASS
from mainstem.writers.commit_callback import CallbackWarning

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int64())])
ROWS = {"id": ["a", "b"], "city": ["rome", "oslo"], "n": [1, 2]}
OPTION = "hoodie.write.commit.callback."
SECRET = "a very secret key"
JAVA = {"commitTime", "tableName", "basePath", "hoodieWriteStat", "commitActionType", "extraMetadata"}


class Server(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.told: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.status = 200
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/commits?token=hidden"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((dict(self.headers), json.loads(body)))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        yield running
        running.shutdown()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="n", partition_by="city", buckets=1,
        properties={"hoodie.mainstem.fsync": False},
    ).path  # fmt: skip


def opened(path: str, url: str, **options: object) -> mainstem.Table:
    given = {"on": True, "http.url": url, **options}
    return mainstem.open_table(path, {f"{OPTION}{name}": value for name, value in given.items()})


@pytest.mark.supports("Writing", "commit callbacks by HTTP")
def test_a_commit_is_told_with_its_files_and_what_it_says(
    path: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLBACK_KEY", SECRET)
    more = {"http.api.key": "env:CALLBACK_KEY", "http.custom.headers": "X-Team:data ; X-Two: 2"}
    table = opened(path, server.url, **more)
    done = table.upsert(ROWS)
    table.upsert(pa.table(ROWS, schema=SCHEMA).slice(0, 0))  # it writes nothing
    ((headers, message),) = server.told
    assert set(message) == JAVA
    assert (message["commitTime"], message["tableName"], message["basePath"]) == (done.instant, "t", path)
    assert sorted(stat["partitionPath"] for stat in message["hoodieWriteStat"]) == ["oslo", "rome"]
    assert all(Path(path, stat["path"]).exists() for stat in message["hoodieWriteStat"])
    assert message["commitActionType"] == {"empty": False, "present": True, "value": "deltacommit"}
    assert "schema" in message["extraMetadata"]["value"]
    sent = {name.lower(): value for name, value in headers.items()}
    assert sent["hudi-callback-key"] == SECRET and (sent["x-team"], sent["x-two"]) == ("data", "2")
    assert sent["content-type"] == "application/json; charset=UTF-8"


def test_every_write_is_told_in_the_order_of_its_commits(path: str, server: Server) -> None:
    table = opened(path, server.url)
    done = [table.upsert(ROWS), table.delete({"id": ["a"], "city": ["rome"]}), table.delete_partition("oslo")]
    assert [message["commitTime"] for _, message in server.told] == [one.instant for one in done]
    table.compact()
    assert len(server.told) == 3, "as Hudi: writes alone"


@pytest.mark.parametrize("trouble", ["it answers with an error", "it is not there"])
def test_a_server_in_trouble_is_a_warning_and_the_commit_stands(
    path: str, server: Server, trouble: str
) -> None:
    server.status = 500
    url = server.url
    if trouble == "it is not there":
        server.shutdown()
        server.server_close()
    table = opened(path, url, **{"http.api.key": SECRET})
    with pytest.warns(CallbackWarning, match=r"stands, but 127\.0\.0\.1 was not told") as caught:
        done = table.upsert(ROWS)
    assert done.status == "committed" and mainstem.open_table(path).scan().to_arrow().num_rows == 2
    shown = " ".join(str(one.message) for one in caught)
    assert SECRET not in shown and "hidden" not in shown
    assert SECRET not in repr(table.writer_context().told)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("http.url", "", "http.url, found ''"),
        ("http.url", "ftp://there/x", "expected http://host:port/path"),
        ("http.api.key", "env:NOBODY_SET_THIS", "no variable NOBODY_SET_THIS"),
        ("http.custom.headers", "X-Team", "a header called 'X-Team' has no value"),
        ("http.timeout.seconds", "0", "http.timeout.seconds"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_before_a_row_is_written(
    path: str, server: Server, option: str, value: str, message: str
) -> None:
    with pytest.raises(Invalid, match=message):
        opened(path, server.url, **{option: value}).upsert(ROWS)
    assert mainstem.open_table(path).timeline() == []


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"class": "org.example.Callback"}, Unsupported, "callback.class"),
        ({"class": KAFKA_CLASS}, Invalid, "kafka.bootstrap.servers"),
        ({"class": KAFKA_CLASS, "kafka.bootstrap.servers": "kafka:9092"}, Invalid, "kafka.topic"),
    ],
)
def test_other_kinds_of_callbacks_are_refused_before_a_row_is_written(
    path: str, given: dict, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(path, "http://localhost", **given).upsert(ROWS)
    assert mainstem.open_table(path).timeline() == []


def test_nothing_is_told_unless_it_is_asked_for(path: str, server: Server) -> None:
    mainstem.open_table(path, {f"{OPTION}http.url": server.url}).upsert(ROWS)
    assert server.told == []
