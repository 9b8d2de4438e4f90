"""Goal: a table with native log files (table version 10) answers every query as the same table with files of
blocks, and what cannot be read right is refused by name.

Method: tables that mainstem wrote by chance, with crossed transactions, deletes of both kinds and
compactions, are turned into tables of version 10 (``native_tables``), wholly or from an instant on. Every
kind of query is asked before and after; before, the table is merged by the rules of version 10, too
(``as_version_10``). Row groups are small, so that statistics leave some out. Then files are damaged in every
way, and files of unknown kinds are put in. Tables that Java wrote are read in tests/golden_tables.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import mainstem
from mainstem.errors import CorruptTable, Unsupported
from mainstem.formats.native_log import HEADER_KEY
from mainstem.limits import LOG_HEADER_COUNT_MAX
from mainstem.merge import rules
from mainstem.merge.rules import MergeRules
from mainstem.readers.rows import log_rows
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from tests.golden_tables.tables import encoded, encoded_rows, expectations, row_text, unpack
from tests.readers.native_tables import to_version_10, write_native

LAYOUT = "Tables and layouts"
SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("seq", pa.int32()),
    ("name", pa.string()), ("price", pa.float64()), ("tags", pa.list_(pa.string())),
    ("_hoodie_is_deleted", pa.bool_()),
])  # fmt: skip
OPTIONS = {
    "hoodie.time.generator.max_expected_clock_skew_ms": "0", "hoodie.mainstem.fsync": "false",
    "hoodie.mainstem.exclusive": "true",
    "hoodie.mainstem.keep.tombstones": "0",  # else a compaction leaves a log file that is not native
}  # fmt: skip
PARTIAL = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
COMMIT_TIME = {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
KINDS: dict[str, dict[str, Any]] = {
    "event time": {"ordering": ["ts"]},
    "commit time": {"ordering": ["ts"], "properties": COMMIT_TIME},
    "two ordering fields": {"ordering": ["ts", "seq"]},
    "partial updates": {"ordering": ["ts"], "properties": PARTIAL},
}
KEYS = [f"k{number:02}" for number in range(24)]


def some_rows(chance: random.Random, keys: list[str], step: int, deletes: bool) -> pa.Table:
    return pa.table(
        {
            "id": keys,
            "city": ["rome" if int(key[1:]) % 2 else "oslo" for key in keys],
            "ts": [chance.randrange(step + 4) for _ in keys],
            "seq": [chance.randrange(3) for _ in keys],
            "name": [chance.choice((None, f"n{step}", "é\U0001f600")) for _ in keys],
            "price": [chance.choice((None, float("nan"), 0.0, 1.5 * step)) for _ in keys],
            "tags": [chance.choice((None, [], ["a", f"t{step}"])) for _ in keys],
            "_hoodie_is_deleted": [deletes and not chance.randrange(6) for _ in keys],
        },
        SCHEMA,
    )


def written(path: Path, kind: str, seed: int) -> None:
    """A table of the kind: some writes, of which two cross, deletes, and a compaction in between."""
    chance = random.Random(seed)
    given = {key: value for key, value in KINDS[kind].items() if key != "properties"}
    properties = {**OPTIONS, **KINDS[kind].get("properties", {})}
    mainstem.create_table(
        path, SCHEMA, record_key="id", partition_by="city", buckets=1, **given, properties=properties
    )
    table = mainstem.open_table(path, OPTIONS)
    for step in range(1, 9):
        keys = sorted(chance.sample(KEYS, 10)) if step > 1 else KEYS[:16]
        if step == 3:
            table.delete({"id": keys[:3], "city": some_rows(chance, keys[:3], step, False)["city"]})
        elif step == 5:
            table.compact()
        elif step in (4, 7):
            first, second = table.begin("upsert"), table.begin("upsert")
            second.write(some_rows(chance, keys, step, True))
            first.write(some_rows(chance, sorted(chance.sample(KEYS, 8)), step, True))
            second.commit()
            first.commit()
        else:
            table.upsert(some_rows(chance, keys, step, True))


def filters() -> dict[str, pc.Expression]:
    id_, ts, name, price = map(pc.field, ("id", "ts", "name", "price"))
    return {
        "late": ts >= 8, "early": ts < 2, "key": id_ == "k03", "keys": id_.isin(["k01", "k11", "k23"]),
        "record key": pc.field("_hoodie_record_key") == "k05", "range of keys": (id_ > "k04") & (id_ < "k08"),
        "no name": name.is_null(), "a name": name == "n6", "none": ts > 1000,
        "city": pc.field("city") == "rome",
        "price": price > 4.0, "not": ~(ts >= 3), "either": (ts < 1) | (price == 0.0),
        "newest": pc.field("_hoodie_commit_time") > "2027",
    }  # fmt: skip


def answers(path: Path) -> dict[str, Any]:
    """What every kind of query says; files may have other names, and rows another order."""
    table = mainstem.open_table(path)
    columns = [name for name in table.scan().schema.names if name != "_hoodie_file_name"]

    def of(plan: Any) -> Counter[str]:
        found = plan.to_arrow()
        if "_hoodie_file_name" in found.schema.names:
            found = found.drop_columns(["_hoodie_file_name"])
        return encoded(found)

    instants = [i for i in table.timeline() if i.is_completed]
    said: dict[str, Any] = {
        "all": of(table.scan()), "count": table.scan().count_rows(),
        "read optimized": of(table.scan(mode="read_optimized")),
        "few": of(table.scan(columns=["price", "id"])), "one": of(table.scan(columns=["tags"])),
        "dataset": encoded(table.dataset().to_table(columns=columns)),
    }  # fmt: skip
    for name, condition in filters().items():
        said[f"filter {name}"] = of(table.scan(filter=condition))
        said[f"filter {name}, few"] = of(table.scan(filter=condition, columns=["name", "seq"]))
    said["count, filter"] = table.scan(filter=pc.field("ts") >= 3).count_rows()
    for instant in instants[::2]:
        said[f"as of {instant.requested}"] = of(table.scan(as_of=instant.requested))
        said[f"as of completion {instant.completion}"] = of(
            table.scan(as_of_completion=instant.completion, columns=columns)
        )
    times = sorted(i.completion for i in instants)
    for after, until in itertools.pairwise(("0", *times[1::2])):
        said[f"changes {after}"] = of(table.changes(after=after, until=until))
        said[f"deletes {after}"] = of(table.changes(after=after, until=until, deletes=True))
    said["changes"], said["deletes"] = of(table.changes()), of(table.changes(deletes=True))
    return said


def as_version_10(monkeypatch: pytest.MonkeyPatch, layout: str = "default") -> None:
    """Every table is merged by the rules of version 10."""

    def by_version(found: MergeRules, properties: Any) -> MergeRules:
        return replace(found, deletes_in_order=True, one_by_one=layout == "lsm_tree")

    monkeypatch.setattr(rules, "_by_version", by_version)


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    assert before.keys() == after.keys()
    return [query for query in before if before[query] != after[query]]


# -------------------- the same rows


@pytest.mark.supports(LAYOUT, "native log files: rows, deletes, change data (read)")
@pytest.mark.parametrize("layout", ["default", "lsm_tree"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_query_gives_the_rows_of_the_same_table_with_files_of_blocks(
    kind, layout, tmp_path, monkeypatch
):
    path = tmp_path / "t"
    written(path, kind, len(kind + layout))
    with monkeypatch.context() as patched:
        as_version_10(patched, layout)
        before = answers(path)
    assert before["all"] and before["read optimized"]
    to_version_10(path, layout=layout, group_rows=2 if layout == "lsm_tree" else None)
    assert not list(path.rglob(".*.log.*"))
    assert differing(before, answers(path)) == []


@pytest.mark.supports(LAYOUT, "slices with files of blocks and native log files (read)")
@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_may_hold_log_files_of_both_kinds(kind, tmp_path, monkeypatch):
    path = tmp_path / "t"
    written(path, kind, 11)
    with monkeypatch.context() as patched:
        as_version_10(patched)
        before = answers(path)
    commits = sorted(file.name for file in (path / ".hoodie/timeline").glob("*.deltacommit"))
    to_version_10(path, group_rows=2, only_after=commits[-4])
    mixed = [s for s in mainstem.open_table(path).file_slices() if s.latest]
    kinds = [{paths.is_native_log(name) for name in s.log_files} for s in mixed]
    assert {True, False} in kinds
    assert differing(before, answers(path)) == []


def test_a_table_that_was_downgraded_reads_its_older_slices_too(tmp_path):
    path = tmp_path / "t"
    written(path, "event time", 5)
    before = answers(path)
    to_version_10(path)
    properties = path / ".hoodie/hoodie.properties"
    layout = "hoodie.table.storage.layout"
    lines = [x for x in properties.read_text().splitlines() if not x.startswith(layout)]
    properties.write_text("\n".join(lines).replace("version=10", "version=9") + "\n")
    assert differing(before, answers(path)) == []
    table = mainstem.open_table(path, OPTIONS)
    table.upsert(some_rows(random.Random(1), KEYS[:4], 50, False))
    whole = encoded(table.scan(columns=["id", "ts", "name"]).to_arrow())
    table.compact()
    assert encoded(table.scan(columns=["id", "ts", "name"]).to_arrow()) == whole


def test_a_filtered_read_leaves_out_row_groups_and_columns_of_native_logs(tmp_path, monkeypatch):
    """A slice of two sorted log files: of the groups that no row passes, those far from the wanted keys are
    not read at all, the others without the filter's column."""
    from mainstem.readers.rows.native_logs import NativeRows

    path = tmp_path / "t"
    table = mainstem.create_table(
        path, SCHEMA, record_key="id", ordering="ts", buckets=1, properties=OPTIONS
    )
    numbers = [pa.array(range(first, first + 24), pa.int32()) for first in (0, 26)]
    rows = some_rows(random.Random(2), KEYS, 1, False).set_column(2, "ts", numbers[0].cast(pa.int64()))
    table.upsert(rows.set_column(3, "seq", numbers[0]))
    table.upsert(rows.set_column(3, "seq", numbers[1]).slice(4, 8))
    to_version_10(path, layout="lsm_tree", group_rows=4)
    read: list[tuple[list[str], tuple[int, ...]]] = []
    real = NativeRows.read

    def noted(self: NativeRows, names: Any, groups: Any) -> pa.Table:
        read.append((list(names), tuple(groups)))
        return real(self, names, groups)

    monkeypatch.setattr(NativeRows, "read", noted)
    seq = pc.field("seq")
    wanted = (seq == 1) | (seq == 2) | (seq == 5) | (seq == 34)
    found = mainstem.open_table(path).scan(columns=["id"], filter=wanted)
    assert sorted(found.to_arrow()["id"].to_pylist()) == ["k01", "k02", "k08"]
    # Older file: the group of 1 and 2, that of 5 (hidden), and one that 34 may replace a row of.
    # Newer file: a group that may hide 5, and the one of 34. The other three groups are not read.
    assert [groups for _, groups in read] == [(0,), (1,), (2,), (0,), (1,)]
    assert ["seq" in names for names, _ in read] == [True, True, False, False, True]
    assert all("ts" in names and "id" not in names for names, _ in read)
    read.clear()
    assert mainstem.open_table(path).scan(filter=seq > 99).to_arrow().num_rows == 0
    assert read == []  # no group may hold a row that passes, so there is nothing to hide


