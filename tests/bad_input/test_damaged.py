"""Goal: damaged or hostile files are named with path and offset, cost no memory, and nothing
follows a path that leaves the table.

Method: single fields of real log files, timeline files and plans are overwritten with hostile
values; reads and writes go through the public API. (The parsers themselves are tested byte by byte
in ``tests/formats``.)
"""

from __future__ import annotations

import resource
import struct
from pathlib import Path

import pytest

import mainstem
from bad_input.common import edit_properties, is_clear, rows
from mainstem.errors import CorruptTable, MainstemError
from mainstem.timeline.commit_metadata import WriteStat, encode_commit
from mainstem.timeline.plans import encode_rollback_plan


def _log(path: Path) -> Path:
    return next(
        p for p in sorted(path.rglob(".*.log.*")) if ".hoodie" not in p.relative_to(path).parts
    )


def _put(file: Path, offset: int, data: bytes) -> None:
    content = bytearray(file.read_bytes())
    content[offset : offset + len(data)] = data
    file.write_bytes(content)


def _content_start(data: bytes) -> int:
    """Offset of the block content: behind magic, size, version, kind, headers and content
    length.
    """
    count = struct.unpack_from(">i", data, 22)[0]
    at = 26
    for _ in range(count):
        at += 8 + struct.unpack_from(">i", data, at + 4)[0]
    return at + 8


DAMAGE = {
    "magic": lambda d: (0, b"XHUDI#"),
    "size_huge": lambda d: (6, struct.pack(">q", 2**62)),
    "size_two_gib": lambda d: (6, struct.pack(">q", 2**31 - 1)),
    "size_negative": lambda d: (6, struct.pack(">q", -1)),
    "size_wrong": lambda d: (6, struct.pack(">q", len(d) - 15)),
    "version": lambda d: (14, struct.pack(">i", 99)),
    "kind": lambda d: (18, struct.pack(">i", 77)),
    "header_count": lambda d: (22, struct.pack(">i", 2**31 - 1)),
    "header_length": lambda d: (30, struct.pack(">i", 2**31 - 1)),
    "header_length_negative": lambda d: (30, struct.pack(">i", -5)),
    "content_length": lambda d: (_content_start(d) - 8, struct.pack(">q", 2**40)),
    "record_count": lambda d: (_content_start(d) + 4, struct.pack(">i", 2**31 - 1)),
    "record_count_negative": lambda d: (_content_start(d) + 4, struct.pack(">i", -1)),
    "record_length": lambda d: (_content_start(d) + 8, struct.pack(">i", 2**31 - 1)),
    "record_length_negative": lambda d: (_content_start(d) + 8, struct.pack(">i", -9)),
    "string_length": lambda d: (_content_start(d) + 13, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    "trailer": lambda d: (len(d) - 8, struct.pack(">q", 1)),
    "schema": lambda d: (d.index(b'{"type"'), b"[" * 200),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_log_block_is_an_error_with_path_and_offset_and_costs_no_memory(
    name: str, table, path: Path
) -> None:
    file = _log(path)
    data = file.read_bytes()
    _put(file, *DAMAGE[name](data))
    assert file.read_bytes() != data
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with pytest.raises(MainstemError) as caught:
        mainstem.open_table(path).scan().to_arrow()
    is_clear(str(caught.value), (file.name.replace(".", r"\."), r"offset \d+"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mib < 200
    file.write_bytes(data)
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 3


@pytest.mark.parametrize("keep", [5, 13, 20, 60, -1, -10])
def test_a_log_file_that_is_cut_off_is_an_error_and_skipping_is_an_option(
    keep, table, path
) -> None:
    file = _log(path)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path).scan().to_arrow()
    is_clear(str(caught.value), (file.name.replace(".", r"\."), "offset 0", "restore|skip"))
    found = mainstem.open_table(path, {"mainstem.read.damaged": "skip"}).scan().to_arrow()
    assert found.num_rows < 3


def test_others_go_on_writing_beside_a_damaged_file(table, path: Path) -> None:
    file = _log(path)
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    assert mainstem.open_table(path).upsert(rows("d")).status == "committed"
    file.write_bytes(whole)
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 4


def test_a_missing_log_file_is_not_passed_over_in_silence(table, path: Path) -> None:
    """Java's listing simply does not see a file that was removed; whoever wants that says so."""
    gone = _log(path)
    gone.unlink()
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path).scan().to_arrow()
    is_clear(str(caught.value), (gone.name.replace(".", r"\."), "no clean removed it", "restore it", "skip"))
    skipping = mainstem.open_table(path, {"mainstem.read.damaged": "skip"})
    assert skipping.scan().to_arrow().num_rows < 3


def _completed(path: Path) -> Path:
    return next((path / ".hoodie" / "timeline").glob("*_*.deltacommit"))


@pytest.mark.parametrize(
    "data",
    [b"garbage", b"", b"Obj\x01" + b"\xff" * 200, b"{}"],
    ids=["text", "empty", "avro", "json"],
)
def test_a_damaged_commit_is_named(data: bytes, table, path: Path) -> None:
    file = _completed(path)
    whole = file.read_bytes()
    file.write_bytes(data)
    fresh = mainstem.open_table(path)
    with pytest.raises(CorruptTable) as caught:
        fresh.changes(after="0").to_arrow()
    is_clear(str(caught.value), (file.name.replace(".", r"\."),))
    with pytest.raises(CorruptTable):
        fresh.upsert(rows("d"))
    file.write_bytes(whole)
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 3
    assert not [i for i in mainstem.open_table(path).timeline() if not i.is_completed]


@pytest.mark.parametrize(
    ("partition", "name"),
    [
        ("../../etc", ".00000000-0000-0000-0000-000000000000-0_{t}.log.1_0-0-0"),
        ("/etc", ".00000000-0000-0000-0000-000000000000-0_{t}.log.1_0-0-0"),
        ("paris", "../../../etc/passwd"),
        ("paris/../..", ".00000000-0000-0000-0000-000000000000-0_{t}.log.1_0-0-0"),
    ],
)
def test_a_commit_that_names_files_outside_the_table_is_refused(
    partition: str, name: str, table, path: Path
) -> None:
    file = _completed(path)
    time = file.name.split("_")[0]
    stat = WriteStat(
        partition, "00000000-0000-0000-0000-000000000000-0", name.format(t=time), time, 1
    )
    schema = {"schema": mainstem.open_table(path).properties["hoodie.table.create.schema"]}
    file.write_bytes(encode_commit([stat], schema, "UPSERT"))
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path).changes(after="0").to_arrow()
    is_clear(str(caught.value), (file.name.replace(".", r"\."), "leaves the table|no table path"))


@pytest.mark.parametrize(
    ("instant", "action"),
    [
        ("../../../victim", "deltacommit"),
        ("20260101000000000/../../../victim", "deltacommit"),
        ("20260101000000000", "../../../victim"),
    ],
)
def test_a_rollback_plan_cannot_reach_outside_the_table(instant, action, table, path) -> None:
    victim = path.parent / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    plan = encode_rollback_plan(instant, action, [("../victim", "f", "precious")], str(path))
    request = path / ".hoodie" / "timeline" / "20260101000000001.rollback.requested"
    request.write_bytes(plan)
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path).rollback_failed_writes()
    is_clear(str(caught.value), (request.name.replace(".", r"\."), "victim", "rollback of"))
    assert (victim / "precious").exists()
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 3


