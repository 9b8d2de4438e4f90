"""Goal: under consistent hashing a key goes to the file group that the newest ring of its partition names.

Method: hashes and rings that Java made; tables written in every way, whose rows must lie where the rings say;
writers that meet a new partition at once; rings of clusterings that are completed, pending, rolled back or
archived; file groups that a clustering replaces, or is about to, under an open transaction.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, RolledBack, Unsupported
from mainstem.formats.avro_container import OUR_MARK
from mainstem.layout.hash_rings import HASH_MAX, first_ring, parsed_ring, ring_hashes, xxhash32
from mainstem.writers import placed_rows, rollback
from mainstem.writers.staged_rows import Stager
from mainstem.writers.write_task import write_task
from tests.golden_tables.tables import unpack
from tests.storage.steps import storage_at

ENGINE, COUNT = "hoodie.index.bucket.engine", "hoodie.bucket.index.num.buckets"
GIVEN = {ENGINE: "CONSISTENT_HASHING", "hoodie.index.type": "BUCKET", COUNT: 2}
QUIET = {"hoodie.mainstem.fsync": False}
RINGS = ".hoodie/.bucket_index/consistent_hashing_metadata"
SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
CITIES = ("paris", "rome", "oslo")


def rows(numbers: range, ts: int) -> pa.Table:
    found = [(f"k{n}", CITIES[n % 3], ts, f"{ts}/{n}") for n in numbers]
    return pa.table([pa.array(column) for column in zip(*found, strict=True)], schema=SCHEMA)


def make(path: Path, **properties: object) -> mainstem.Table:
    return mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", partition_by="city", buckets=3,
        properties={ENGINE: "CONSISTENT_HASHING", **QUIET, **properties},
    )  # fmt: skip


def golden(name: str, folder: Path) -> Path:
    unpack(name, folder)
    return next(path.parent.parent for path in folder.rglob("hoodie.properties"))


def check_places(base: Path, keys: set[str]) -> None:
    """Every key is there once, in the file group of its node in the partition's newest ring."""
    table = mainstem.open_table(base)
    found = table.scan().to_arrow()
    assert sorted(found["_hoodie_record_key"].to_pylist()) == sorted(keys)
    for partition in pc.unique(found["_hoodie_partition_path"]).to_pylist():
        some = found.filter(pc.equal(found["_hoodie_partition_path"], partition))
        newest = max((base / RINGS / partition).glob("*.hashing_meta"))
        ring = parsed_ring(newest.read_bytes(), partition)
        texts = some["_hoodie_record_key"].combine_chunks()
        nodes = ring.find(ring_hashes(texts, hash_fields=["id"], parts=None))
        for node, name in zip(nodes.tolist(), some["_hoodie_file_name"].to_pylist(), strict=True):
            assert name.startswith(ring.file_id(node))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0x02CC5D05), ("a", 0x550D7456), ("abc", 0x32D153FF),
     ("Nobody inspects the spammish repetition", 0xE2293B2F)],
)  # fmt: skip
def test_hashes_are_xxh32(text: str, expected: int) -> None:
    column = pa.array(["other", text, "é", text])
    assert xxhash32(column)[[1, 3]].tolist() == [expected] * 2
    assert xxhash32(column.slice(1, 1)).tolist() == [expected]


def test_parts_of_composite_keys_are_joined_as_java_joins_them() -> None:
    parts = [("a", pa.array(["1", None, "", "x,y:z"])), ("b", pa.array(["2", "3", "4", "5"]))]
    texts = ["a:1,b:2", "a:__null__,b:3", "a:__empty__,b:4", "a:x,y:z,b:5"]
    for fields, joined in ((["a", "b"], ["12", "null3", "4", "x5"]), (["b"], ["2", "3", "4", "5"])):
        hashes = ring_hashes(pa.array(texts), hash_fields=fields, parts=parts)
        assert hashes.tolist() == (xxhash32(pa.array(joined)) & HASH_MAX).tolist()
        assert ring_hashes(pa.array(texts), hash_fields=fields, parts=None).tolist() == hashes.tolist()