# -------------------- what is no native log that can be read


@pytest.fixture
def small(tmp_path: Path) -> Path:
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, properties=OPTIONS
    )
    table.upsert(some_rows(random.Random(2), KEYS[:5], 1, False))
    table.upsert(some_rows(random.Random(3), KEYS[:3], 2, False))
    table.delete({"id": KEYS[1:2]})
    to_version_10(tmp_path / "t")
    return tmp_path / "t"


def newest(path: Path, kind: str = "log") -> Path:
    return max(path.glob(f"*.{kind}.parquet"), key=lambda file: file.name.split("_")[2])


def header(file: Path) -> dict[str, str]:
    return json.loads(pq.read_metadata(file).metadata[HEADER_KEY.encode()])


def rewritten(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The file with another header, and not smaller than its commit says."""
    changed = change(header(file))
    size = write_native(file, pq.read_table(file), changed)
    assert size > 0
    resize_commits(file, size)


def resize_commits(file: Path, size: int) -> None:
    from mainstem.formats.avro_container import decode_container, encode_container
    from mainstem.layout.committed_files import forget
    from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text

    for commit in (file.parent / ".hoodie/timeline").glob("*.deltacommit"):
        record, _ = decode_container(commit.read_bytes(), path=commit.name)
        for stat in itertools.chain.from_iterable(record["partitionToWriteStats"].values()):
            if stat["path"] == file.name:
                stat["fileSizeInBytes"] = size
        commit.write_bytes(encode_container(schema_text("HoodieCommitMetadata"), record, VERSION_MARK))
    forget()


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], Any], type[Exception], str]] = {
    "a newer format": (lambda h: {**h, "VERSION": "3"}, Unsupported, r"format version 3; .*up to 2"),
    "no number": (lambda h: {**h, "VERSION": "two"}, CorruptTable, "version 'two'"),
    "a huge number": (lambda h: {**h, "VERSION": "9" * 5000}, CorruptTable, "the version '999"),
    "no schema": (lambda h: {k: v for k, v in h.items() if k != "SCHEMA"}, CorruptTable, "without SCHEMA"),
    "no Avro": (lambda h: {**h, "SCHEMA": "{"}, CorruptTable, "schema"),
    "no JSON": (lambda h: "VERSION=2", CorruptTable, "header is damaged"),
    "no object": (lambda h: "[1]", CorruptTable, "expected an object of texts"),
    "no texts": (lambda h: {**h, "VERSION": 2}, CorruptTable, "expected an object of texts"),
    "too deep": (lambda h: "[" * 100_000, CorruptTable, "header is damaged"),
    "twice": (lambda h: '{"VERSION": "1", "VERSION": "2"}', CorruptTable, "twice"),
    "too many": (
        lambda h: {**h, **{f"x{n}": "" for n in range(LOG_HEADER_COUNT_MAX)}}, CorruptTable, "at most 64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HEADERS)
@pytest.mark.parametrize("kind", ["log", "deletes"])
def test_a_header_that_cannot_be_read_is_an_error_that_names_the_file(what, kind, small):
    change, expected, words = HEADERS[what]
    file = newest(small, kind)
    rewritten(file, change)
    if kind == "deletes" and what == "no Avro":
        pytest.skip("the schema of deletes is not needed: they have columns of their own")
    for skip in ("error", "skip"):
        with pytest.raises(expected, match=words) as caught:
            mainstem.open_table(small, {"mainstem.read.damaged": skip}).scan().to_arrow()
        assert file.name in str(caught.value)


def test_unknown_entries_of_a_header_a_missing_version_and_a_missing_instant_are_fine(small):
    before = answers(small)
    for file in small.glob("*.parquet"):
        rewritten(file, lambda h: {"SCHEMA": h["SCHEMA"], "SOMETHING_NEW": "x"})
    assert differing(before, answers(small)) == []


def test_record_positions_are_not_believed(small):
    """Nonsense in them changes no row: they are not used."""
    before = answers(small)
    for file in small.glob("*.parquet"):
        base = "BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS"
        extra = {"RECORD_POSITIONS": "////", base: "20260101000000000"}
        rewritten(file, lambda h: {**h, **extra})  # noqa: B023 - called at once
    assert differing(before, answers(small)) == []


@pytest.mark.parametrize("kind", ["log", "deletes"])
def test_a_file_that_is_cut_off_emptied_or_gone_is_damage(kind, small):
    file = newest(small, kind)
    content = file.read_bytes()
    for damaged in (b"", content[:-9], content[: len(content) // 2], content[:-4] + b"PAR2"):
        file.write_bytes(damaged)
        with pytest.raises(CorruptTable) as caught:
            mainstem.open_table(small).scan().to_arrow()
        assert file.name in str(caught.value)
    file.unlink()
    with pytest.raises(CorruptTable, match="it is gone"):
        mainstem.open_table(small).scan().to_arrow()


def test_bytes_changed_by_chance_are_an_error_or_change_nothing_that_is_read(small):
    """Whatever is in a footer or a page: an error of ours, never another, and never a row more.

    From version 19 on pyarrow ends the process for some footers (docs/damage.md), so these are left out.
    """
    file, chance = newest(small), random.Random(7)
    content = file.read_bytes()
    keys = set(KEYS)
    last = len(content)
    if int(pa.__version__.partition(".")[0]) >= 19:
        last -= 8 + int.from_bytes(content[-8:-4], "little")
    for _ in range(150):
        changed = bytearray(content)
        changed[chance.randrange(last)] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        try:
            found = mainstem.open_table(small).scan(columns=["id"]).to_arrow()
        except mainstem.MainstemError:
            continue
        assert found.num_rows <= len(keys)


@pytest.mark.parametrize("ending", ["orc", "lance", "vortex", "hfile"])
def test_a_native_log_of_another_format_is_refused_by_name(ending, small):
    file = newest(small)
    other = file.with_suffix(f".{ending}")
    file.rename(other)
    rename_in_commits(small, file.name, other.name)
    with pytest.raises(Unsupported, match=rf"{ending}'; parquet can be read"):
        mainstem.open_table(small).scan().to_arrow()


def rename_in_commits(path: Path, old: str, new: str) -> None:
    from mainstem.layout.committed_files import forget

    for commit in (path / ".hoodie/timeline").glob("*.deltacommit"):
        data = commit.read_bytes()
        if old.encode() in data:
            from mainstem.formats.avro_container import decode_container, encode_container
            from mainstem.timeline.commit_metadata import VERSION_MARK, schema_text

            record, _ = decode_container(data, path=commit.name)
            for stat in itertools.chain.from_iterable(record["partitionToWriteStats"].values()):
                if stat["path"] == old:
                    stat["path"] = new
            commit.write_bytes(encode_container(schema_text("HoodieCommitMetadata"), record, VERSION_MARK))
    forget()


def test_a_file_under_the_name_or_with_the_header_of_another_kind_is_an_error(small):
    """Java writes every column of the header; rows of nulls would win over what is there."""
    file, deletes = newest(small), newest(small, "deletes")
    kept = deletes.read_bytes()
    write_native(deletes, some_rows(random.Random(4), KEYS[:2], 3, False), header(deletes))
    resize_commits(deletes, deletes.stat().st_size)
    with pytest.raises(CorruptTable, match=r"deletes file without the column _hoodie_record_key"):
        mainstem.open_table(small).scan().to_arrow()
    deletes.write_bytes(kept)
    resize_commits(deletes, len(kept))
    for other, text in ((deletes, header(deletes)), (deletes, header(file))):
        size = write_native(file, pq.read_table(other), text)
        resize_commits(file, size)
        for columns in (None, ["id"], ["name"]):
            words = r"without the column '\w+', which its header names"
            with pytest.raises(CorruptTable, match=words) as caught:
                mainstem.open_table(small).scan(columns=columns).to_arrow()
            assert file.name in str(caught.value)


def test_deletes_that_are_ordered_by_other_fields_than_the_table_are_refused(small):
    file = newest(small, "deletes")
    rows = pq.read_table(file)
    write_native(file, rows.rename_columns(["_hoodie_record_key", "seq"]), header(file))
    resize_commits(file, file.stat().st_size)
    with pytest.raises(Unsupported, match="ordered by seq, the table by ts"):
        mainstem.open_table(small).scan().to_arrow()


def test_deletes_without_ordering_columns_are_unconditional(small):
    """As a table leaves them whose merge mode was commit time ordering."""
    file = newest(small, "deletes")
    write_native(file, pq.read_table(file).select(["_hoodie_record_key"]), header(file))
    resize_commits(file, file.stat().st_size)
    assert KEYS[1] not in mainstem.open_table(small).scan().to_arrow()["id"].to_pylist()


def test_a_delete_whose_ordering_value_is_zero_is_a_value_and_null_is_none(small):
    """A delete block takes 0 for none; a native file tells them apart."""
    file = newest(small, "deletes")
    for value, there in ((0, True), (None, False), (1000, False)):
        rows = pa.table({"_hoodie_record_key": KEYS[1:2], "ts": pa.array([value], pa.int64())})
        write_native(file, rows, header(file))
        resize_commits(file, file.stat().st_size)
        found = mainstem.open_table(small).scan().to_arrow()
        ts = dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)).get(KEYS[1])
        assert (KEYS[1] in found["id"].to_pylist()) == ((there and ts != 0) or (there and ts is not None))


def test_files_of_instants_that_did_not_complete_are_not_even_opened(small):
    """A half file of a writer that is still at work, or died."""
    before = answers(small)
    file = newest(small)
    for instant in ("20990101000000000", file.name.split("_")[2][:-1] + "0"):
        name = file.name.replace(file.name.split("_")[2], instant)
        if not (small / name).exists():
            (small / name).write_bytes(b"PAR1 half")
    assert differing(before, answers(small)) == []


# -------------------- what Java gets wrong


@pytest.mark.disk("it counts how often files of a disk are opened")
@pytest.mark.parametrize(("few", "times"), ((64, 1), (1, 2)))
def test_log_files_stay_open_from_their_footer_to_their_rows_where_they_are_few(
    few, times, tmp_path, monkeypatch
):
    table = mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", ordering="ts", buckets=1, table_version=10,
        properties=OPTIONS,
    )  # fmt: skip
    for step in (1, 2):
        table.upsert(some_rows(random.Random(step), KEYS, step, deletes=False))
    opened: Counter[str] = Counter()

    def open_input(storage, path, real=LocalStorage.open_input):
        opened[path] += ".log." in path
        return real(storage, path)

    monkeypatch.setattr(LocalStorage, "open_input", open_input)
    monkeypatch.setattr(log_rows, "_OPEN_MAX", few)

    assert sorted(table.scan().to_arrow().column("id").to_pylist()) == KEYS
    assert [count for count in opened.values() if count] == [times, times]


def test_time_travel_of_an_lsm_tree_table_is_what_its_steps_wrote(tmp_path):
    """Java shows the newest state of the slice at every instant; what each step wrote stands in the json."""
    for name in ("v10_lsm_tree_event", "v10_lsm_tree_commit"):
        table = mainstem.open_table(unpack(name, tmp_path))
        rows: dict[int, list[Any]] = {}
        asked = 0
        for step in expectations(name)["steps"]:
            by_event = name.endswith("event")
            for row in step.get("rows", ()):
                if step["operation"] == "delete":
                    rows.pop(row[0], None)
                elif not by_event or row[0] not in rows or row[4] >= rows[row[0]][4]:
                    rows[row[0]] = row
            if not step.get("rows"):
                continue
            requested, completion = step["completed"][0].split(".")[0].split("_")
            for plan in (table.scan(as_of=requested), table.scan(as_of_completion=completion)):
                found = plan.to_arrow()
                found = found.select(["id", "city", "name", "price", "ts"])
                user = Counter(map(row_text, encoded_rows(found)))
                assert user == Counter(row_text(row) for row in rows.values()), (name, step["what"])
                asked += 1
        assert asked == 14


def test_two_ordering_fields_give_the_rows_of_the_same_writes_in_version_9(tmp_path):
    """Java 1.3.0-SNAPSHOT fails on its own table; Java 1.2.0 read what the same script wrote."""
    name = "merge_multi_ordering.logs"
    found = mainstem.open_table(unpack(f"v10_{name}", tmp_path)).scan().to_arrow()
    (query,) = [q for q in expectations(name)["queries"] if q["kind"] == "snapshot"]
    java = expectations(name)["rowsets"][query["rowset"]]
    user = found.select(found.schema.names[5:])
    assert encoded(user) == Counter(row_text(row[5:]) for row in java["rows"])


def test_the_files_that_java_wrote_are_all_taken_for_logs_and_none_for_a_base_file(tmp_path):
    for name in ("v10_basic_mdt", "v10_cdc_mor_data_before_after", "v10_upgraded_9_to_10_event"):
        path = unpack(name, tmp_path)
        native = [f.name for f in path.rglob("*") if ".log." in f.name[1:] and not f.name.startswith(".")]
        native += [f.name for f in path.rglob("*.deletes.*")] + [f.name for f in path.rglob("*.cdc.parquet")]
        native = [file for file in native if not file.endswith(".crc")]
        assert native
        for file in native:
            log = paths.parse_log_name(file)
            assert log is not None and log.is_native and paths.is_native_log(f"a/{file}"), file
            assert paths.parse_base_name(file) is None and paths.parse_hfile_name(file) is None, file
            assert paths.file_id_of(file) == file.split("_")[0]
        shutil.rmtree(path)