@pytest.mark.disk("only a disk has symbolic links")
def test_a_rollback_follows_no_symbolic_link_out_of_the_table(table, path: Path) -> None:
    victim = path.parent / "victim"
    victim.mkdir()
    (victim / "precious").write_text("x")
    dead = "20260101000000000"
    timeline = path / ".hoodie" / "timeline"
    (timeline / f"{dead}.deltacommit.requested").write_bytes(b"")
    (path / ".hoodie" / ".temp" / dead).symlink_to(victim, target_is_directory=True)
    try:
        mainstem.open_table(path).rollback_failed_writes()
    except MainstemError as error:
        is_clear(str(error), ("symbolic link|Too many levels",))
    assert (victim / "precious").exists()
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 3


def test_a_partition_that_is_a_symbolic_link_is_not_followed_for_deletion(table, path) -> None:
    outside = path.parent / "outside"
    outside.mkdir()
    dead = "20260101000000000"
    name = f".00000000-0000-0000-0000-000000000000-0_{dead}.log.1_0-0-0"
    (outside / name).write_text("x")
    (outside / ".hoodie_partition_metadata").write_text("")
    (path / "linked").symlink_to(outside, target_is_directory=True)
    timeline = path / ".hoodie" / "timeline"
    (timeline / f"{dead}.deltacommit.requested").write_bytes(b"")
    mainstem.open_table(path).rollback_failed_writes()
    assert (outside / name).exists()


def test_a_properties_file_without_measure_is_not_loaded(table, path: Path) -> None:
    file = path / ".hoodie" / "hoodie.properties"
    with file.open("ab") as out:
        out.write(b"#" * (5 << 20))
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path)
    is_clear(str(caught.value), ("hoodie.properties", "bytes", "at most"))


def test_a_malformed_escape_in_the_properties_is_named(table, path: Path) -> None:
    edit_properties(path, hoodie__note="\\uZZZZ")
    with pytest.raises(CorruptTable) as caught:
        mainstem.open_table(path)
    is_clear(str(caught.value), ("hoodie.properties", "ZZZZ"))


def test_an_instant_with_an_impossible_time_is_an_error_for_writers(table, path: Path) -> None:
    odd = path / ".hoodie" / "timeline" / "99999999999999999.deltacommit.requested"
    odd.write_bytes(b"")
    with pytest.raises(MainstemError) as caught:
        mainstem.open_table(path).upsert(rows("d"))
    is_clear(str(caught.value), ("99999999999999999",))
    odd.unlink()
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 3


def test_names_that_no_engine_writes_are_ignored(table, path: Path) -> None:
    timeline = path / ".hoodie" / "timeline"
    for name in (
        "x",
        "2026.deltacommit",
        "20260101000000000.deltacommit.requested.tmp",
        "a b.commit",
    ):
        (timeline / name).write_bytes(b"junk")
    for name in ("notes.txt", ".x_y.log.z", ".hidden", "..log.1_0-0-0"):
        (path / "paris" / name).write_bytes(b"junk")
    assert mainstem.open_table(path).upsert(rows("d")).status == "committed"
    assert mainstem.open_table(path).scan().to_arrow().num_rows == 4