def test_first_rings_are_those_that_java_makes(tmp_path: Path) -> None:
    base = golden("bucket_consistent", tmp_path)
    for partition in ("paris", "rome"):
        stored = (base / RINGS / partition / "00000000000000.hashing_meta").read_bytes()
        made = first_ring(partition, 2)
        assert parsed_ring(stored, partition) == made == parsed_ring(made.encoded(), partition)
        assert json.loads(made.encoded()) == json.loads(stored)
    for count in (1, 3, 7, 256):
        ring = first_ring("x/y=é", count)
        assert len(ring.nodes) == count and ring.values[-1] == HASH_MAX
        ends = np.array([0, ring.values[0], HASH_MAX], np.uint32)
        assert ring.find(ends).tolist() == [0, 0, count - 1]


@pytest.mark.supports("Writing", "Consistent hashing")
def test_every_kind_of_write_goes_where_the_rings_say(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    table.upsert(rows(range(60), 1))
    table.bulk_insert(rows(range(60, 90), 1))
    table.upsert(rows(range(30, 70), 2))
    table.compact()
    with table.begin() as one, mainstem.open_table(table.path).begin() as other:
        one.write(rows(range(80, 100), 3))
        other.write(rows(range(80, 110), 4))
        other.commit()
        one.commit()
    table.delete(rows(range(6), 0).select(["id", "city"]))
    check_places(tmp_path / "t", {f"k{n}" for n in range(6, 110)})
    table.clean()
    table.insert_overwrite(rows(range(0, 30, 3), 5))  # paris
    left = {f"k{n}" for n in range(6, 110) if n % 3} | {f"k{n}" for n in range(0, 30, 3)}
    check_places(tmp_path / "t", left)
    table.insert_overwrite_table(rows(range(5), 6))
    check_places(tmp_path / "t", {f"k{n}" for n in range(5)})


@pytest.mark.parametrize("name", ["bucket_consistent.before", "bucket_consistent"])
def test_tables_of_java_are_written_before_and_after_they_were_split(name: str, tmp_path: Path) -> None:
    base = golden(name, tmp_path)
    table = mainstem.open_table(base, {**GIVEN, **QUIET})
    before = table.scan(columns=table.schema.names).to_arrow()
    keys = {str(key) for key in before["id"].to_pylist()}
    table.upsert(before.slice(3))
    table.compact()
    table.upsert(before)
    check_places(base, keys)
    table.delete(before.slice(0, 2).select(["id", "city"]))
    check_places(base, keys - {str(key) for key in before["id"].to_pylist()[:2]})


def test_writers_that_meet_a_new_partition_at_once_go_by_one_ring(tmp_path: Path) -> None:
    make(tmp_path / "t")
    # Others may be told another number of buckets: who comes first decides.
    other = first_ring("rome", 5)
    (tmp_path / "t" / RINGS / "rome").mkdir(parents=True)
    (tmp_path / "t" / RINGS / "rome/00000000000000.hashing_meta").write_bytes(other.encoded())

    def write(number: int) -> None:
        mainstem.open_table(tmp_path / "t", QUIET).upsert(rows(range(number, 60 + number), number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    check_places(tmp_path / "t", {f"k{n}" for n in range(63)})
    made = {city: len(list((tmp_path / "t" / RINGS / city).iterdir())) for city in CITIES}
    assert made == dict.fromkeys(CITIES, 1)


def test_a_ring_counts_once_its_clustering_is_completed(tmp_path: Path) -> None:
    base = golden("bucket_consistent", tmp_path)
    rings, timeline = base / RINGS / "paris", base / ".hoodie/timeline"
    (replaced,) = timeline.glob("*.replacecommit")
    instant = replaced.name.split("_")[0]
    (rings / f"{instant}.commit").unlink()  # of a process that died just before it
    later = json.loads((rings / f"{instant}.hashing_meta").read_text()) | {"instant": "20270101000000000"}
    (rings / "20270101000000000.hashing_meta").write_text(json.dumps(later | {"nodes": []}))  # rolled back
    table = mainstem.open_table(base, {**GIVEN, **QUIET})
    rows_of = table.scan(columns=table.schema.names).to_arrow()
    table.upsert(rows_of)
    (rings / "20270101000000000.hashing_meta").unlink()
    check_places(base, {str(key) for key in rows_of["id"].to_pylist()})


def test_rows_wait_for_no_clustering_but_a_pending_one_of_java_and_follow_its_splits(tmp_path: Path) -> None:
    base = golden("bucket_consistent.before", tmp_path / "before")
    done = golden("bucket_consistent", tmp_path / "after")
    table = mainstem.open_table(base, {**GIVEN, **QUIET})
    some = table.scan(columns=table.schema.names).to_arrow()
    timeline, theirs = base / ".hoodie/timeline", done / ".hoodie/timeline"
    (replaced,) = theirs.glob("*.replacecommit")
    instant = replaced.name.split("_")[0]
    for state in ("requested", "inflight"):
        shutil.copy(theirs / f"{instant}.clustering.{state}", timeline)
    with pytest.raises(RolledBack, match=f"pending clustering {instant} replaces them"):
        table.upsert(some)
    with table.begin() as late:
        late.write(some)
        shutil.copytree(done / RINGS, base / RINGS, dirs_exist_ok=True)
        for city in ("paris", "rome"):
            for file in (done / city).glob(f"*_{instant}.parquet"):
                shutil.copy(file, base / city)
        completed = f"{instant}_{late.instant[:-3]}{int(late.instant[-3:]) + 1:03d}.replacecommit"
        shutil.copy(replaced, timeline / completed)
        assert late.commit().status == "committed"
    check_places(base, {str(key) for key in some["id"].to_pylist()})
    table.upsert(some)
    check_places(base, {str(key) for key in some["id"].to_pylist()})


SPLITS = {
    "hoodie.bucket.index.max.num.buckets": 8, "hoodie.bucket.index.min.num.buckets": 1,
    "hoodie.parquet.max.file.size": 1,
}  # fmt: skip
MERGES = {"hoodie.parquet.max.file.size": 10**9}


@pytest.mark.supports("Services", "Consistent hashing: file groups are split and merged beside writers")
def test_file_groups_are_split_and_merged_and_writers_go_on(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(120), 1))
    keys = {f"k{n}" for n in range(120)}
    with table.begin() as late:
        late.write(rows(range(40, 80), 2))
        late.write(rows(range(60, 90), 3))
        (split,) = table.services.cluster()
        assert (split.replaced, len(split.files), split.rows) == (9, 18, 120)
        assert late.commit().rows == 70  # in the new file groups
    check_places(tmp_path / "t", keys)
    with table.begin() as first:  # it wrote before the plan, and commits before it is executed
        first.write(rows(range(10), 4))
        planned = table.services.schedule_clustering()
        first.commit()
    assert planned is not None and table.services.run_clustering() == []
    (again,) = table.services.cluster()
    assert len(again.files) == 12  # up to eight of each partition
    check_places(tmp_path / "t", keys)
    merging = mainstem.open_table(table.path, {**QUIET, **MERGES})
    (merged,) = merging.services.cluster()
    assert (merged.replaced, len(merged.files)) == (24, 3)
    merging.upsert(rows(range(130), 9))
    check_places(tmp_path / "t", {f"k{n}" for n in range(130)})
    assert set(merging.scan().to_arrow()["ts"].to_pylist()) == {9}
    assert merging.services.cluster() == []


@pytest.mark.supports("Writing", "rows staged by workers under consistent hashing")
def test_staged_rows_go_to_the_file_groups_that_are_there_when_they_are_committed(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(60), 1))
    spec = table.staging_spec(SCHEMA)
    stager = Stager(storage_at(spec.base), spec, "flink", random.Random(1))
    lines = [stager.stage(rows(range(20, 50), 2)), stager.stage(rows(range(40, 70), 3))]
    lines.append(stager.stage(rows(range(3), 4), pa.array([True] * 3)))
    (split,) = table.services.cluster()
    assert split.replaced == 9
    with table.begin() as later:
        assert later.add_staged(lines[:1]) == 30
        later.commit()
    with table.begin() as latest:
        assert latest.add_staged(lines[1:]) == 33
        merging = mainstem.open_table(table.path, {**QUIET, **MERGES})
        (merged,) = merging.services.cluster()  # and others again, since rows were written to these
        assert merged.replaced == 18
        latest.commit()
    check_places(tmp_path / "t", {f"k{n}" for n in range(3, 70)})
    found = mainstem.open_table(table.path).scan().to_arrow()
    assert sorted(found["ts"].to_pylist()) == [1] * 17 + [2] * 20 + [3] * 30


@pytest.mark.parametrize("by", ["tasks", "a large transaction"])
def test_what_was_written_to_file_groups_that_were_split_is_routed_anew(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(60), 1))
    monkeypatch.setattr(placed_rows, "_KEPT_BYTES_MAX", 0 if by == "a large transaction" else 1 << 20)
    for ts, properties in ((2, SPLITS), (3, MERGES)):
        with table.begin() as txn:
            if by == "tasks":
                for task, some in enumerate((range(20, 50), range(50, 70))):
                    token = {"task_partition": task, "stage": 1, "attempt": 0}
                    batches, storage = rows(some, ts).to_batches(), storage_at(table.path)
                    txn.add_task_result(write_task(txn.task_spec(), batches, **token, storage=storage))
            else:
                txn.write(rows(range(20, 70), ts))
            other = mainstem.open_table(table.path, {**QUIET, **properties})
            (changed,) = other.services.cluster()
            assert changed.replaced >= 9
            outcome = txn.commit()
        assert outcome.rows == 50 and outcome.instant != txn.instant
        check_places(tmp_path / "t", {f"k{n}" for n in range(70)})
        found = mainstem.open_table(table.path).scan().to_arrow()
        assert sorted(found["ts"].to_pylist()) == [1] * 20 + [ts] * 50
    assert not [i for i in table.timeline() if i.completion is None]


