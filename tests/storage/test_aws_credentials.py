"""Goal: S3 is asked by whom AWS's own tools would ask it: what is given, the environment, profiles, roles.

Method: files with profiles in a temporary folder, a small S3 server that records who signed. What boto3 does
is tried where it is installed (``make stores``), with a role that a small server hands out.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mainstem.errors import Invalid, Unsupported
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.store_options import open_store
from tests.servers.small_s3 import SmallS3

PROFILE_PROVIDER = "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider"
CONFIG = """
[default]
region = eu-central-1
s3 =
    max_concurrent_requests = 20
[profile other]
region = eu-north-1
[profile by-process]
credential_process = {python} -c "print('{{\\"Version\\": 1, \\"AccessKeyId\\": \\"PROCESS\\",
 \\"SecretAccessKey\\": \\"s\\"}}')"
[profile by-role]
role_arn = arn:aws:iam::1:role/reader
source_profile = other
region = eu-west-3
[profile region-only]
region = us-west-2
"""
CREDENTIALS = """
[default]
aws_access_key_id = DEFAULT
aws_secret_access_key = default-secret
[other]
aws_access_key_id = OTHER
aws_secret_access_key = other%secret
aws_session_token = other-token
"""


@pytest.fixture
def server() -> Iterator[SmallS3]:
    with SmallS3() as running:
        yield running


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    """A home with profiles, and nothing of AWS's in the environment."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "config").write_text(CONFIG.format(python=sys.executable).replace(",\n", ","))
    (folder / "credentials").write_text(CREDENTIALS)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def signer(server: SmallS3, **options: str) -> tuple[str, str, str | None]:
    """Key, region and token of the request that a storage with these options makes."""
    given = {"fs.s3a.endpoint": f"http://127.0.0.1:{server.port}"}
    given |= {f"fs.s3a.{name.replace('_', '.')}": text for name, text in options.items()}
    storage_of(location_of("s3://bucket/t", options=given)).names("")
    return signed(server.headers[-1])


def signed(headers: dict[str, str]) -> tuple[str, str, str | None]:
    found = re.search(r"Credential=(\w+)/\d+/([\w-]+)/s3/", headers["authorization"])
    assert found is not None
    return found[1], found[2], headers.get("x-amz-security-token")


def test_the_default_profile_is_used_with_its_region(server: SmallS3, files: Path) -> None:
    assert signer(server) == ("DEFAULT", "eu-central-1", None)
    assert signer(server, endpoint_region="us-east-2") == ("DEFAULT", "us-east-2", None)


@pytest.mark.supports("Stores", "S3: profiles of AWS's tools")
def test_a_profile_is_named_by_a_variable_or_an_option(server: SmallS3, files: Path, monkeypatch) -> None:
    assert signer(server, auth_profile_name="other") == ("OTHER", "eu-north-1", "other-token")
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert signer(server) == ("OTHER", "eu-north-1", "other-token")
    assert signer(server, auth_profile_name="default") == ("DEFAULT", "eu-central-1", None)


def test_keys_of_the_environment_come_before_profiles_unless_a_profile_is_asked_for(
    server: SmallS3, files: Path, monkeypatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "VARIABLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert signer(server) == ("VARIABLE", "eu-central-1", None)
    assert signer(server, auth_profile_name="other")[0] == "OTHER"
    assert signer(server, aws_credentials_provider=PROFILE_PROVIDER)[0] == "DEFAULT"
    assert signer(server, access_key="GIVEN", secret_key="s")[0] == "GIVEN"
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert signer(server) == ("VARIABLE", "ap-south-1", None)


def test_files_lie_where_variables_and_options_say(server: SmallS3, files: Path, monkeypatch) -> None:
    moved = files / "moved"
    moved.write_text("[default]\naws_access_key_id=MOVED\naws_secret_access_key=s\n")
    assert signer(server, auth_profile_file=str(moved))[0] == "MOVED"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(moved))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(files / "none"))
    assert signer(server) == ("MOVED", "us-east-1", None)


def test_a_profile_may_name_the_server(server: SmallS3, files: Path) -> None:
    with open(files / "config", "a") as file:
        file.write(f"[profile here]\nendpoint_url = http://127.0.0.1:{server.port}\n")
    options = {"fs.s3a.auth.profile.name": "here", "fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}
    assert storage_of(location_of("s3://bucket/t", options=options)).names("") == []
    assert signed(server.headers[-1])[0] == "k"


def test_keys_that_another_tool_renews_are_used_at_once(server: SmallS3, files: Path) -> None:
    storage = server_storage(server)
    storage.names("")
    text = CREDENTIALS.replace("DEFAULT", "RENEWED")
    (files / "credentials").write_text(text + "\n# renewed\n")
    for _ in range(40):  # obstore asks at most ten times a second
        storage.names("")
        if signed(server.headers[-1])[0] == "RENEWED":
            return
        threading.Event().wait(0.02)
    raise AssertionError("the old keys are still in use")


def server_storage(server: SmallS3):
    """A storage with the default profile."""
    return storage_of(
        location_of("s3://bucket/t", options={"fs.s3a.endpoint": f"http://127.0.0.1:{server.port}"})
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"fs.s3a.auth.profile.name": "none"}, Invalid, r"no profile 'none' in .*config or .*credentials"),
        ({"fs.s3a.access.key": "k"}, Invalid, r"fs\.s3a\.secret\.key is missing"),
        ({"fs.s3a.secret.key": "hidden"}, Invalid, r"fs\.s3a\.access\.key is missing"),
    ],
)
def test_what_is_wrong_is_said(options, error, said, files: Path) -> None:
    with pytest.raises(error, match=said) as raised:
        open_store(location_of("s3://bucket/t", options=options))
    assert "hidden" not in str(raised.value)


