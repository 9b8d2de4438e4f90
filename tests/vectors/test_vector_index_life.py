"""Goal: vector indexes are made, refreshed, dropped and tidied beside writers; a version holds exactly the
rows of the files that it names; whatever is refused or fails leaves the table as it was.

Method: small tables with the engine ``flat``; versions are read back from storage.
"""

from __future__ import annotations

import dataclasses
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mainstem
from mainstem.errors import CorruptTable, Invalid, Unavailable
from mainstem.formats.java_properties import parse_properties
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.vectors import engines
from mainstem.vectors.index import building, clusters, lifecycle, tidying
from mainstem.vectors.index.embedding import register_embedding
from mainstem.vectors.index.versions import open_graph, open_rows, open_vectors, read_indexes, versions
from tests.storage.steps import storage_at

FAST = {"hoodie.mainstem.fsync": "false", "hoodie.mainstem.exclusive": "true"}
FLAT = {"engine": "flat", "metric": "l2"}
SCHEMA = pa.schema(
    [
        ("id", pa.string()), ("part", pa.string()), ("ts", pa.int64()),
        ("v", pa.list_(pa.float32(), 3)), ("w", pa.list_(pa.float64())), ("text", pa.string()),
    ]
)  # fmt: skip


def rows(keys, salt=1) -> pa.Table:
    chance = np.random.default_rng([3, salt])
    held = chance.integers(-9, 10, (len(keys), 3)).astype(float).tolist()
    return pa.Table.from_pylist(
        [
            {"id": f"k{key:03d}", "part": "ab"[key % 2], "ts": salt, "v": None if key % 7 == 3 else vector,
             "w": vector[:2], "text": f"text {key % 5}"}
            for key, vector in zip(keys, held, strict=True)
        ],
        SCHEMA,
    )  # fmt: skip


@pytest.fixture
def table(tmp_path):
    made = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", partition_by="part", buckets=2,
        properties=FAST,
    )  # fmt: skip
    made.upsert(rows(range(40)))
    return made


def storage_of(table) -> Storage:
    return storage_at(table.path)


def found_versions(table, name="v"):
    storage = storage_of(table)
    return versions(storage, read_indexes(storage).called(name))


def files(table) -> set[str]:
    folder = Path(table.path, paths.VECTORS)
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def listed(table, path=paths.VECTOR_PROPERTIES) -> dict[str, str]:
    return parse_properties(Path(table.path, path).read_bytes(), path=path)


def held(table, version) -> dict[tuple, list]:
    """What a version holds, by partition and key; each cluster's graph has as many vectors."""
    storage, made = storage_of(table), {}
    for number, cluster in enumerate(version.clusters):
        found = open_rows(storage, version, number)
        assert open_graph(storage, version, number).count == cluster.rows == found.num_rows
        slices = found["slice"].to_pylist()
        assert slices == sorted(slices)
        assert found["partition_path"].to_pylist() == [version.slices[at].partition for at in slices]
        stored = open_vectors(storage, version, number)
        assert np.array_equal(stored, np.array(found["vector"].to_pylist()))
        made |= {
            (row["partition_path"], row["record_key"], row["commit_time"]): row["vector"]
            for row in found.to_pylist()
        }
    assert len(made) == version.rows == sum(covered.rows for covered in version.slices)
    return made


def meant(table, column="v") -> dict[tuple, list]:
    names = ["_hoodie_partition_path", "_hoodie_record_key", "_hoodie_commit_time", column]
    found = table.scan(columns=names).to_arrow().to_pylist()
    return {tuple(row[n] for n in names[:3]): row[column] for row in found if row[column] is not None}


def covers(version) -> set[tuple]:
    return {(s.partition, s.file_id, s.base_file, s.log_files) for s in version.slices}


def slices_now(table) -> set[tuple]:
    return {(s.partition, s.file_id, s.base_file, s.log_files) for s in table.file_slices() if s.latest}


