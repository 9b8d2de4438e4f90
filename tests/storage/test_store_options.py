"""Goal: what users say of a store arrives at obstore, by every name; secrets are never shown; what is wrong
or without effect is said.

Method: option -> obstore's configuration, one by one; stores are made and their configuration is read back;
locations are printed and pickled.
"""

from __future__ import annotations

import pickle
import sys
from datetime import timedelta
from typing import Any

import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.options.declaration import every_option
from mainstem.storage import store_options
from mainstem.storage.backends import location_of, storage_of
from mainstem.storage.store_options import kept_bytes, open_store, split

#: tried in test_aws_credentials.py and test_on_the_wire.py
ELSEWHERE = {
    "fs.s3a.create.storage.class",
    "fs.s3a.auth.profile.name", "fs.s3a.auth.profile.file", "fs.s3a.assumed.role.session.name",
    "hoodie.aws.role.external.id", "fs.s3a.assumed.role.sts.endpoint",
    "fs.s3a.assumed.role.sts.endpoint.region",
}  # fmt: skip
S3, GS = "s3a://bucket/t", "gs://bucket/t"
AZURE = "abfss://box@account.dfs.core.windows.net/t"


def configured(url: str, options: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    location = location_of(url, options=options)
    return store_options._configured(location, location.option_values())


KEYS = [
    ({"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s"}, ("k", "s", None)),
    ({"hoodie.aws.access.key": "k", "hoodie.aws.secret.key": "s"}, ("k", "s", None)),
    ({"hoodie.aws.secret.key": "old", "fs.s3a.secret.key": "s", "fs.s3a.access.key": "k"}, ("k", "s", None)),
    ({"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.session.token": "t"}, ("k", "s", "t")),
    ({"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "hoodie.aws.session.token": "t"}, ("k", "s", "t")),
]
S3_OPTIONS = [
    ({"fs.s3a.assumed.role.arn": "arn:x"}, {"role_arn": "arn:x"}),
    ({"fs.s3a.endpoint.region": "eu-west-1"}, {"region": "eu-west-1"}),
    ({"hoodie.aws.region": "eu-west-1"}, {"region": "eu-west-1"}),
    ({"fs.s3a.endpoint": "http://h:9000"}, {"endpoint": "http://h:9000"}),
    ({"hoodie.mainstem.storage.endpoint": "http://h:9000"}, {"endpoint": "http://h:9000"}),
    ({"fs.s3a.endpoint": "h:9000"}, {"endpoint": "https://h:9000"}),
    ({"fs.s3a.endpoint": "h:9000", "fs.s3a.connection.ssl.enabled": "false"}, {"endpoint": "http://h:9000"}),
    ({"fs.s3a.endpoint": "h:9000", "fs.s3a.path.style.access": "false"},
     {"endpoint": "https://bucket.h:9000", "virtual_hosted_style_request": True}),
    ({"fs.s3a.bucket.bucket.endpoint": "http://mine", "fs.s3a.endpoint": "http://all",
      "fs.s3a.bucket.other.endpoint": "http://other"}, {"endpoint": "http://mine"}),
    ({"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
     {"skip_signature": True}),
    ({"hoodie.mainstem.storage.anonymous": "true"}, {"skip_signature": True}),
    ({"fs.s3a.requester.pays.enabled": "true"}, {"request_payer": True}),
    ({"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "id"},
     {"server_side_encryption": "aws:kms", "sse_kms_key_id": "id"}),
    ({"fs.s3a.server-side-encryption-algorithm": "SSE-C", "fs.s3a.server-side-encryption.key": "a2V5"},
     {"server_side_encryption": "sse-c", "sse_customer_key_base64": "a2V5"}),
    ({"fs.s3a.encryption.algorithm": "AES256"}, {"server_side_encryption": "AES256"}),
]  # fmt: skip
OTHERS = [
    (GS, {"google.cloud.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}),
    (GS, {"fs.gs.auth.service.account.json.keyfile": "/k.json"}, {"service_account": "/k.json"}),
    (GS, {"fs.gs.storage.root.url": "http://h:1"}, {"base_url": "http://h:1"}),
    (AZURE, {}, {"account_name": "account"}),
    (AZURE, {"fs.azure.account.key": "k"}, {"account_name": "account", "account_key": "k"}),
    (AZURE, {"fs.azure.account.key.account.dfs.core.windows.net": "k", "fs.azure.account.key": "other",
             "fs.azure.account.key.another.dfs.core.windows.net": "x"},
     {"account_name": "account", "account_key": "k"}),
    (AZURE, {"fs.azure.sas.fixed.token": "sig"}, {"account_name": "account", "sas_key": "sig"}),
    (AZURE, {"fs.azure.account.oauth2.client.id": "i", "fs.azure.account.oauth2.client.secret": "s",
             "fs.azure.account.oauth2.client.endpoint": "https://login.example/tenant/oauth2/token"},
     {"account_name": "account", "client_id": "i", "client_secret": "s", "tenant_id": "tenant",
      "authority_host": "https://login.example"}),
    ("az://box/t", {"fs.azure.account.key": "k"}, {"account_key": "k"}),
    ("abfs://box@acc.dfs.core.chinacloudapi.cn/t", {},
     {"account_name": "acc", "endpoint": "https://acc.blob.core.chinacloudapi.cn"}),
]  # fmt: skip


@pytest.mark.supports("Stores", "settings by the names of Hadoop and Hudi")
@pytest.mark.parametrize(("url", "options", "expected"), [*((S3, *one) for one in S3_OPTIONS), *OTHERS])
def test_every_name_arrives(url: str, options: dict[str, str], expected: dict[str, Any]) -> None:
    config, client = configured(url, options)
    assert config == expected
    endpoint = str(config.get("endpoint", config.get("base_url", "")))
    assert client.get("allow_http", False) is endpoint.startswith("http://")


@pytest.mark.parametrize(("options", "expected"), KEYS)
def test_keys_arrive_alone(options, expected, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of another key")
    found = open_store(location_of(S3, options=options)).credential_provider()
    assert (found["access_key_id"], found["secret_access_key"], found["token"]) == expected


def test_what_the_http_client_is_told() -> None:
    _, client = configured(S3, {})
    assert client == {"timeout": timedelta(seconds=60), "connect_timeout": timedelta(seconds=5)}
    _, client = configured(S3, {"fs.s3a.proxy.host": "p", "fs.s3a.proxy.port": "8080"})
    assert client["proxy_url"] == "http://p:8080"
    user = {"fs.s3a.proxy.username": "me", "fs.s3a.proxy.password": "a@b"}
    _, client = configured(S3, {"fs.s3a.proxy.host": "p", "fs.s3a.proxy.port": "8080", **user})
    assert client["proxy_url"] == "http://me:a%40b@p:8080"
    for address in ("p:8080", "http://p:8080"):
        _, client = configured(GS, {"fs.gs.proxy.address": address})
        assert client["proxy_url"] == "http://p:8080"
    own = {"proxy": "http://q", "timeout_ms": "100", "connect_timeout_ms": "10"}
    _, client = configured(GS, {f"hoodie.mainstem.storage.{name}": text for name, text in own.items()})
    assert client["proxy_url"] == "http://q" and client["timeout"] == timedelta(milliseconds=100)
    assert storage_of(location_of("memory://b/t", options={"hoodie.mainstem.storage.width": "3"})).width == 3
    assert kept_bytes(location_of("memory://b/t", options={"hoodie.mainstem.storage.memory": "7"})) == 7


def test_every_declared_option_is_tried_here() -> None:
    declared = {option for option in every_option() if option.read_by == "storage.store_options"}
    options = [*(one[0] for one in (*KEYS, *S3_OPTIONS)), *(one[1] for one in OTHERS)]
    tried = {name for given in options for name in given}
    tried.add("fs.gs.proxy.address")
    tried |= {f"fs.s3a.proxy.{name}" for name in ("host", "port", "username", "password")}
    tried |= ELSEWHERE
    tried |= {f"hoodie.mainstem.storage.{name}" for name in (
        "proxy", "timeout_ms", "connect_timeout_ms", "width", "memory", "cache", "cache_folder",
        "ca_file", "retries",
        "retry_timeout_ms")}
    assert {option for option in declared if not tried & set(option.names)} == set()


@pytest.mark.parametrize(
    ("url", "options", "error", "said"),
    [
        (S3, {"hoodie.mainstem.storage.timeout_ms": "5"}, Invalid, "a whole number from 100"),
        (S3, {"hoodie.mainstem.storage.time": "5"}, Invalid, "unknown option .*timeout_ms"),
        ("/tmp/t", {"hoodie.mainstem.storage.time": "5"}, Invalid, "unknown option"),
        (S3, {"fs.s3a.encryption.algorithm": "ROT13"}, Unsupported, "expected AES256"),
        (S3, {"fs.s3a.path.style.access": "perhaps"}, Invalid, "true or false"),
        ("s3://key:secret@bucket/t", {}, Invalid, r"s3://\.\.\.@BUCKET holds credentials"),
        (S3, {"fs.s3a.endpoint": "http://key:secret@host"}, Invalid, "a user or a query"),
        (GS, {"fs.gs.storage.root.url": "http://host/?key=secret"}, Invalid, "a user or a query"),
        (AZURE, {"hoodie.mainstem.storage.endpoint": "h/account?sig=secret"}, Invalid, "a user or a query"),
        (S3, {"fs.s3a.endpoint": "host:secret"}, Invalid, r"endpoint is no URL http\(s\)://HOST"),
        (S3, {"fs.s3a.endpoint": "ftp://host"}, Invalid, r"endpoint is no URL http\(s\)://HOST"),
        (S3, {"fs.s3a.endpoint": "http://127.0.0.1:9000", "fs.s3a.path.style.access": "false"}, Invalid,
         "fs.s3a.path.style.access=false: a bucket cannot stand before an address of numbers"),
    ],
)
def test_what_is_wrong_is_refused(url, options, error, said) -> None:
    with pytest.raises(error, match=said) as raised:
        location_of(url, options=options)
    assert "secret" not in str(raised.value)


def test_certificates_are_read_where_the_store_is_made(tmp_path) -> None:
    ca_file = {"hoodie.mainstem.storage.ca_file": str(tmp_path / "none.pem")}
    with pytest.raises(Invalid, match=r"ca_file=.*none\.pem"):
        open_store(location_of(S3, options=ca_file))


@pytest.mark.parametrize("url", ["az://box/t", "abfss://box/t"])
def test_a_url_without_an_account_is_said_to_lack_it(url: str) -> None:
    with pytest.raises(Invalid, match=r"://CONTAINER@ACCOUNT\.dfs.* AZURE_STORAGE_ACCOUNT_NAME"):
        open_store(location_of(url, options={"fs.azure.account.key": "aGlkZGVu"}))


def test_a_missing_library_is_said_with_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    for url, extra in ((S3, "s3"), (GS, "gcs"), (AZURE, "azure")):
        with pytest.raises(Unsupported, match=rf"pip install 'mainstem\[{extra}\]'"):
            mainstem.open_table(url)


def test_hadoops_other_options_are_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"no effect in mainstem: fs\.s3a\.connection\.maximum"):
        location_of(S3, options={"fs.s3a.connection.maximum": "5", "fs.s3a.bucket.other.endpoint": "x"})


def test_the_tables_of_a_bucket_share_a_store_and_its_settings_decide_which() -> None:
    one, two = (location_of(f"s3://bucket/{name}", options={"fs.s3a.endpoint": "http://h"}) for name in "ab")
    other = location_of("s3://bucket/a", options={"fs.s3a.endpoint": "http://i"})
    assert open_store(one) is open_store(two) is not open_store(other)
    assert open_store(one).config["endpoint"] == "http://h"
    assert open_store(one).retry_config["max_retries"] == 10


def test_a_secret_is_never_shown_and_travels_by_the_name_of_a_variable(monkeypatch) -> None:
    monkeypatch.setenv("MY_SECRET", "hidden-text")
    options = {"fs.s3a.access.key": "shown-id", "fs.s3a.secret.key": "env:MY_SECRET"}
    location = location_of(S3, options=options)
    assert location.option_values() == {"fs.s3a.access.key": "shown-id", "fs.s3a.secret.key": "hidden-text"}
    assert open_store(location).credential_provider()["secret_access_key"] == "hidden-text"
    for text in (repr(location), str(location), repr(storage_of(location).location)):
        assert "hidden-text" not in text and "shown-id" not in text
    assert b"hidden-text" not in pickle.dumps(location)
    assert pickle.loads(pickle.dumps(location)) == location
    more = location_of(location, options={"fs.s3a.endpoint": "http://h"})
    assert more.option_values() == {**location.option_values(), "fs.s3a.endpoint": "http://h"}
    monkeypatch.delenv("MY_SECRET")
    with pytest.raises(Invalid, match="MY_SECRET"):
        open_store(location)


@pytest.mark.parametrize(
    ("url", "name"), [(GS, "fs.gs.proxy.address"), (S3, "hoodie.mainstem.storage.proxy")]
)
def test_the_password_of_a_proxy_is_never_shown(url: str, name: str) -> None:
    location = location_of(url, options={name: "http://me:hidden@proxy:3128"})
    assert "hidden" not in f"{location!r} {location}"
    assert configured(url, dict(location.texts))[1]["proxy_url"] == "http://me:hidden@proxy:3128"


def test_options_of_stores_are_told_from_those_of_tables() -> None:
    of_store = {"fs.s3a.endpoint": "x", "hoodie.aws.access.key": "k", "hoodie.mainstem.storage.width": "3"}
    others = {"hoodie.mainstem.fsync": "false", "hoodie.table.name": "t"}
    assert split({**of_store, **others}) == (of_store, others)
