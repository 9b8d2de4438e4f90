"""Goal: file slices are Hudi's, but for two cases where Java hides committed rows or shows dead
ones.

Method: names and completion times made by hand, one rule per test. Java's own slices of real tables
are compared in tests/golden_tables.
"""

from __future__ import annotations

from mainstem.layout.slicing import base_slice, group_files, query_slice

FILE = "00000000-0000-0000-0000-000000000000-0"


def log(instant, version=1, token="0-0-0", suffix=""):
    return f".{FILE}_{instant}.log.{version}_{token}{suffix}"


def base(instant, token="0-0-0"):
    return f"{FILE}_{token}_{instant}.parquet"


def group(names, times, compaction=None, visible_only=True):
    pending = {FILE: compaction} if compaction else {}
    groups = group_files("p", names, times.get, pending, visible_only=visible_only)
    return groups[0] if groups else None


def shown(found):
    return [(s.base_instant, s.base_file is not None, [n[len(FILE) + 2 :] for n in s.log_files])
            for s in found.slices]  # fmt: skip


def test_a_writer_that_completes_after_a_compaction_belongs_to_the_new_slice():
    times = {"10": "11", "20": "50", "30": "35"}
    found = group([log("10"), log("20"), base("30")], times)
    assert shown(found) == [("30", True, ["20.log.1_0-0-0"]), ("10", False, ["10.log.1_0-0-0"])]


def test_logs_of_one_slice_are_ordered_by_requested_time_then_version_then_token_text():
    times = {"10": "99", "20": "21", "5": "6"}
    names = [
        log("20"),
        log("10", 10),
        log("10", 9),
        log("10", 9, "0-10-5"),
        log("10", 9, "0-9-5"),
        log("5"),
    ]
    (found,) = shown(group(names, times))
    assert found[2] == [
        "10.log.9_0-0-0", "10.log.9_0-10-5", "10.log.9_0-9-5", "10.log.10_0-0-0", "20.log.1_0-0-0",
        "5.log.1_0-0-0",
    ]  # fmt: skip


def test_the_log_of_a_dead_writer_anchors_nothing():
    """Hudi issue 19774: anchored at the dead writer's log, instant 20's rows vanish in Java."""
    times = {"20": "21", "30": "31"}
    names = [log("10"), log("20"), log("30")]
    assert shown(group(names, times)) == [("20", False, ["20.log.1_0-0-0", "30.log.1_0-0-0"])]
    everything = group(names, times, visible_only=False)
    assert [s.base_instant for s in everything.slices] == ["20"]
    assert len(everything.slices[0].log_files) == 3


def test_files_of_instants_that_are_not_completed_are_not_shown():
    times = {"20": "21"}
    found = group([log("10"), log("20"), base("30"), log("40")], times)
    assert shown(found) == [("20", False, ["20.log.1_0-0-0"])]
    assert group([log("10"), base("30")], times) is None


def test_a_pending_compaction_is_a_barrier_and_readers_look_across_it():
    times = {"10": "11", "20": "45", "40": "41"}
    names = [log("10"), log("20"), log("40")]
    found = group(names, times, compaction="30")
    assert [(s.base_instant, s.pending) for s in found.slices] == [("30", True), ("10", False)]
    assert found.slices[1].latest and not found.slices[0].latest
    merged = query_slice(found, None)
    assert [n.split("_")[1][:2] for n in merged.log_files] == ["10", "20", "40"]
    older = query_slice(found, "20")
    assert [n.split("_")[1][:2] for n in older.log_files] == ["10"]


def test_a_pending_compaction_keeps_the_older_base_file_in_every_mode():
    times = {"10": "11", "20": "45"}
    found = group([base("10"), log("20")], times, compaction="30")
    assert query_slice(found, None).base_file == base("10")
    assert base_slice(found, None).base_file == base("10")


def test_a_running_compactions_base_file_is_no_base_file_yet():
    times = {"10": "11", "20": "21"}
    found = group([log("10"), log("20"), base("30")], times, compaction="30")
    assert query_slice(found, None).base_file is None
    assert base_slice(found, None) is None


def test_an_older_time_sees_the_older_slice_without_later_logs():
    times = {"10": "11", "20": "50", "30": "35"}
    found = group([log("10"), log("20"), base("30")], times)
    assert query_slice(found, "20").base_instant == "10"
    assert query_slice(found, "05") is None


def test_change_logs_and_foreign_names_are_ignored():
    times = {"10": "11"}
    names = [
        log("10"), log("10", suffix=".cdc"), ".hoodie_partition_metadata", "x.parquet.crc",
        f".{FILE}_10.log.1_a-b-c", f"{FILE}_10.parquet", "notes.txt",
    ]  # fmt: skip
    assert shown(group(names, times)) == [("10", False, ["10.log.1_0-0-0"])]


def test_groups_of_several_file_ids_stay_apart():
    names = [".a-0_10.log.1_0-0-0", "b-0_0-0-0_10.parquet"]
    groups = group_files("", names, {"10": "11"}.get, {}, visible_only=True)
    assert [(g.file_id, g.slices[0].base_file) for g in groups] == [
        ("a-0", None),
        ("b-0", names[1]),
    ]