@pytest.mark.supports("Vectors", "index: made, refreshed in versions, dropped, beside writers")
def test_a_version_holds_the_rows_of_the_files_that_it_names(table):
    made = table.create_index("vector", ["v"], options={**FLAT, "clusters": 3})
    (first,) = found_versions(table)
    assert (made.version, made.built, made.rows, made.clusters) == (1, True, 34, len(first.clusters))
    assert held(table, first) == meant(table) and covers(first) == slices_now(table)
    before = meant(table)
    table.upsert(rows(range(30, 50), 2))
    table.delete({"id": ["k001"], "part": ["b"]})
    table.compact()
    assert held(table, first) == before
    assert table.refresh_index("v").version == 2
    second, again = found_versions(table)
    assert again == first and second.view > first.view
    assert held(table, second) == meant(table) and covers(second) == slices_now(table)
    assert all(covered.base_file and not covered.log_files for covered in second.slices)


def test_where_no_file_changed_a_refresh_builds_nothing(table):
    table.create_index("vector", ["v"], options=FLAT)
    before = files(table)
    done = table.refresh_index("v")
    assert (done.version, done.built, files(table)) == (1, False, before)
    assert "nothing to do" in done.describe()
    assert table.reindex("v").version == 2


def test_ids_are_kept_and_numbers_go_on_when_an_index_is_made_anew(table):
    table.create_index("vector", ["v"], options=FLAT)
    table.create_index("vector", ["w"], name="by_w", options={"engine": "flat"})
    assert listed(table) == listed(table, paths.VECTOR_PROPERTIES_COPY)
    known = listed(table)
    assert known["vector.index.columns"] == "v,w"
    assert (known["vector.index.v"], known["vector.index.w"]) == ("000", "001")
    assert [(i.name, i.kind, i.columns, i.state) for i in table.indexes()] == [
        ("by_w", "vector", ("w",), "ready"), ("v", "vector", ("v",), "ready"),
    ]  # fmt: skip
    assert table.drop_index("v").files > 0
    assert (listed(table)["vector.index.columns"], listed(table)["vector.index.v"]) == ("w", "000")
    assert all("column=001" in name or name.endswith(".properties") for name in files(table))
    assert table.create_index("vector", ["v"], options={"engine": "flat", "metric": "cosine"}).version == 2
    assert [version.metric for version in found_versions(table)] == ["cosine"]
    assert table.drop_index("missing", if_exists=True) is None


def test_each_index_of_a_table_is_refreshed_by_itself(table):
    table.create_index("vector", ["v"], options=FLAT)
    table.create_index("vector", ["w"], options={**FLAT, "clusters": 2})
    table.upsert(rows(range(5), 2))
    table.refresh_index("w")
    assert [len(found_versions(table, name)) for name in ("v", "w")] == [1, 2]
    newest = found_versions(table, "w")[0]
    assert (newest.element, newest.dimension) == ("DOUBLE", 2)
    assert held(table, newest) == meant(table, "w")


def test_texts_are_indexed_by_what_a_registered_function_makes_of_them(table):
    def lengths(texts: list[str]) -> np.ndarray:
        return np.array([[len(text), ord(text[-1])] for text in texts], np.float32)

    with pytest.raises(Invalid, match="needs an embedding function"):
        table.create_index("vector", ["text"], options=FLAT)
    with pytest.raises(Invalid, match="no embedding function 'unknown'"):
        table.create_index("vector", ["text"], options={**FLAT, "embedding": "unknown"})
    assert [index.kind for index in table.indexes()] == []
    register_embedding("lengths-of-life", lengths)
    table.create_index("vector", ["text"], options={**FLAT, "embedding": "lengths-of-life"})
    (version,) = found_versions(table, "text")
    texts = meant(table, "text")
    assert held(table, version) == {key: lengths([text])[0].tolist() for key, text in texts.items()}


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        ([], {}, "on one column"),
        (["v", "w"], {}, "on one column"),
        (["missing"], {}, "the table lacks"),
        (["ts"], {}, "is of type int64"),
        (["v"], {"engine": "wheel"}, "unknown vector engine 'wheel'"),
        (["v"], {"metric": "far"}, "unknown metric 'far'"),
        (["v"], {"clusters": "-1"}, "clusters='-1'"),
        (["v"], {"engine": "flat", "depth": "9"}, "depth"),
        (["v"], {"embedding": "words"}, "makes vectors of texts"),
    ],
)
def test_what_cannot_be_indexed_is_refused_and_nothing_changes(table, columns, options, error):
    before = sorted(Path(table.path).rglob("*"))
    with pytest.raises(Invalid, match=error):
        table.create_index("vector", columns, options={"engine": "flat", **options})
    lock = Path(table.path, paths.LOCK_NOTE)
    assert [path for path in sorted(Path(table.path).rglob("*")) if path != lock] == [
        path for path in before if path != lock
    ]


