"""Goal: damage, cleaners and changed tables never make a search wrong or fail: it finds the same otherwise.

Method: one fault per test, done to the files of an index or between two searches of one open table.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import CorruptTable, TableReplaced, Unavailable
from mainstem.storage import paths
from mainstem.storage.local_cache import LocalCache
from mainstem.vectors.index import versions
from mainstem.vectors.index.version_manifest import StoredFile, encode_manifest
from mainstem.vectors.index.versions import KEYS, newest_version, open_keys, read_indexes
from mainstem.vectors.search import searching, serving
from tests.storage.steps import storage_at
from tests.vectors.test_vector_search_exact import OPTIONS, SCHEMA, found, rows

QUERY = [0.3, -0.2, 0.9]


def vectors(count: int, seed: int = 7) -> dict[str, list | None]:
    chance = np.random.default_rng(seed)
    return {f"{n:03d}-{'xy'[n % 2]}": chance.normal(size=3).tolist() for n in range(count)}


@pytest.fixture
def table(tmp_path):
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2,
        properties=OPTIONS,
    )  # fmt: skip
    made.upsert(rows(vectors(80)))
    made.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2", "clusters": "2"})
    return made


def near(table, **options):
    return found(table.search("v", QUERY, 5, **options))


def told(table, **options):
    return table.explain_search("v", QUERY, 5, **options)


def exactly(table, **options):
    return near(table, exact=True, metric="l2", **options)


def index_files(table) -> list[Path]:
    return sorted(path for path in Path(table.path, paths.VECTOR_FILES).rglob("*") if path.is_file())


def test_explain_says_what_was_searched_and_how(table):
    assert told(table).to_dict() | {"slices": None, "clusters": 2} == {
        "column": "v", "metric": "l2", "k": 5, "queries": 1, "exact": False, "why": "", "index": "v",
        "version": 1, "clusters": 2, "clusters_total": 2, "rows": 80, "masked": 0, "fresh": 0, "compared": 0,
        "slices": None, "slices_cached": 0, "passed": (),
    }  # fmt: skip
    table.upsert(rows({"000-x": [9, 9, 9], "999-y": [8, 8, 8], "001-y": None}, ts=2))
    after = told(table)
    assert (after.masked, after.fresh, after.slices_cached) == (2, 2, 0)
    assert told(table).slices_cached == after.slices["log files added"] > 0
    assert str(after).splitlines() == [
        "1 query for 5 rows each, v by l2",
        f"  index v, version 1: {after.clusters} of 2 clusters, 80 vectors, 2 of them masked",
        f"  file slices: {after.slices['unchanged']} unchanged, {after.slices['log files added']} log files"
        " added; 0 known from earlier searches",
        "  fresh: 2 vectors compared one by one",
    ]
    assert told(table, filter=pc.field("ts") == 2).fresh == 2
    assert told(table, clusters=1).clusters == 1
    for options, why in [
        ({"metric": "cosine"}, "the index is built for l2"),
        ({"exact": True}, "exact=True"),
    ]:
        exact = told(table, **options)
        assert (exact.exact, exact.why, exact.compared) == (True, why, 80)


def test_only_the_nearest_clusters_are_searched_on_demand(table):
    every = found(table.search("v", QUERY, 80, exact=True, metric="l2"))
    few = near(table, clusters=1)
    assert 0 < len(few) <= 5  # where clusters lie, and how large they are, is drawn at the build
    assert set(few) <= set(every) and few == sorted(few, key=every.index)
    assert near(table, clusters=2) == exactly(table)


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        ("graph", "flipped"), ("keys", "cut"), ("vectors", "flipped"), ("manifest.json", "cut"),
        ("keys", "gone"),
    ],
)
def test_a_damaged_file_is_a_warning_that_names_it(table, ending, damage):
    path = next(p for p in index_files(table) if ending in p.name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data if damage == "flipped" else data[: len(data) // 2])
    if damage == "gone":
        path.unlink()
    fresh = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match=path.name):
        assert near(fresh) == exactly(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said once
        explained = told(fresh)
        assert explained.exact
        assert path.name in explained.why
        assert table.refresh_index("v").built
        assert not told(fresh).exact
    assert near(fresh) == exactly(table)


def written(path, data: bytes, *, minutes_ago: int) -> None:
    """Write a file, with a time of its own: stores tell times in whole seconds."""
    path.write_bytes(data)
    when = time.time() - 60 * minutes_ago
    os.utime(path, (when, when))


@pytest.mark.supports("Vectors", "search: by the newest version that is whole")
@pytest.mark.parametrize("ending", ["graph", "manifest.json"])
def test_where_the_newest_version_is_damaged_the_one_before_serves(table, ending, monkeypatch):
    table.upsert(rows({"000-x": [9, 9, 9], "999-y": QUERY}, ts=2))
    table.refresh_index("v")
    expected = exactly(table)
    path = next(p for p in index_files(table) if ending in p.name and "version=2" in str(p))
    whole = path.read_bytes()
    written(path, whole[:-1] + b"?", minutes_ago=2)
    # A copy on this machine would be whole, and would serve in its place.
    monkeypatch.setattr(LocalCache, "get", lambda *named: None)
    fresh = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match=rf"(?s)version 1 is used instead.*{path.name}"):
        explained = told(fresh)
    assert (explained.version, explained.exact, explained.fresh) == (1, False, 2)
    assert path.name in explained.passed[0]
    assert path.name in str(explained)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with monkeypatch.context() as patched:  # what is damaged is remembered, and not read again
            for name in ("read_version", "Opened"):
                patched.setattr(serving, name, None)
            assert near(fresh) == expected
            assert told(fresh).passed == explained.passed
        written(path, whole, minutes_ago=1)
        assert (told(fresh).version, told(fresh).passed) == (2, ())
        assert near(fresh) == expected


def test_where_no_version_is_whole_nothing_is_read_of_them_again(table, monkeypatch):
    table.reindex("v")
    for path in index_files(table):
        if path.name.endswith("vectors"):
            path.unlink()
    fresh = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match="all vectors are compared instead"):
        assert near(fresh, metric="l2") == exactly(table)
    monkeypatch.setattr(serving, "read_version", None)
    assert told(fresh).exact
    assert "is missing" in told(fresh).why


@pytest.mark.supports("Vectors", "search: while files of the index are cut or overwritten in place")
@pytest.mark.parametrize("memory", [1 << 30, 0])
@pytest.mark.parametrize("engine", ["flat", "hnsw"])
def test_an_open_table_searches_on_where_files_are_overwritten_and_cut_in_place(
    tmp_path, engine, memory, monkeypatch
):
    monkeypatch.setattr(versions, "VECTOR_MEMORY_BYTES_MAX", memory)
    schema = pa.schema([("id", pa.int64()), ("v", pa.list_(pa.float32(), 64))])
    made = mainstem.create_table(tmp_path / "t", schema, record_key="id", properties=OPTIONS)
    matrix = np.random.default_rng(5).normal(size=(2000, 64)).astype(np.float32)
    made.upsert({"id": range(2000), "v": matrix})
    made.create_index("vector", ["v"], options={"engine": engine, "clusters": "1"})
    wanted = {"k": 7, "columns": ["id"], "filter": pc.field("id") > 9}
    before = made.search("v", matrix[:5], **wanted)
    for path in index_files(made):
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.write(bytes(size))
            file.flush()
            assert made.search("v", matrix[:5], **wanted) == before
            file.truncate(100)
        assert made.search("v", matrix[:5], **wanted) == before


def test_a_round_of_services_makes_a_version_anew_whose_file_is_gone(table):
    next(p for p in index_files(table) if p.name.endswith("graph")).unlink()
    table.run_services("vectors")
    assert told(table).version == 2


@pytest.mark.supports("Vectors", "search: survives damage and cleaners")
def test_a_version_that_a_cleaner_removes_is_searched_on_or_another_is(table, monkeypatch):
    expected = exactly(table)
    assert near(table) == expected
    shutil.rmtree(Path(table.path, paths.vector_version("000", 1)))
    assert near(table) == expected
    assert near(mainstem.open_table(table.path, properties=OPTIONS)) == expected  # no version is left

    table.reindex("v")
    look = serving.read_version
    removed = []

    def cleaned_meanwhile(*given):
        version = look(*given)
        if not removed:
            table.reindex("v")
            removed.append(version)
            shutil.rmtree(Path(table.path, paths.vector_version(version.column_id, version.number)))
        return version

    monkeypatch.setattr(serving, "read_version", cleaned_meanwhile)
    other = mainstem.open_table(table.path, properties=OPTIONS)
    assert near(other) == expected
    assert told(other).version == removed[0].number + 1


def test_a_damaged_list_of_indexes_leaves_the_metric_to_the_caller(table):
    expected = exactly(table)
    Path(table.path, paths.VECTOR_PROPERTIES).write_bytes(b"vector.index.columns=v\n")
    other = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match=r"vector-index\.properties"):
        assert near(other, metric="l2") == expected
    with pytest.warns(UserWarning, match="cannot be used"), pytest.raises(CorruptTable, match="no id"):
        near(other)


def test_a_refreshed_and_a_dropped_index_are_noticed_by_open_tables(table):
    other = mainstem.open_table(table.path, properties=OPTIONS)
    assert told(other).version == 1
    table.upsert(rows(vectors(10, seed=9), ts=2))
    table.refresh_index("v")
    assert (told(other).version, told(other).fresh) == (2, 0)
    table.drop_index("v")
    assert told(other).why == "the column has no vector index"
    assert near(other, metric="l2") == exactly(table)


def test_an_index_of_another_metric_under_the_same_id_and_number_is_not_mistaken_for_the_old_one(table):
    other = mainstem.open_table(table.path, properties=OPTIONS)
    assert (told(other).metric, told(other).version) == ("l2", 1)
    shutil.rmtree(table.path)
    anew = mainstem.create_table(
        table.path, SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2,
        properties=OPTIONS,
    )  # fmt: skip
    anew.upsert(rows(vectors(30, seed=8)))
    anew.create_index("vector", ["v"], options={"engine": "flat", "metric": "dot_product"})
    with pytest.raises(TableReplaced, match="open the table again"):
        near(other)
    again = mainstem.open_table(table.path, properties=OPTIONS)
    assert (told(again).metric, told(again).version) == ("dot_product", 1)
    assert near(again) == near(anew) == near(anew, exact=True, metric="dot_product")


def test_a_metadata_folder_that_is_gone_makes_searches_exact(table):
    expected = exactly(table)
    shutil.rmtree(Path(table.path, paths.METADATA))
    fresh = mainstem.open_table(table.path, properties=OPTIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert near(fresh, metric="l2") == expected
        assert told(fresh).exact


def test_numbers_beyond_float32_are_compared_exactly(table):
    far = [1e100, 0, 0]
    assert "too large for float32" in table.explain_search("v", far, 3).why
    assert len(table.search("v", far, 3)) == 3


def test_an_index_on_an_empty_table_serves_what_comes_later(tmp_path):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2,
        properties=OPTIONS,
    )  # fmt: skip
    table.create_index("vector", ["v"], options={"engine": "flat", "metric": "l2"})
    assert near(table) == []
    table.upsert(rows(vectors(20)))
    assert near(table) == exactly(table)
    assert "no vectors yet" in told(table).why
    table.refresh_index("v")
    assert not told(table).exact
    assert near(table) == exactly(table)


def test_more_than_the_table_holds_and_batches_come_whole(table):
    table.delete(rows({"003-y": None}))
    everything = table.search("v", [QUERY, [0, 0, 0]], 1000)
    assert everything.num_rows == 2 * 79
    assert everything == table.search("v", [QUERY, [0, 0, 0]], 1000, exact=True, metric="l2")


def test_threads_of_one_table_search_while_it_is_written(table):
    ended = threading.Event()
    wrong: list[BaseException] = []

    def search() -> None:
        try:
            while not ended.is_set():
                answer = table.search("v", QUERY, 5)
                apart = answer["_hudi_distance"].to_pylist()
                assert len(apart) == 5
                assert apart == sorted(apart)
        except BaseException as error:
            wrong.append(error)
            ended.set()

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(6):
            table.upsert(rows(vectors(15, seed=number), ts=number + 2))
            assert near(table) == exactly(table)
            if number % 2:
                table.compact()
                table.refresh_index("v")
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
    assert not wrong
    assert isinstance(table.search("v", QUERY, 5), pa.Table)


def test_a_data_file_that_a_clean_removes_makes_the_search_begin_again(table, monkeypatch):
    expected = exactly(table)
    read, vanished = searching.result, []

    def removed_meanwhile(*given):
        if len(vanished) < often:
            vanished.append(True)
            raise FileNotFoundError("a file that a clean removed")
        return read(*given)

    monkeypatch.setattr(searching, "result", removed_meanwhile)
    often = 2
    assert near(table) == expected
    often = 1000
    with pytest.raises(Unavailable, match=r"hoodie\.clean\.commits\.retained"):
        near(table)


def keys_rewritten(table, change, compression=None):
    """The keys of the first cluster as ``change`` makes them, in a version whose checksums fit."""
    storage = storage_at(table.path)
    index = read_indexes(storage).called("v")
    version = newest_version(storage, index)
    first = version.clusters[0]
    keys = change(open_keys(storage, version, 0))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, KEYS, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(keys)
    data = sink.getvalue().to_pybytes()
    Path(table.path, version.path(first.keys)).write_bytes(data)
    file = StoredFile(first.keys.name, len(data), zlib.crc32(data))
    clusters = (replace(first, keys=file), *version.clusters[1:])
    manifest = Path(table.path, paths.vector_manifest(version.column_id, version.number))
    manifest.write_bytes(encode_manifest(replace(version, clusters=clusters)))


@pytest.mark.parametrize("column", ["record_key", "slice"])
def test_rows_without_key_or_slice_are_damage_where_all_checksums_fit(table, column):
    def without_last(keys):
        at = keys.schema.get_field_index(column)
        kind = keys.schema.field(at).type
        nothing = pa.array([*keys.column(at).to_pylist()[:-1], None], kind)
        columns = [nothing if name == column else keys.column(name) for name in keys.column_names]
        return pa.table(columns, schema=keys.schema)

    keys_rewritten(table, without_last)
    other = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match="rows without record key, partition or slice"):
        assert near(other) == exactly(table)


def test_compressed_keys_are_damage_where_all_checksums_fit(table):
    keys_rewritten(table, lambda keys: keys, "zstd")
    other = mainstem.open_table(table.path, properties=OPTIONS)
    with pytest.warns(UserWarning, match="its rows are compressed"):
        assert near(other) == exactly(table)
    assert "compressed" in told(other).why