@pytest.mark.parametrize("theirs", ["planned", "completed"])
def test_writers_that_take_one_plan_back_at_once_both_commit(
    theirs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(60), 1))
    other = mainstem.open_table(table.path, QUIET)
    with table.begin() as one, other.begin() as two:
        one.write(rows(range(5), 2))
        two.write(rows(range(5, 10), 2))
        assert table.services.schedule_clustering() is not None
        ctx = table.writer_context()
        publish = ctx.publisher.publish
        end = ".rollback.requested" if theirs == "planned" else ".rollback"

        def overtaken(target, **more):  # type: ignore[no-untyped-def]
            if target("0" * 17).endswith(end):
                monkeypatch.undo()
                two.commit()
            return publish(target, **more)

        monkeypatch.setattr(ctx.publisher, "publish", overtaken)
        one.commit()
        assert ctx.publisher.publish is not overtaken
    found = mainstem.open_table(table.path).scan().to_arrow()
    assert sorted(found["ts"].to_pylist()) == [1] * 50 + [2] * 10
    check_places(tmp_path / "t", {f"k{n}" for n in range(60)})


def test_a_plan_that_another_writer_is_taking_back_ends_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(60), 1))
    with table.begin() as txn:
        txn.write(rows(range(10), 2))
        assert table.services.schedule_clustering() is not None

        def planned_by_another(*given, **more):  # type: ignore[no-untyped-def]
            """It has planned the rollback, and executes it later."""
            monkeypatch.undo()
            with monkeypatch.context() as patched:
                patched.setattr(rollback, "execute_rollback", lambda *_, **__: None)
                return roll_back(*given, **more)

        roll_back = rollback.roll_back
        monkeypatch.setattr(rollback, "roll_back", planned_by_another)
        txn.commit()
    assert not [i for i in table.timeline() if i.completion is None]
    check_places(tmp_path / "t", {f"k{n}" for n in range(60)})