def test_names_and_columns_are_taken_once(table):
    table.create_index("secondary_index", ["text"], name="by_text")
    table.create_index("vector", ["v"], options=FLAT)
    for columns, name in [(["v"], "other"), (["w"], "v"), (["w"], "by_text")]:
        with pytest.raises(Invalid, match="already"):
            table.create_index("vector", columns, name=name, options=FLAT)
    with pytest.raises(Invalid, match="nothing to refresh"):
        table.refresh_index("by_text")
    with pytest.raises(Invalid, match="no index is called"):
        table.refresh_index("missing")


def test_rows_that_have_no_place_are_named_and_leave_the_table_without_the_index(table):
    table.upsert(rows([1], 5).set_column(4, "w", pa.array([[1.0, float("nan")]])))
    with pytest.raises(Invalid, match=r"record key k001 .* NaN"):
        table.create_index("vector", ["w"], options=FLAT)
    table.upsert(rows([1], 6).set_column(4, "w", pa.array([[1.0, 2.0, 3.0]])))
    with pytest.raises(Invalid, match="different dimensions"):
        table.create_index("vector", ["w"], options=FLAT)
    assert table.indexes() == []
    assert not [name for name in files(table) if "column" in name or "builders" in name]


def test_vectors_of_another_dimension_need_an_index_built_anew(table):
    table.create_index("vector", ["w"], options=FLAT)
    wide = rows(range(40), 9)
    table.upsert(wide.set_column(4, "w", pa.array([[1.0, 2.0, float(n)] for n in range(40)])))
    with pytest.raises(Invalid, match=r"have 3 values now, .* built for 2: build it anew"):
        table.refresh_index("w")
    assert found_versions(table, "w")[0].dimension == 2
    assert table.reindex("w").built and found_versions(table, "w")[0].dimension == 3


def test_an_empty_table_has_an_empty_version(tmp_path):
    empty = mainstem.create_table(tmp_path / "e", SCHEMA, record_key="id", buckets=1, properties=FAST)
    assert empty.create_index("vector", ["v"], options=FLAT).rows == 0
    assert empty.search("v", [1, 2, 3], 4).num_rows == 0
    empty.upsert(rows(range(3)))
    assert empty.refresh_index("v").rows == 3


# -- builders beside each other ----------------------------------------------------------------------


def while_building(monkeypatch, work):
    """Runs ``work`` once, in the middle of the next build."""
    real, left = building.make_graph, [work]

    def make_graph(storage, piece):
        if left:
            left.pop()()
        return real(storage, piece)

    monkeypatch.setattr(building, "make_graph", make_graph)


def test_of_two_builders_of_one_number_the_later_view_comes_second(table, monkeypatch):
    table.create_index("vector", ["v"], options=FLAT)
    other = mainstem.open_table(table.path, FAST)

    def work():
        other.upsert(rows(range(3), 7))
        assert other.refresh_index("v").version == 2

    table.upsert(rows(range(3), 6))
    while_building(monkeypatch, work)
    done = table.refresh_index("v")
    assert (done.version, done.built) == (2, False)
    assert [version.number for version in found_versions(table)] == [2, 1]
    assert len([name for name in files(table) if "version=2" in name]) == 4


def test_a_version_whose_view_is_later_takes_the_next_number(table, monkeypatch):
    table.create_index("vector", ["v"], options=FLAT)
    other = mainstem.open_table(table.path, FAST)
    real = building.Reading

    def reading(*given):
        monkeypatch.setattr(building, "Reading", real)
        made = real(*given)
        table.upsert(rows(range(3), 8))
        newest = table.refresh_index("v")
        assert newest.version == 2
        return made

    monkeypatch.setattr(building, "Reading", reading)
    table.upsert(rows(range(3), 6))
    assert other.refresh_index("v").version == 2
    late = found_versions(table)[0]
    earlier = dataclasses.replace(late, view="1" * 17)
    monkeypatch.setattr(building, "newest_version", lambda *given: earlier)
    while_building(monkeypatch, lambda: table.reindex("v"))
    assert other.reindex("v").version == 4
    assert [version.number for version in found_versions(table)] == [4, 3, 2, 1]
    assert held(table, found_versions(table)[0]) == meant(table)


