"""Goal: every option of Hudi's Flink connector does what it says, is harmless, or is refused by name.

Method: options are parsed as a WITH clause or a hint gives them; no Flink is needed. The list in
docs/flink.md is compared with the code's.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from mainstem.api.job_table import asked_indexes
from mainstem.errors import Invalid, MainstemError, Unsupported
from mainstem.flink.option_list import BY_NAME, FIXED, NO_EFFECT, OPTIONS
from mainstem.flink.options import FlinkOptions
from mainstem.options.services import CLEAN_COMMITS
from mainstem.services.service_switches import CLEANING, COMPACTION, RunOptions

BASE = {"connector": "hudi", "path": "/data/t1", "table.type": "MERGE_ON_READ", "index.type": "BUCKET"}


def parsed(**more: str) -> FlinkOptions:
    return FlinkOptions.parse({**BASE, **more}, name="t1")


def documented() -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "flink.md").read_text(encoding="utf-8")
    table = text.partition("\n| option | default | | |\n")[2].partition("\n\n")[0]
    return table.splitlines()[1:]


def test_the_table_in_the_documentation_is_the_list_in_the_code() -> None:
    expected = []
    for option in OPTIONS:
        names = f"`{option.name}`"
        if option.aliases:
            names += f" ({', '.join(f'`{name}`' for name in option.aliases)})"
        plain = not option.default or " " in option.default
        default = (option.default or "–") if plain else f"`{option.default}`"
        expected.append(f"| {names} | {default} | {option.what} | {option.note} |")
    assert documented() == expected


def test_no_name_stands_for_two_options() -> None:
    assert len(BY_NAME) == sum(1 + len(option.aliases) for option in OPTIONS)


@pytest.mark.supports("Engines", "Flink SQL: options of Hudi's connector")
@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_default_of_every_option_is_taken(option) -> None:
    if " " in option.default or option.name in ("connector", "path", "table.type", "index.type"):
        return
    if option.name in ("write.tasks", "compaction.tasks", "hoodie.write.concurrency.mode", "ordering.fields"):
        return
    if not option.default and option.what != FIXED:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed(**{option.name: option.default})


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.what == FIXED], ids=lambda option: option.name)
def test_another_value_of_a_fixed_option_is_refused_with_the_reason(option) -> None:
    other = {"true": "false", "false": "true"}.get(option.default, "7")
    for name in (option.name, *option.aliases):
        with pytest.raises(Unsupported) as error:
            parsed(**{name: other})
        assert name in str(error.value)
        assert option.note in str(error.value)


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.what == NO_EFFECT],
    ids=lambda option: option.name,
)  # fmt: skip
def test_an_option_without_effect_changes_nothing(option) -> None:
    assert parsed(**{option.name: "1"}) == parsed()


@pytest.mark.parametrize("name", ["metadata.enabled", "hoodie.metadata.enable"])
def test_what_a_job_asks_of_the_metadata_table_is_taken_without_a_warning(name) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked = parsed(**{name: "true", "hoodie.metadata.index.column.stats.enable": "true"})
        assert asked_indexes(asked.passed) == ["files", "column_stats"]
        assert asked_indexes(parsed(**{name: "false"}).passed) == []
        assert asked_indexes(parsed().passed) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("write.taks", "write.tasks"),
        ("compaction.delta_comits", "compaction.delta_commits"),
        ("read.start_commit", "read.start-commit"),
        ("hoodie.bucket.index.num.bucket", "hoodie.bucket.index.num.buckets"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(name, meant) -> None:
    with pytest.raises(Invalid, match=meant):
        parsed(**{name: "1"})


def test_an_unknown_hoodie_option_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match=r"hoodie\.no\.such\.thing"):
        parsed(**{"hoodie.no.such.thing": "1"})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"write.operation": "insert_overwrite"}, "at each checkpoint"),
        ({"write.operation": "delete"}, "open_table"),
        ({"write.operation": "merge"}, "expected upsert"),
        ({"write.tasks": "0"}, "from 1"),
        ({"write.tasks": "many"}, "whole number"),
        ({"payload.class": "com.example.Mine"}, "merge.mode"),
        ({"payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"}, "merge.mode"),
        ({"record.merger.impls": "com.example.Mine"}, "merge.mode"),
        ({"record.merger.strategy": "00000000-0000-0000-0000-000000000001"}, "merge.mode"),
        ({"hoodie.write.concurrency.mode": "SINGLE_WRITER"}, "NON_BLOCKING_CONCURRENCY_CONTROL only"),
        ({"compaction.delta_commits": "often"}, "whole number"),
        ({"compaction.async.enabled": "yes"}, "true or false"),
        ({"read.start-commit": "yesterday"}, "completion time"),
        ({"read.end-commit": "earliest"}, "completion time"),
        ({"hoodie.datasource.query.type": "read_optimized", "read.streaming.enabled": "true"}, "base files"),
        ({"clean.retain_commits": "3", "hoodie.clean.commits.retained": "4"}, "contradicts"),
        ({"ordering.fields": "a", "precombine.field": "b"}, "contradicts"),
        *(({"hoodie.vector.columns": text}, "expected column:dimension")
          for text in ("a:0", "a:4:4", ":4", "a:", "a:x", "a:4,A:4", "a:65537", "a b:4")),
        ({"path": "data/t1"}, "relative"),
        ({"path": "viewfs://name/t1"}, "scheme"),
        ({"path": ""}, "path"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused(options, words) -> None:
    with pytest.raises(MainstemError, match=words):
        parsed(**options)


@pytest.mark.parametrize("name", ["ordering.fields", "precombine.field", "write.precombine.field",
                                  "hoodie.datasource.write.precombine.field"])  # fmt: skip
def test_older_names_mean_the_same(name) -> None:
    assert parsed(**{name: "ts1"}).table["hoodie.table.ordering.fields"] == "ts1"


@pytest.mark.parametrize(
    ("option", "value", "mode", "partial"),
    [
        ("payload.class", "org.apache.hudi.common.model.EventTimeAvroPayload", "EVENT_TIME_ORDERING", None),
        ("payload.class", "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
         "COMMIT_TIME_ORDERING", None),
        ("payload.class", "org.apache.hudi.common.model.PartialUpdateAvroPayload", "EVENT_TIME_ORDERING",
         "IGNORE_DEFAULTS"),
        ("record.merger.impls", "org.apache.hudi.client.model.CommitTimeFlinkRecordMerger",
         "COMMIT_TIME_ORDERING", None),
        ("record.merger.impls", "org.apache.hudi.client.model.PartialUpdateFlinkRecordMerger",
         "EVENT_TIME_ORDERING", "IGNORE_DEFAULTS"),
        ("record.merger.strategy", "ce9acb64-bde0-424c-9b91-f6ebba25356d", "COMMIT_TIME_ORDERING", None),
    ],
)  # fmt: skip
def test_merge_classes_are_merge_modes(option, value, mode, partial) -> None:
    table = parsed(**{option: value}).table
    assert table["hoodie.record.merge.mode"] == mode
    assert table.get("hoodie.table.partial.update.mode") == partial


def test_services_run_beside_the_job_with_flinks_defaults() -> None:
    passed = parsed().passed
    assert {COMPACTION, CLEANING} <= set(RunOptions.from_properties(passed).beside)
    assert passed[CLEAN_COMMITS] == "30"
    assert passed["hoodie.keep.max.commits"] == "50"


def test_the_second_pipeline_runs_no_services() -> None:
    off = ("compaction.schedule.enabled", "compaction.async.enabled", "clean.async.enabled")
    run = RunOptions.from_properties(parsed(**dict.fromkeys(off, "false")).passed)
    assert not {COMPACTION, CLEANING} & set(run.beside)


def test_options_of_services_go_on_under_hudis_names() -> None:
    passed = parsed(**{"compaction.delta_commits": "7", "clean.retain_commits": "3"}).passed
    assert passed["hoodie.compact.inline.max.delta.commits"] == "7"
    assert passed[CLEAN_COMMITS] == "3"


def test_vector_columns_are_parsed_as_in_hudi() -> None:
    assert parsed(**{"hoodie.vector.columns": "Embedding:4, codes ,x: 16,"}).vectors == {
        "embedding": 4, "codes": 128, "x": 16,
    }  # fmt: skip
    assert parsed().vectors == {}


def test_reading_is_parsed_once() -> None:
    read = parsed(**{
        "read.streaming.enabled": "true", "read.start-commit": "earliest", "read.tasks": "3",
        "read.streaming.check-interval": "2", "read.commits.limit": "5",
    }).read  # fmt: skip
    assert (read.streaming, read.start, read.tasks, read.check_interval_s) == (True, "0", 3, 2)
    assert read.commits_limit == 5