def test_indexes_of_keys_are_right_through_splits(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SPLITS, **{"hoodie.metadata.enable": True})
    table.indexes.create("record_index")
    table.indexes.create("secondary_index", ["v"], name="by_v")
    table.upsert(rows(range(60), 1))
    lima = rows(range(10), 1)  # keys of other partitions, too
    table.upsert(lima.set_column(1, "city", pa.array(["lima"] * len(lima))))

    def check() -> None:
        opened = mainstem.open_table(table.path)
        whole = opened.scan().to_arrow()
        for column, values in (("id", ("k1", "k7", "k33")), ("v", ("1/2", "1/9", "2/25"))):
            for value in values:
                found = opened.scan(filter=pc.field(column) == value).to_arrow()
                assert found.num_rows == whole.filter(pc.equal(whole[column], value)).num_rows
        assert opened.indexes.validate().ok

    check()
    with table.begin() as late:
        late.write(rows(range(20, 70), 2))
        table.services.cluster()
        late.commit()
    check()
    table.delete(rows(range(5), 0).select(["id", "city"]))
    table.services.cluster()
    check()
    table.upsert(rows(range(30), 3))
    check()


@pytest.mark.disk("files of the table are changed by hand")
def test_an_index_of_keys_that_java_did_not_keep_up_is_not_asked_where_only_the_rings_tell(
    tmp_path: Path,
) -> None:
    table = make(tmp_path / "t", **{"hoodie.metadata.enable": True})
    table.indexes.create("record_index")
    table.upsert(rows(range(9), 1))
    stored = tmp_path / "t/.hoodie/hoodie.properties"
    named = r"^hoodie\.(index|bucket|table\.checksum)\b.*\n"  # Java stores none of the options
    stored.write_text(re.sub(named, "", stored.read_text(), flags=re.MULTILINE))

    def asked() -> bool:
        opened = mainstem.open_table(table.path)
        assert not opened.config.uses_rings
        text = str(opened.scan(filter=pc.field("id") == "k1").explain())
        return "is not asked" not in text and "record index" in text

    assert asked()
    (commit,) = (tmp_path / "t/.hoodie/timeline").glob("*.deltacommit")
    commit.write_bytes(commit.read_bytes().replace(OUR_MARK.encode(), b"j" * len(OUR_MARK)))
    assert not asked()