@pytest.mark.parametrize("again", [False, True])
def test_a_builder_whose_index_is_dropped_publishes_nothing(table, monkeypatch, again):
    table.create_index("vector", ["v"], options=FLAT)

    def work():
        table.drop_index("v")
        if again:
            table.create_index("vector", ["v"], options=FLAT)

    while_building(monkeypatch, work)
    with pytest.raises(Unavailable, match="dropped or rebuilt meanwhile"):
        table.reindex("v")
    assert len([name for name in files(table) if "version" in name]) == (4 if again else 0)
    if again:
        assert held(table, found_versions(table)[0]) == meant(table)


def test_a_builder_that_was_taken_for_dead_takes_its_version_back(table, monkeypatch):
    table.create_index("vector", ["v"], options=FLAT)

    def work():
        for beat in Path(table.path, paths.VECTOR_BUILDERS).iterdir():
            beat.unlink()
        assert tidying.tidy(table.index_context()).files > 0

    while_building(monkeypatch, work)
    with pytest.raises(Unavailable):
        table.reindex("v")
    assert [version.number for version in found_versions(table)] == [1]
    assert table.reindex("v").version == 2


def test_an_engine_that_fails_leaves_the_version_before(table, monkeypatch):
    table.create_index("vector", ["v"], options=FLAT)
    before = files(table)
    while_building(monkeypatch, lambda: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(Unavailable, match="the disk is full"):
        table.reindex("v")
    assert files(table) == before


# -- rounds and retention ----------------------------------------------------------------------------


def test_a_round_refreshes_after_a_compaction_and_when_enough_was_written(table):
    table.create_index("vector", ["v"], options=FLAT)

    def refreshed() -> bool:
        (run,) = table.run_services("vectors")
        assert run.error is None
        return any("version" in result.describe() for result in run.results)

    assert not refreshed()
    table.upsert(rows(range(4), 2))
    assert not refreshed()
    table.compact()
    assert refreshed() and not refreshed()
    table.upsert(rows(range(4), 3))
    assert not refreshed()
    table.upsert(rows(range(4, 9), 4))
    assert refreshed() and not refreshed()
    table = mainstem.open_table(
        table.path,
        {**FAST, "hoodie.mainstem.vector.refresh.after.compaction": "false",
         "hoodie.mainstem.vector.refresh.fresh.percent": "0"},
    )  # fmt: skip
    table.upsert(rows(range(40), 5))
    table.compact()
    assert not refreshed()
    (run,) = table.run_services("vectors", if_due=False)
    assert run.results


@pytest.mark.supports("Vectors", "index: refreshed beside the commits of writers that compact")
@pytest.mark.parametrize("switch", ["hoodie.compact.inline", "hoodie.datasource.compaction.async.enable"])
def test_writers_that_compact_refresh_beside_their_commits(table, monkeypatch, switch):
    table.create_index("vector", ["v"], options=FLAT)
    began, go_on = threading.Event(), threading.Event()
    real = lifecycle.build

    def slow(*given, **how):
        began.set()
        assert go_on.wait(400)
        return real(*given, **how)

    monkeypatch.setattr(lifecycle, "build", slow)
    given = {**FAST, switch: "true", "hoodie.compact.inline.max.delta.commits": "2"}
    writer = mainstem.open_table(table.path, given)
    assert [writer.upsert(rows(range(4), salt)).status for salt in (2, 3)] == ["committed"] * 2
    assert began.wait(400), "nobody refreshes"
    assert writer.upsert(rows(range(4), 4)).status == "committed", "a commit waited for the refresh"
    assert [version.number for version in found_versions(table)] == [1]
    go_on.set()
    end = time.monotonic() + 400
    while len(found_versions(table)) < 2:
        assert time.monotonic() < end, "the refresh did not end"
        time.sleep(0.01)
    writer.writer_context().after_commit.stop()


def test_a_round_leaves_an_index_alone_that_another_process_is_refreshing(table, monkeypatch):
    table.create_index("vector", ["v"], options=FLAT)
    table.upsert(rows(range(4), 2))
    table.compact()
    other, beside = mainstem.open_table(table.path, FAST), []
    real = building._Build._divided

    def meanwhile(work, source):
        beside.extend(other.run_services("vectors"))
        return real(work, source)

    monkeypatch.setattr(building._Build, "_divided", meanwhile)
    (run,) = table.run_services("vectors")
    assert [len(each.results) for each in (run, *beside)] == [1, 0]
    assert [version.number for version in found_versions(table)] == [2, 1]


def test_old_versions_go_when_no_retained_commit_needs_them(table):
    kept = mainstem.open_table(table.path, {**FAST, "hoodie.clean.commits.retained": "2"})
    kept.create_index("vector", ["v"], options=FLAT)
    for salt in range(2, 7):
        kept.upsert(rows(range(3), salt))
        kept.refresh_index("v")
    numbers = [version.number for version in found_versions(table)]
    assert numbers == [6, 5, 4]
    assert {name.split("/")[2] for name in files(table) if "version" in name} == {
        f"version={number}" for number in numbers
    }
    for _ in range(3):
        kept.reindex("v")
    assert [version.number for version in found_versions(table)][:2] == [9, 8]


def test_a_damaged_manifest_is_named_and_a_refresh_makes_a_newer_version(table):
    table.create_index("vector", ["v"], options=FLAT)
    path = Path(table.path, paths.vector_manifest("000", 1))
    path.write_bytes(path.read_bytes().replace(b"k0", b"k1").replace(b'"rows":', b'"rows": '))
    path.write_bytes(path.read_bytes()[:-9] + b"}")
    with pytest.raises(CorruptTable, match="damaged manifest"):
        found_versions(table)
    assert table.index("v").state == "left over"
    assert table.refresh_index("v").version == 2
    assert [version.number for version in found_versions(table)] == [2]


# -- the metadata table's folder ---------------------------------------------------------------------


def test_an_index_whose_folder_was_removed_says_so_and_is_refreshed(table):
    table.create_index("vector", ["v"], name="by_v", options=FLAT)
    shutil.rmtree(Path(table.path, paths.VECTORS))
    assert table.index("by_v").state == "lost"
    assert table.explain_search("v", [1, 2, 3], 2).exact
    assert table.refresh_index("by_v").built
    assert table.index("by_v").state == "ready" and listed(table)["vector.index.v"] == "000"
    assert held(table, found_versions(table, "by_v")[0]) == meant(table)
    shutil.rmtree(Path(table.path, paths.VECTORS))
    table.drop_index("by_v")
    assert table.indexes() == []


def test_dropping_the_metadata_table_and_taking_commits_back_leave_the_index_alone(table):
    table.create_index("files")
    table.create_index("vector", ["v"], options=FLAT)
    before = files(table)
    undone = table.upsert(rows(range(40), 2)).instant
    table.rollback(undone)
    assert files(table) == before and not table.explain_search("v", [1, 2, 3], 2).fresh
    table.drop_index("files")
    assert files(table) == before
    table.create_index("files")
    assert files(table) == before and table.index("v").state == "ready"


# -- what it is made of ------------------------------------------------------------------------------


def test_the_number_of_clusters_follows_the_rows_unless_it_is_given():
    counts = {rows: clusters.cluster_count(rows, 0) for rows in (0, 1, 49_999, 50_000, 10**6, 10**7)}
    assert counts == {0: 1, 1: 1, 49_999: 1, 50_000: 4, 10**6: 4, 10**7: 10}
    assert [clusters.cluster_count(rows, 8) for rows in (0, 5, 100)] == [1, 5, 8]


def test_the_tables_properties_say_what_indexes_are_made_with(table):
    given = {"hoodie.mainstem.vector.engine": "flat", "hoodie.mainstem.vector.metric": "dot_product"}
    mainstem.open_table(table.path, {**FAST, **given}).create_index("vector", ["v"])
    (version,) = found_versions(table)
    assert (version.engine, version.metric) == ("flat", "dot_product")
    assert engines.DEFAULT != "flat"


def test_a_left_over_index_is_completed_by_a_round_or_made_anew(table, monkeypatch):
    def died(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "_built", died)
    monkeypatch.setattr(lifecycle, "_unlist", lambda *given: None)
    with pytest.raises(KeyboardInterrupt):
        table.create_index("vector", ["v"], options=FLAT)
    monkeypatch.undo()
    assert table.index("v").state == "left over"
    assert table.create_index("vector", ["v"], name="anew", options=FLAT).version == 1
    assert [index.name for index in table.indexes()] == ["anew"]
