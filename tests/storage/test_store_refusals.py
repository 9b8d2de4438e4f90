"""Goal: whoever is refused by a store reads what was refused, where, why, and what to do; nothing took place,
and the same storage goes on once it is put right.

Method: obstore as it is, against a small S3 server that answers each verb as S3 does.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.errors import Invalid
from mainstem.storage.backends import location_of
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store
from tests.servers.small_s3 import SmallS3

FEW = {"retries": "2", "retry_timeout_ms": "3000"}
#: verb as we say it -> method and key on the wire, and a call that makes it
VERBS: dict[str, tuple[str, str, Callable[[ObjectStorage], object]]] = {
    "GET": ("GET", "t/file", lambda storage: storage.read("file", max_bytes=9)),
    "HEAD": ("HEAD", "t/file", lambda storage: storage.stat("file")),
    "LIST": ("GET", "^$", lambda storage: storage.names("")),
    "PUT": ("PUT", "t/new", lambda storage: storage.put_new("new", b"1", durable=True)),
    "DELETE": ("POST", "^$", lambda storage: storage.delete("file")),
}
#: code, status, more of the reply -> what is said to do
REFUSALS = [
    ("ExpiredToken", 400, "", "the credentials have expired"),
    ("ExpiredToken", 403, "", "the credentials have expired"),
    ("RequestTimeTooSkewed", 403, "", "clock is more than 15 minutes off"),
    ("AuthorizationHeaderMalformed", 400, "<Region>eu-west-1</Region>",
     r"another region: give it as fs\.s3a\.endpoint\.region \(eu-west-1\)"),
    ("PermanentRedirect", 301, "", r"another region: give it as fs\.s3a\.endpoint\.region"),
    ("InvalidAccessKeyId", 403, "", r"check fs\.s3a\.access\.key and the endpoint"),
    ("AuthorizationFailure", 403, "<!-- Server failed to authenticate the request -->",
     r"check fs\.azure\.account\.key"),
    ("SignatureDoesNotMatch", 403, "", r"check fs\.s3a\.secret\.key"),
]  # fmt: skip
PERMISSIONS = {
    "GET": "grant s3:GetObject", "HEAD": "grant s3:GetObject.*s3:ListBucket is not granted",
    "LIST": "grant s3:ListBucket", "PUT": "grant s3:PutObject",
    "DELETE": "grant s3:DeleteObject.*Object Lock",
}  # fmt: skip


def reply(code: str, more: str = "") -> str:
    """An error of S3's, as text."""
    return f"<?xml version='1.0'?>\n<Error><Code>{code}</Code><Message>no</Message>{more}</Error>"


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


@pytest.fixture
def storage(server: SmallS3) -> ObjectStorage:
    server.put("t/file", b"1")
    return server.storage("t", **FEW)


def refused(server: SmallS3, storage: ObjectStorage, verb: str, status: int, text: str) -> str:
    """The message of a call that the server refuses; afterwards nothing has changed, and it succeeds."""
    method, key, call = VERBS[verb]
    before = sorted(server.objects)
    server.fail(method, key, status, 99, text)
    with pytest.raises(OSError) as raised:
        call(storage)
    assert sorted(server.objects) == before
    server.faults.clear()
    call(storage)
    message = str(raised.value)
    named = {"LIST": "s3://bucket/t:", "PUT": "s3://bucket/t/new:"}.get(verb, "s3://bucket/t/file:")
    assert f"{verb} {named}" in message and "any-secret" not in message and "Signature=" not in message
    return message


@pytest.mark.parametrize(("code", "status", "more", "said"), REFUSALS)
def test_each_reason_is_said_with_what_to_do(code, status, more, said, server, storage) -> None:
    for verb in VERBS:
        message = refused(server, storage, verb, status, reply(code, more))
        if verb != "HEAD" or status == 301:
            assert re.search(said, message), message
        else:
            assert "to this one, a HEAD, it gives no reason" in message


@pytest.mark.parametrize("verb", VERBS)
def test_a_permission_is_named_by_the_verb_that_lacks_it(verb: str, server, storage) -> None:
    message = refused(server, storage, verb, 403, reply("AccessDenied"))
    assert re.search(PERMISSIONS[verb], message), message


@pytest.mark.parametrize(
    ("scheme", "host", "said"),
    [
        ("http", "127.0.0.1:1", "nobody answers at that address: check the endpoint"),
        ("http", "no-such-host.invalid", "nobody answers at that address: check the endpoint"),
        ("https", "", r"does not speak TLS: give the endpoint with http://, or fs\.s3a\.connection\.ssl"),
    ],
)
def test_a_server_that_is_not_there_is_said_to_be_away(scheme, host, said, server, storage) -> None:
    endpoint = f"{scheme}://{host or f'127.0.0.1:{server.port}'}"
    location = location_of(storage.location, options={"fs.s3a.endpoint": endpoint})
    for _, _, call in VERBS.values():
        with pytest.raises(OSError, match=said):
            call(ObjectStorage(open_store(location), location))


def test_a_fault_of_the_library_is_an_error_like_any_other(storage: ObjectStorage, monkeypatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:port")  # obstore panics at it
    location = location_of("s3://bucket/t", options={"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"})
    with pytest.raises(OSError, match=r"GET s3://bucket/t/file: obstore failed: .*InvalidPort"):
        ObjectStorage(open_store(location), location).read("file", max_bytes=1)


def test_no_such_bucket_is_said_by_every_verb(server: SmallS3, storage: ObjectStorage) -> None:
    elsewhere = location_of("s3://other/t", options={**dict(storage.location.options)})
    other = ObjectStorage(
        open_store(location_of(elsewhere, options={"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"})),
        elsewhere,
    )
    for _, _, call in VERBS.values():
        with pytest.raises(Invalid, match="there is no bucket 'other'"):
            call(other)


@pytest.mark.parametrize("keys", [["file"], ["a", "file"]])
def test_a_key_that_a_lock_keeps_is_an_error_of_the_whole_delete(keys, server, storage) -> None:
    text = (
        "<DeleteResult><Deleted><Key>t/a</Key></Deleted><Error><Key>t/file</Key><Code>AccessDenied</Code>"
        "<Message>Access Denied because object protected by object lock</Message></Error></DeleteResult>"
    )
    server.fail("POST", "^$", 200, 1, text)
    with pytest.raises(PermissionError, match=r"DELETE s3://bucket/t: .*t/file.*no table can be written"):
        storage.delete_all(keys)


def test_credentials_that_expire_are_replaced_while_the_storage_is_open(
    server: SmallS3, tmp_path: Path, monkeypatch
) -> None:
    files = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(files))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)

    def write(key: str) -> None:
        files.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\n")

    write("OLD")
    location = location_of("s3://bucket/t", options={"fs.s3a.endpoint": f"http://127.0.0.1:{server.port}"})
    storage = ObjectStorage(open_store(location), location)
    tag = storage.swap("gate", b"1", None)
    server.refused_keys.add("OLD")
    with pytest.raises(PermissionError, match="the credentials have expired"):
        storage.swap("gate", b"2", tag)
    assert storage_content(server) == b"1"
    write("RENEWED")
    for _ in range(40):
        try:
            tag = storage.swap("gate", b"2", tag)
            break
        except PermissionError:  # obstore asks ten times a second for other keys
            time.sleep(0.02)
    assert storage_content(server) == b"2" and storage.read_tagged("gate") == (b"2", tag)


def storage_content(server: SmallS3) -> bytes:
    """What the gate holds."""
    return server.objects["t/gate"].content
