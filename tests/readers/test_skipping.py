"""Goal: whatever is left unread for a filter, the rows are those of the full read, filtered.

Method: tables of many buckets, partitions and generations of files are asked the same with data skipping
and without it; ``explain()`` says that less is read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstem
from mainstem.errors import Unsupported

pytestmark = pytest.mark.versions
field = pc.field
FAST = {"hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false"}
OFF = {"hoodie.enable.data.skipping": "false"}
IDS = [f"k{n}" for n in range(40)] + ["a,b", "x:y", "naïve", "😀", "__null__"]
CITIES = ("bern", "oslo", "rome")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.int64()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("fare", pa.int32()),
    ]
)
BUCKETS = 8


def rows(ids: list[str], step: int) -> pa.Table:
    numbers = range(len(ids))
    return pa.table(
        [
            pa.array(ids),
            pa.array([n % 3 for n in numbers], pa.int64()),
            pa.array([CITIES[n % 3] for n in numbers]),
            pa.array([100 * step + n % 7 for n in numbers], pa.int64()),
            pa.array([step * n for n in numbers], pa.int32()),
        ],
        schema=SCHEMA,
    )


def make(folder: Path, record_key: list[str]) -> Path:
    """Inserted, compacted, updated, deleted, updated again."""
    mainstem.create_table(
        folder, SCHEMA, record_key=record_key, ordering=["ts"], partition_by=["city"], buckets=BUCKETS,
        properties=FAST,
    )  # fmt: skip
    table = mainstem.open_table(folder, properties=FAST)
    table.upsert(rows(IDS, 1))
    table.compact()
    table.upsert(rows(IDS[:20], 3))
    table.delete(rows(IDS[:3], 4))
    table.upsert(rows(IDS[:1] + [f"new{n}" for n in range(5)], 2))
    return folder


@pytest.fixture(scope="module", params=[["id"], ["part", "id"]], ids="-".join)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("skipping") / "t", request.param)


@pytest.fixture(scope="module")
def simple(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("skipping") / "t", ["id"])


def both_ways(folder: Path, expression: pc.Expression, **query: str) -> tuple[list, list]:
    """Rows with data skipping and without, in one order."""
    found = []
    for options in (FAST, FAST | OFF):
        plan = mainstem.open_table(folder, properties=options).scan(filter=expression, **query)
        found.append(sorted(map(str, plan.to_arrow().to_pylist())))
    return found[0], found[1]


ids = st.sampled_from([*IDS, "new1", "absent"])
SINGLE = st.one_of(
    ids.map(lambda v: field("id") == v),
    st.lists(ids, max_size=4).map(lambda v: field("id").isin(pa.array(v, pa.string()))),
    st.integers(0, 3).map(lambda v: field("part") == v),
    st.sampled_from(CITIES).map(lambda v: field("city") == v),
    ids.map(lambda v: field("_hoodie_record_key") == v),
    st.tuples(st.integers(0, 2), ids).map(lambda v: field("_hoodie_record_key") == f"part:{v[0]},id:{v[1]}"),
    st.integers(0, 60).map(lambda v: field("fare") >= v),
    st.just(field("id").is_null()),
)
FILTERS = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda e: e[0] & e[1]),
        st.tuples(inner, inner).map(lambda e: e[0] | e[1]),
        inner.map(lambda e: ~e),
    ),
    max_leaves=4,
)


@settings(max_examples=8, deadline=None)
@given(expression=FILTERS)
def test_rows_are_the_same_with_data_skipping_and_without(folder: Path, expression: pc.Expression) -> None:
    with_it, without = both_ways(folder, expression)
    assert with_it == without


@pytest.mark.supports("Indexes", "bucket hash: answers filters on keys, without any index")
@pytest.mark.parametrize("key", [*IDS[:4], "a,b", "x:y", "naïve", "😀", "absent"])
def test_a_filter_on_the_key_reads_one_bucket_of_each_partition(simple: Path, key: str) -> None:
    expression = field("id") == key
    with_it, without = both_ways(simple, expression)
    found = mainstem.open_table(simple).scan(filter=expression).explain()
    assert with_it == without
    assert found.file_slices_read <= len(CITIES)
    assert found.file_slices > len(CITIES)
    assert [cut.index for cut in found.cuts] == ["bucket hash"]


@pytest.mark.parametrize("query", ["as_of", "as_of_completion"])
def test_time_travel_leaves_buckets_out_too(simple: Path, query: str) -> None:
    table = mainstem.open_table(simple)
    for instant in [i for i in table.timeline() if i.completion is not None]:
        moment = {query: instant.requested if query == "as_of" else instant.completion}
        with_it, without = both_ways(simple, field("id").isin(IDS[:5]), **moment)
        assert with_it == without
    assert table.scan(filter=field("id") == "k1", **moment).explain().cuts


def test_a_partition_and_a_key_together_read_one_slice(simple: Path) -> None:
    both = (field("id") == "k4") & (field("city") == "oslo")
    found = mainstem.open_table(simple).scan(filter=both).explain()
    assert (found.partitions_read, found.partitions) == (1, 3)
    assert found.file_slices_read == 1
    assert [cut.index for cut in found.cuts] == ["partition path", "bucket hash"]


def test_explain_is_a_text_for_people_and_plain_values_for_programs(simple: Path) -> None:
    found = mainstem.open_table(simple).scan(filter=field("id") == "k4").explain()
    assert f"{found.file_slices_read} of {found.file_slices} file slices" in str(found)
    assert "reads 3 of 3 partitions" in str(found)
    assert "bucket hash: left out" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["cuts"][0]["index"] == "bucket hash"


def test_explain_reads_everything_without_a_filter_and_with_data_skipping_off(simple: Path) -> None:
    for found in (
        mainstem.open_table(simple).scan().explain(),
        mainstem.open_table(simple, properties=OFF).scan(filter=field("id") == "k4").explain(),
    ):
        assert found.file_slices_read == found.file_slices
        assert not found.cuts


def test_changes_have_no_explanation(simple: Path) -> None:
    with pytest.raises(Unsupported, match="is for scan"):
        mainstem.open_table(simple).changes().explain()


def test_files_outside_of_the_bucket_index_are_always_read(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", ["id"])
    before = mainstem.open_table(folder).scan(filter=field("id") == "k9").to_arrow()
    for base in folder.glob("oslo/*.parquet"):  # as a writer without a bucket index would have named them
        base.rename(base.with_name("f" + base.name[1:]))
    for log in folder.glob("oslo/.*.log.*"):
        log.rename(log.with_name(".f" + log.name[2:]))
    # The commits name other files, which would be damage.
    table = mainstem.open_table(folder, {"mainstem.read.damaged": "skip"})
    found = table.scan(filter=field("id") == "k9")
    assert found.explain().file_slices_read > 2
    assert before.num_rows <= found.to_arrow().num_rows
