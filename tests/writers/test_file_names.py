"""Goal: no two files of an instant share a name, in whatever partitions they lie.

Hudi's Java readers look up the statistics of files by bare names: where two partitions share one, they take
the ranges of the other's file and leave rows out. Method: one instant writes one bucket in several
partitions, in each way in which rows are written.
"""

from __future__ import annotations

import itertools
import os

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from small_table import content, rows

from mainstem.errors import Invalid
from mainstem.options import UNSAFE_FOR_JAVA
from mainstem.services.shared_file_names import SharedNamesWarning
from mainstem.storage import paths
from mainstem.writers import transaction
from mainstem.writers.append import FileTokens
from mainstem.writers.write_task import write_task

CITIES = ("a", "b", "c")


def one_in_each(ts=1, ids=range(3), cities=CITIES):
    return pa.concat_tables([rows([i], ts=ts, city=city) for i, city in zip(ids, cities, strict=True)])


def data_files(table):
    """(partition, name) of all data files."""
    found = []
    for folder, _, names in os.walk(table.path):
        partition = os.path.relpath(folder, table.path)
        if not partition.startswith(".hoodie"):
            found += [(partition, n) for n in names if paths.file_id_of(n)]
    return found


def all_differ(table, count):
    names = [name for _, name in data_files(table)]
    assert len(names) == len(set(names)) == count, sorted(names)


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert"])
def test_each_partition_has_file_names_of_its_own(make_table, operation):
    table = make_table(buckets=1)
    getattr(table, operation)(one_in_each())
    all_differ(table, 3)
    table.delete(one_in_each(ts=2).select(["id", "city"]))
    all_differ(table, 6)


def test_so_have_several_log_files_of_one_partition(make_table):
    table = make_table(buckets=1, hoodie__logfile__max__size=1024)
    with table.begin() as t:
        for ts in (1, 2, 3):
            t.write(pa.concat_tables([rows(range(30), ts=ts, city=c, value=f"{ts}-") for c in CITIES]))
        t.commit()
    all_differ(table, 9)
    assert set(content(table).values()) == {f"3-{i}" for i in range(30)}


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"])
def test_tasks_with_numbers_of_their_own_write_names_of_their_own(make_table, operation):
    table = make_table(buckets=1)
    with table.begin(operation) as t:
        spec = t.task_spec()
        for number, city in enumerate(CITIES):
            attempt = 4_000_000_000 + number
            batch = rows([number], ts=1, city=city)
            t.add_task_result(write_task(spec, [batch], task_partition=number, stage=7, attempt=attempt))
        t.commit()
    all_differ(table, 3)
    assert len(content(table)) == 3


def test_tasks_of_the_same_numbers_are_refused_where_their_names_meet(make_table):
    table = make_table(buckets=1)
    with pytest.raises(Invalid, match="its own"), table.begin() as t:
        spec = t.task_spec()
        for city in CITIES[:2]:
            batch = rows([1], ts=1, city=city)
            t.add_task_result(write_task(spec, [batch], task_partition=0, stage=0, attempt=0))
        t.commit()
    assert content(table) == {} and not data_files(table)


@pytest.fixture
def named_alike(make_table, monkeypatch):
    """A table with a metadata table whose files have one name in all partitions, as they once had."""
    table = make_table(buckets=1, hoodie__metadata__enable=True)
    table.create_index("column_stats", ["id"])
    lower = {"expr": "lower", "type": "column_stats", UNSAFE_FOR_JAVA: "true"}
    table.create_index("expr_index", ["value"], name="low", options=lower)
    with monkeypatch.context() as patched:
        patched.setattr(FileTokens, "__call__", lambda self, _: f"{self._task}-{self._stage}-{self._attempt}")
        patched.setattr(transaction, "check_names_differ", lambda *_: None)
        table.upsert(one_in_each())
    assert len({name for _, name in data_files(table)}) == 1
    return table


def test_statistics_of_files_that_share_a_name_are_found_and_taken_out(named_alike):
    table = named_alike
    found = table.validate_metadata()
    kinds = {(d.partition, d.kind) for d in found.differences}
    assert kinds == {("column_stats", "shared"), ("expr_index_low", "shared")}
    assert "index rebuild" in found.differences[0].detail
    table.reindex_all()
    found = table.validate_metadata()
    counts = {p.partition: (p.counts["unranked"], p.wrong) for p in found.partitions}
    assert found.ok and counts["column_stats"] == (12, 0) and counts["expr_index_low"] == (3, 0)
    assert table.scan(filter=pc.field("id") == "k1").to_arrow()["city"].to_pylist() == ["b"]


def test_files_that_shared_a_name_are_ranked_again_after_compaction_and_clean(named_alike):
    table = named_alike
    table.reindex_all()
    with pytest.warns(SharedNamesWarning, match="mainstem index rebuild .* expr_index_low"):
        table.compact()
    table.upsert(one_in_each(ts=2))
    found = table.validate_metadata()
    assert found.ok
    stored = {p.partition: p.counts["unranked"] for p in found.partitions}
    assert stored["column_stats"] == 12, "of the log files, which older views read"
    assert table.scan(filter=pc.field("id") == "k1").to_arrow()["city"].to_pylist() == ["b"]


def test_no_two_attempts_share_a_token_whatever_partitions_they_see():
    attempts = [0, 1, 9, 2**15 - 1, 2**15, 2**25 - 1]
    pairs = itertools.product((0, 7, 2**20 - 1), attempts)
    made = [FileTokens(f"3-{stage}-{attempt}") for stage, attempt in pairs]
    tokens = [of(f"p{i}") for of in made for i in range(5000)]
    assert len(tokens) == len(set(tokens))
    numbers = [int(number) for token in tokens for number in token.split("-")]
    assert max(numbers) < 2**31, "Hudi 1.3 reads each as an int"
    assert all(paths.parse_log_name(paths.log_name("f-0", "2" * 17, 1, token)) for token in tokens)
    again = FileTokens("3-5-1")
    assert [again("p0"), again("p1"), again("p0")] == ["3-5-1", f"3-{5 + 2**20}-1", "3-5-1"]


def test_a_task_of_the_driver_has_names_for_a_hundred_thousand_partitions():
    mine = FileTokens("0-1000000-0")
    tokens = {mine(str(number)) for number in range(100_000)}
    assert len(tokens) == 100_000 and max(int(n) for t in tokens for n in t.split("-")) < 2**31


def test_partitions_for_which_an_attempt_has_no_numbers_left_are_refused():
    late = FileTokens(f"3-5-{2**26}")
    assert len({late(str(number)) for number in range(2048)}) == 2048
    with pytest.raises(Invalid, match="no more numbers"):
        late("one more")
