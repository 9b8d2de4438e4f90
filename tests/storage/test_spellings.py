"""Goal: a table is one table whatever scheme it is opened by; what Java reads is spelt as we are told.

Method: pairs of URLs; plans of Java's golden tables whose paths are spelt anew; the implicit lock's node.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid
from mainstem.formats.avro_container import decode_container, encode_container
from mainstem.storage import paths
from mainstem.storage.spellings import as_url, same_place
from mainstem.timeline.clean_records import CleanPlan, decode_clean_plan, encode_clean_plan
from mainstem.timeline.commit_metadata import schema_text
from mainstem.timeline.plans import encode_rollback_plan
from mainstem.truetime.locks.zookeeper_options import base_as_java_has_it, hash_of_base
from tests.golden_tables.tables import unpack
from tests.services.city_table import make

NAME = "clean_mor"
JAVAS = f"/data/hudi/tables/{NAME}"  # where Java wrote it


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3://b/t", "s3a://b/t/", True),
        ("s3n://b/t/x", "s3://b//t/x", True),
        ("s3://b/t", "s3://c/t", False),
        ("s3://b/t", "gs://b/t", False),
        ("s3://b/t", "s3://b/t2", False),
        ("abfss://box@acc.dfs.core.windows.net/t", "wasbs://box@acc.blob.core.windows.net/t", True),
        ("abfs://box@acc.dfs.core.windows.net/t", "abfs://box@another.dfs.core.windows.net/t", False),
        ("az://box/t", "abfss://box@acc.dfs.core.windows.net/t", True),
        ("hdfs://nameservice/t", "hdfs://node:8020/t", True),
        ("hdfs:///t", "hdfs://node:8020/t", True),
        ("file:/t", "/t", True),
        ("file:///t", "/t/", True),
        ("/t", "s3://b/t", False),
        ("s3:b/t", "s3://b/t", False),
    ],
)
def test_which_spellings_name_one_place(one: str, other: str, same: bool) -> None:
    assert same_place(one, other) is same_place(other, one) is same


def spelt(folder: Path, base: str) -> tuple[bytes, CleanPlan]:
    """Java's last clean plan in a golden table, with the paths of a table at ``base``, and what it means."""
    names = sorted(path.name for path in (folder / paths.TIMELINE).glob("*.clean.requested"))
    path = paths.timeline_file(names[-1])
    data = (folder / path).read_bytes()
    plan = decode_clean_plan(data, path=path, base=JAVAS)
    assert plan is not None
    record, _ = decode_container(data, path=path)
    for files in record["filePathsToBeDeletedPerPartition"].values():
        for file in files:
            file["filePath"] = file["filePath"].replace(f"file:{JAVAS}", base)
            assert file["filePath"].startswith(base)
    return encode_container(schema_text("HoodieCleanerPlan"), record, {}), plan


@pytest.mark.parametrize("java", ["s3a://bucket/lake/t", "s3://bucket/lake/t", "s3n://bucket/lake/t"])
@pytest.mark.parametrize("ours", ["s3a://bucket/lake/t", "s3://bucket/lake/t"])
def test_javas_clean_plan_is_one_of_this_table_by_every_scheme(java: str, ours: str, tmp_path: Path) -> None:
    data, plan = spelt(unpack(NAME, tmp_path), java)
    assert decode_clean_plan(data, path="p", base=ours) == plan
    for other in ("s3://another/lake/t", "s3://bucket/lake/u", "gs://bucket/lake/t", "/lake/t"):
        with pytest.raises(CorruptTable, match="is not in partition"):
            decode_clean_plan(data, path="p", base=other)


@pytest.mark.parametrize("base", ["s3a://bucket/t", "abfss://box@acc.dfs.core.windows.net/t", "/data/t"])
def test_our_plans_have_the_tables_own_scheme_and_are_read_by_another(base: str, tmp_path: Path) -> None:
    _, plan = spelt(unpack(NAME, tmp_path), "s3://b/t")
    data = encode_clean_plan(plan, base)
    record, _ = decode_container(data, path="p")
    ((partition, first), *_) = record["filePathsToBeDeletedPerPartition"].items()
    assert first[0]["filePath"].startswith(f"{as_url(base)}/{partition}/")
    for other in (base, "s3://moved/since"):  # our own plan goes with its table
        assert decode_clean_plan(data, path="p", base=other) == plan
    rollback = encode_rollback_plan("20260101000000000", "deltacommit", [("p", "id", "name")], base)
    request = decode_container(rollback, path="p")[0]["RollbackRequests"][0]
    assert request["filesToBeDeleted"] == [f"{as_url(base)}/p/name"]


def test_the_spelling_of_java_jobs_is_written_where_it_is_given(tmp_path: Path) -> None:
    path = str(make(tmp_path).path)
    for spelling in (path, f"file:{path}", f"file://{path}"):
        table = mainstem.open_table(path, properties={"hoodie.base.path": spelling})
        assert table.writer_context().written_base == spelling
    table = mainstem.open_table(path, properties={"hoodie.base.path": "/elsewhere"})
    with pytest.raises(Invalid, match="is another place than"):
        _ = table.writer_context().written_base


def test_an_implicit_lock_is_the_same_for_all_spellings_of_a_bucket() -> None:
    one, *others = (hash_of_base(f"{scheme}://bucket/t") for scheme in ("s3", "s3a", "s3n"))
    assert others == [one, one]
    azure = ["abfss://box@acc.dfs.core.windows.net/t", "abfs://box@acc.dfs.core.windows.net/t"]
    assert base_as_java_has_it({"hoodie.base.path": azure[0]}, azure[1]) == azure[0]
    with pytest.raises(Invalid, match="expected the table's path"):
        base_as_java_has_it({"hoodie.base.path": "s3://bucket/u"}, "s3a://bucket/t")