def test_overwrites_and_bulk_inserts_beside_a_split_lose_nothing(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SPLITS)
    table.upsert(rows(range(60), 1))
    with table.begin("insert_overwrite") as overwrite:
        overwrite.write(rows(range(0, 30, 3), 2))
        table.services.cluster()
        overwrite.commit()
    left = {f"k{n}" for n in range(60) if n % 3} | {f"k{n}" for n in range(0, 30, 3)}
    check_places(tmp_path / "t", left)
    with table.begin("bulk_insert") as bulk:
        bulk.write(rows(range(100, 130), 2))
        assert table.services.schedule_clustering() is not None
        bulk.commit()
    check_places(tmp_path / "t", left | {f"k{n}" for n in range(100, 130)})


def test_a_restore_takes_splits_back(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **SPLITS)
    saved = table.upsert(rows(range(60), 1)).instant
    table.services.savepoint(saved)
    table.services.cluster()
    table.upsert(rows(range(90), 2))
    table.services.restore(saved)
    check_places(tmp_path / "t", {f"k{n}" for n in range(60)})
    mainstem.open_table(table.path, QUIET).upsert(rows(range(70), 3))
    check_places(tmp_path / "t", {f"k{n}" for n in range(70)})


def test_a_ring_that_nobody_made_is_not_believed(tmp_path: Path) -> None:
    base = golden("bucket_consistent", tmp_path)
    later = base / RINGS / "paris/20270101000000000.hashing_meta"
    later.write_text("{}")
    later.with_suffix(".commit").touch()
    with pytest.raises(CorruptTable, match="neither timeline nor archive know its clustering"):
        mainstem.open_table(base, {**GIVEN, **QUIET}).begin()


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="exclude each other"):
        make(tmp_path / "t", **{"hoodie.bucket.index.partition.expressions": "a,1"})
    table = make(tmp_path / "t")
    table.upsert(rows(range(30), 1))
    with pytest.raises(Unsupported, match="bulk_insert cannot be staged"):
        table.staging_spec(SCHEMA, "bulk_insert")
    ring = tmp_path / "t" / RINGS / "rome/00000000000000.hashing_meta"
    for damage in ("", "{}", ring.read_text().replace('"NORMAL"', '"DELETE"'), "[" * 100_000):
        ring.write_text(damage)
        with pytest.raises(CorruptTable, match="does not say where keys of the partition lie"):
            table.upsert(rows(range(1, 30), 2))
    simple = golden("bucket_hash_string", tmp_path / "simple")
    with pytest.raises(Invalid, match="has rows and no ring"):
        mainstem.open_table(simple, GIVEN).begin()
    other = golden("bucket_consistent.before", tmp_path / "other")
    with pytest.raises(Unsupported, match="CONSISTENT_HASHING"):
        mainstem.open_table(other, {COUNT: 2}).begin()