def test_a_file_that_is_no_file_with_profiles_is_refused_and_not_repeated(files: Path) -> None:
    (files / "credentials").write_text("aws_secret_access_key = hidden\n")
    with pytest.raises(Invalid, match=r"credentials is no file with profiles") as raised:
        open_store(location_of("s3://bucket/t"))
    assert "hidden" not in str(raised.value)
    (files / "credentials").write_text("[default]\n" + "#" * (1 << 20))
    with pytest.raises(Invalid, match="more than 1048576 bytes"):
        open_store(location_of("s3://bucket/t"))


def test_without_boto3_it_is_named(files: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore", None)
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    for options in (
        {"fs.s3a.auth.profile.name": "by-role"},
        {"fs.s3a.auth.profile.name": "by-process"},
        {"fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/reader"},
    ):
        with pytest.raises(Unsupported, match="pip install boto3"):
            open_store(location_of("s3://bucket/t", options=options))


def test_without_any_credentials_it_is_said_where_to_give_some(
    server: SmallS3, files: Path, monkeypatch
) -> None:
    for name in ("config", "credentials"):
        (files / name).unlink()
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")  # no instance
    options = {"fs.s3a.endpoint": server.endpoint, "hoodie.mainstem.storage.retries": "0"}
    with pytest.raises(OSError, match=r"LIST s3://bucket/t: .*no credentials were found"):
        storage_of(location_of("s3://bucket/t", options=options)).names("")
    assert not server.headers


def test_no_key_is_shown(files: Path) -> None:
    store = open_store(location_of("s3://bucket/t"))
    for text in (repr(store), repr(store.credential_provider), repr(store.config)):
        assert "DEFAULT" not in text and "default-secret" not in text


# -- boto3 ---------------------------------------------------------------------------------------------


class _Sts(BaseHTTPRequestHandler):
    """Hands out one role's credentials, and notes who asked."""

    asked: list[tuple[str, str]]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        found = re.search(r"Credential=(\w+)/", self.headers["Authorization"])
        assert found is not None
        self.asked.append((found[1], body))
        text = (
            b'<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            b"<Credentials><AccessKeyId>ASSUMED</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
            b"<SessionToken>of-role</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials>"
            b"<AssumedRoleUser><Arn>a</Arn><AssumedRoleId>i</AssumedRoleId></AssumedRoleUser>"
            b"</AssumeRoleResult></AssumeRoleResponse>"
        )
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def sts() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Its URL, and who asked with what."""
    pytest.importorskip("boto3")
    asked: list[tuple[str, str]] = []
    service = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Sts,), {"asked": asked}))
    thread = threading.Thread(target=service.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{service.server_address[1]}", asked
    service.shutdown()
    service.server_close()
    thread.join()


def test_a_profile_with_a_role_assumes_it_once(server, files, sts, monkeypatch) -> None:
    url, asked = sts
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
    assert signer(server, auth_profile_name="by-role") == ("ASSUMED", "eu-west-3", "of-role")
    assert signer(server, auth_profile_name="by-role")[0] == "ASSUMED"
    assert [who for who, _ in asked] == ["OTHER"]


def test_a_role_that_is_given_is_assumed_with_keys_that_are_given(server, files, sts) -> None:
    url, asked = sts
    options = {
        "fs.s3a.assumed.role.arn": "arn:aws:iam::1:role/x",
        "fs.s3a.assumed.role.session.name": "me",
        "hoodie.aws.role.external.id": "ext",
        "fs.s3a.assumed.role.sts.endpoint": url,
        "fs.s3a.assumed.role.sts.endpoint.region": "eu-west-3",
        "fs.s3a.access.key": "GIVEN", "fs.s3a.secret.key": "s",
        "fs.s3a.endpoint": f"http://127.0.0.1:{server.port}",
    }  # fmt: skip
    storage_of(location_of("s3://bucket/t", options=options)).names("")
    assert signed(server.headers[-1])[::2] == ("ASSUMED", "of-role")
    ((who, body),) = asked
    assert who == "GIVEN" and "RoleSessionName=me" in body and "ExternalId=ext" in body


def test_a_profile_may_name_a_process(server, files) -> None:
    pytest.importorskip("boto3")
    assert signer(server, auth_profile_name="by-process") == ("PROCESS", "us-east-1", None)
