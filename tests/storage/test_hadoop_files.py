"""Goal: options in Hadoop's files count after all that is given, are read by every process for itself, and
cannot harm it.

Method: files in a temporary folder, stores that are made with them, locations that are pickled.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mainstem.errors import Invalid
from mainstem.storage.backends import location_of
from mainstem.storage.hadoop_files import hadoop_options, parse_properties
from mainstem.storage.store_options import open_store

AZURE = "abfss://box@account.dfs.core.windows.net/t"


def put(folder: Path, name: str = "core-site.xml", **properties: str) -> None:
    """Write a file; of names, two underscores stand for a dot."""
    of = "".join(
        f"<property><name>{name.replace('__', '.')}</name><value>{text}</value><final>true</final></property>"
        for name, text in properties.items()
    )
    text = f'<?xml version="1.0"?>\n<?xml-stylesheet href="x"?>\n<configuration>\n{of}</configuration>'
    (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return tmp_path


def who(**options: str) -> tuple[str, str, str | None]:
    """Key, secret and token of the store of these options."""
    store = open_store(location_of("s3a://bucket/t", options=_named(options)))
    found = store.credential_provider()
    return found["access_key_id"], found["secret_access_key"], found["token"]


def _named(options: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in options.items()}


@pytest.mark.supports("Stores", "settings in core-site.xml and hdfs-site.xml")
def test_what_they_say_counts_where_nothing_else_is_said(folder: Path) -> None:
    put(folder, fs__s3a__endpoint="http://all", fs__s3a__access__key="k", fs__s3a__secret__key="s",
        fs__defaultFS="hdfs://n", fs__s3a__connection__maximum="500")  # fmt: skip
    put(folder, "hdfs-site.xml", fs__s3a__bucket__bucket__endpoint="http://mine")
    assert open_store(location_of("s3a://bucket/t")).config["endpoint"] == "http://mine"
    assert open_store(location_of("s3://other/t")).config["endpoint"] == "http://all"
    given = location_of("s3://bucket/t", options={"hoodie.mainstem.storage.endpoint": "http://given"})
    assert open_store(given).config["endpoint"] == "http://given"
    assert who() == ("k", "s", None)


def test_no_key_is_mixed_with_anothers_secret_or_token(folder: Path) -> None:
    put(folder, fs__s3a__access__key="k", fs__s3a__secret__key="s", fs__s3a__session__token="t")
    assert who() == ("k", "s", "t")
    assert who(hoodie__aws__access__key="K", hoodie__aws__secret__key="S") == ("K", "S", None)
    with pytest.raises(Invalid, match=r"fs\.s3a\.secret\.key is missing"):
        who(fs__s3a__access__key="K")


def test_other_stores_have_their_names_there(folder: Path) -> None:
    put(folder, fs__azure__account__key__account__dfs__core__windows__net="a2V5",
        fs__gs__storage__root__url="http://g")  # fmt: skip
    assert open_store(location_of(AZURE)).config["account_key"] == "a2V5"
    assert open_store(location_of("gs://bucket/t")).config["base_url"] == "http://g"


def test_references_are_filled_in_and_secrets_stay_where_they_are(folder: Path, monkeypatch) -> None:
    put(folder, fs__s3a__access__key="k", fs__s3a__secret__key="${env.TEST_HIDDEN}", site="north",
        fs__s3a__endpoint="http://${site}.example")  # fmt: skip
    with pytest.raises(Invalid, match="no TEST_HIDDEN"):
        who()
    monkeypatch.setenv("TEST_HIDDEN", "hidden")
    assert who() == ("k", "hidden", None)
    assert hadoop_options()["fs.s3a.endpoint"] == "http://north.example"
    location = location_of("s3://bucket/t")
    assert b"http" not in pickle.dumps(location) and b"hidden" not in pickle.dumps(location)
    put(folder, fs__s3a__endpoint="${nothing}")
    with pytest.warns(UserWarning, match=r"fs\.s3a\.endpoint in Hadoop's files refers"):
        hadoop_options()


def test_a_variable_may_be_named_as_hadoop_does_everywhere(monkeypatch) -> None:
    monkeypatch.setenv("TEST_HIDDEN", "hidden")
    location = location_of(
        "s3://b/t", options={"fs.s3a.access.key": "k", "fs.s3a.secret.key": "${env.TEST_HIDDEN}"}
    )
    assert location.secrets == (("fs.s3a.secret.key", "TEST_HIDDEN"),)


def test_changed_files_are_read_again_and_missing_ones_are_none(folder: Path) -> None:
    assert hadoop_options() == {}
    put(folder, fs__s3a__endpoint="one")
    assert hadoop_options() == {"fs.s3a.endpoint": "one"}
    put(folder, fs__s3a__endpoint="another")
    assert hadoop_options() == {"fs.s3a.endpoint": "another"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<!DOCTYPE c [<!ENTITY a "aaaa">]><configuration/>', "document type or entities"),
        ('<!DOCTYPE c SYSTEM "file:///etc/passwd"><configuration/>', "document type or entities"),
        ("<configuration><property>", "no file of Hadoop's options"),
        ("<configuration>&undefined;</configuration>", "no file of Hadoop's options"),
        ("not xml", "no file of Hadoop's options"),
        ("", "no file of Hadoop's options"),
    ],
)
def test_what_is_no_plain_file_of_options_is_refused(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        parse_properties(text.encode(), "core-site.xml")


def test_long_files_are_refused(folder: Path) -> None:
    (folder / "core-site.xml").write_bytes(b" " * ((4 << 20) + 1))
    with pytest.raises(Invalid, match="more than 4194304 bytes"):
        hadoop_options()


def test_includes_are_said_not_to_be_read() -> None:
    text = b'<configuration xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="x"/></configuration>'
    with pytest.warns(UserWarning, match="includes another file"):
        assert parse_properties(text, "core-site.xml") == {}
