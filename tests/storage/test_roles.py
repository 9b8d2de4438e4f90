"""Goal: where nothing else says who we are, a role does: of an instance, of a container, by a web identity; a
managed identity of Azure's, the metadata server of Google's. No key of theirs is shown.

Method: each cloud's own service, as small as can be, on loopback, and a small S3 server; who
signed is looked at.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mainstem.storage.backends import location_of, storage_of
from tests.servers.small_s3 import AUTHORITY, SmallS3

UNTIL = "2099-01-01T00:00:00Z"
AWS = {"AccessKeyId": "ROLE", "SecretAccessKey": "hidden", "Token": "of-role", "Expiration": UNTIL,
       "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}  # fmt: skip
STS = (
    '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
    "<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ROLE</AccessKeyId>"
    "<SecretAccessKey>hidden</SecretAccessKey><SessionToken>of-role</SessionToken>"
    f"<Expiration>{UNTIL}</Expiration></Credentials><AssumedRoleUser><Arn>a</Arn><AssumedRoleId>i"
    "</AssumedRoleId></AssumedRoleUser></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
)
TOKEN = {"access_token": "hidden", "expires_in": "36000", "expires_on": "4070908800", "token_type": "Bearer",
         "resource": "r", "not_before": "0", "client_id": "c"}  # fmt: skip
#: path -> the reply
REPLIES = {
    "/latest/api/token": "session",
    "/latest/meta-data/iam/security-credentials/": "my-role",
    "/latest/meta-data/iam/security-credentials/my-role": json.dumps(AWS),
    "/container": json.dumps(AWS),
    "/": STS,
    "/msi": json.dumps(TOKEN),
    "/computeMetadata/v1/instance/service-accounts/default/token": json.dumps({**TOKEN, "expires_in": 36000}),
}  # fmt: skip


class _Service(BaseHTTPRequestHandler):
    """Says who we are; to any other request, that there is nothing."""

    asked: list[tuple[str, str]]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        self.asked.append((path, self.headers.get("Authorization", "")))
        text = REPLIES.get(path, "").encode()
        self.send_response(200 if text else 404)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_HEAD = _serve


@pytest.fixture
def service(request, monkeypatch, tmp_path: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Its URL, and what was asked with whose authorization. A web identity is shown to nobody without TLS."""
    tls = getattr(request.node, "callspec", None) and request.node.callspec.params["role"] == "web identity"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    asked: list[tuple[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Service,), {"asked": asked}))
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(AUTHORITY.with_name("server.pem"))
        server.socket = context.wrap_socket(server.socket, server_side=True)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(AUTHORITY))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def signer(server: SmallS3) -> tuple[str, str | None]:
    """Who signed a request, and the token that came with it."""
    storage = storage_of(location_of("s3://bucket/t", options={"fs.s3a.endpoint": server.endpoint}))
    storage.names("")
    assert "hidden" not in f"{storage.location!r}{storage!r}"
    told = server.headers[-1]
    found = re.search(r"Credential=(\w+)/", told["authorization"])
    assert found is not None
    return found[1], told.get("x-amz-security-token")


@pytest.mark.supports("Stores", "S3: roles of instances and containers, web identities")
@pytest.mark.parametrize("role", ["instance", "container", "web identity"])
def test_a_role_of_amazons_signs(role: str, service: Any, monkeypatch, tmp_path: Path) -> None:
    url, asked = service
    token = tmp_path / "token"
    token.write_text("who-we-are")
    told = {
        "instance": {"AWS_METADATA_ENDPOINT": url},
        "container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/container",
                      "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token)},
        "web identity": {"AWS_WEB_IDENTITY_TOKEN_FILE": str(token), "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
                         "AWS_ENDPOINT_URL_STS": url},
    }  # fmt: skip
    for name, text in told[role].items():
        monkeypatch.setenv(name, text)
    with SmallS3() as server:
        assert signer(server) == ("ROLE", "of-role")
        assert signer(server) == ("ROLE", "of-role")
    assert len(asked) == {"instance": 3, "container": 1, "web identity": 1}[role]  # once for all


@pytest.mark.supports("Stores", "Azure: managed identities")
def test_azures_managed_identity_gives_a_token(service: Any, monkeypatch) -> None:
    url, asked = service
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", "h")
    options = {"hoodie.mainstem.storage.endpoint": f"{url}/account"}
    storage = storage_of(location_of("abfss://box@account.dfs.core.windows.net/t", options=options))
    with pytest.raises(FileNotFoundError):
        storage.read("file", max_bytes=9)
    assert [path for path, _ in asked[:1]] == ["/msi"]
    assert {who for path, who in asked[1:] if path.startswith("/account/box")} == {"Bearer hidden"}


@pytest.mark.supports("Stores", "Google Cloud Storage: the machine's service account")
def test_googles_metadata_server_gives_a_token(service: Any, monkeypatch) -> None:
    url, asked = service
    monkeypatch.setenv("GCE_METADATA_HOST", url.removeprefix("http://"))
    storage = storage_of(location_of("gs://bucket/t", options={"fs.gs.storage.root.url": url}))
    with pytest.raises(FileNotFoundError):
        storage.read("file", max_bytes=9)
    assert asked[0][0].startswith("/computeMetadata/")
    assert ("/bucket/t%2Ffile", "Bearer hidden") in asked
