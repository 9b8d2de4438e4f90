"""Goal: tables of merge mode CUSTOM are merged by functions that the process registered, and by Hudi's own
payload classes as Hudi maps them; everything else is refused by name.

Method: tables on the local file system through the public API, with a merger that adds amounts up, so
that every row that is lost, doubled or merged in the wrong order changes the result.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import mainstem
from mainstem.errors import Invalid, Unsupported
from mainstem.merge.rules import MergeRules, merge_rules

SUM = "5d6ac5c1-6cb5-4f3e-8d2e-0f6f2f1b7a01"
UNKNOWN = "5d6ac5c1-6cb5-4f3e-8d2e-0f6f2f1b7a02"
SCHEMA = pa.schema(
    [("id", pa.string()), ("amount", pa.int64()), ("trace", pa.string()), ("_hoodie_is_deleted", pa.bool_())]
)


def add_up(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Amounts are added, traces joined in order; a sum of zero deletes the row. Order is not kept."""
    assert older.column("_hoodie_record_key").to_pylist() == newer.column("_hoodie_record_key").to_pylist()
    amounts = pc.add(older["amount"], newer["amount"])
    traces = pc.binary_join_element_wise(older["trace"], newer["trace"], "")
    at = newer.schema.get_field_index
    merged = newer.set_column(at("amount"), "amount", amounts).set_column(at("trace"), "trace", traces)
    return merged.filter(pc.not_equal(amounts, 0)).sort_by([("_hoodie_record_key", "descending")])


@pytest.fixture(autouse=True)
def registered():
    mainstem.register_merger(SUM.upper(), add_up)


def make(tmp_path, strategy=SUM, layout=None):
    version = {} if layout is None else {"hoodie.table.storage.layout": layout}
    return mainstem.create_table(
        tmp_path / "t", SCHEMA, record_key="id", buckets=1, table_version=9 if layout is None else 10,
        properties={
            **version,
            "hoodie.mainstem.exclusive": True, "hoodie.mainstem.fsync": False,
            "hoodie.record.merge.mode": "CUSTOM", "hoodie.record.merge.strategy.id": strategy,
        },
    )  # fmt: skip


def rows(*pairs, trace="x", gone=None):
    return pa.table(
        {
            "id": [k for k, _ in pairs], "amount": [v for _, v in pairs],
            "trace": [trace] * len(pairs), "_hoodie_is_deleted": [gone] * len(pairs),
        },
        schema=SCHEMA,
    )  # fmt: skip


def content(table, **options):
    found = table.scan(columns=["id", "amount"], **options).to_arrow()
    assert found.num_rows == len(set(found["id"].to_pylist()))
    return dict(zip(found["id"].to_pylist(), found["amount"].to_pylist(), strict=True))


@pytest.mark.supports("Merging", "custom mergers, as registered Python functions")
def test_a_registered_function_merges_log_rows_and_then_base_and_log(tmp_path):
    table = make(tmp_path)
    table.bulk_insert(rows(("a", 1), ("b", 1), ("c", 1), ("a", 10), trace="0"))
    for number in (1, 2, 3):
        table.upsert(rows(("b", 2 * number), ("d", number), trace=str(number)))
    assert content(table) == {"a": 11, "b": 13, "c": 1, "d": 6}
    traces = table.scan(columns=["id", "trace"]).to_arrow().sort_by("id")["trace"].to_pylist()
    assert traces == ["00", "0123", "0", "123"]
    assert content(table, filter=pc.field("amount") > 6) == {"a": 11, "b": 13}
    assert content(table, mode="read_optimized") == {"a": 11, "b": 1, "c": 1}


@pytest.mark.parametrize("layout, trace", [("default", "0(1(2)(3))"), ("lsm_tree", "0(1)(2)(3)")])
def test_in_an_lsm_tree_the_function_meets_the_base_files_row_first(tmp_path, layout, trace):
    def traced(older, newer):
        told = pc.binary_join_element_wise(older["trace"], "(", newer["trace"], ")", "")
        return newer.set_column(newer.schema.get_field_index("trace"), "trace", told)

    mainstem.register_merger(SUM, traced)
    table = make(tmp_path, layout=layout)
    table.upsert(rows(("a", 1), ("b", 1), ("c", 1), trace="0"))
    table.compact()
    for number in (1, 2, 3):
        table.upsert(rows(("a", 1), ("d", 1), trace=str(number)))
    table.delete(rows(("b", 0)).select(["id"]))
    traces = table.scan(columns=["id", "trace"]).to_arrow().sort_by("id")
    assert traces.to_pylist() == [
        {"id": "a", "trace": trace}, {"id": "c", "trace": "0"}, {"id": "d", "trace": "1(2)(3)"}
    ]  # fmt: skip
    table.compact()
    assert table.scan(columns=["id", "trace"]).to_arrow().sort_by("id") == traces


def test_deletes_take_away_what_came_before_and_later_rows_begin_anew(tmp_path):
    table = make(tmp_path)
    table.bulk_insert(rows(("a", 1), ("b", 1), ("c", 1)))
    table.upsert(rows(("a", 5), ("d", 5)))
    table.delete(rows(("a", 0), ("b", 0), ("d", 0)).select(["id"]))
    table.upsert(rows(("a", 7), ("e", 1)))
    table.upsert(rows(("e", 1), gone=True))
    assert content(table) == {"a": 7, "c": 1}


def test_a_key_that_the_function_leaves_out_is_deleted(tmp_path):
    table = make(tmp_path)
    table.bulk_insert(rows(("a", 1), ("b", 1)))
    table.upsert(rows(("a", -1), ("c", 2)))
    table.upsert(rows(("c", -2)))
    assert content(table) == {"b": 1}
    table.upsert(rows(("c", 3)))
    assert content(table) == {"b": 1, "c": 3}


def test_a_strategy_that_is_not_registered_is_refused_by_name(tmp_path):
    with pytest.raises(Unsupported, match=UNKNOWN):
        make(tmp_path, UNKNOWN)


@pytest.mark.parametrize("strategy", ["sum", "", "org.example.Merger"])
def test_strategy_ids_are_uuids(strategy):
    with pytest.raises(Invalid, match="expected a UUID"):
        mainstem.register_merger(strategy, add_up)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda older, newer: newer.to_pylist(),
        lambda older, newer: newer.drop_columns(["trace"]),
        lambda older, newer: pa.concat_tables([newer, newer]),
    ],
    ids=["no table", "a column less", "a key twice"],
)
def test_what_a_function_returns_is_checked(tmp_path, wrong):
    table = make(tmp_path)
    table.upsert(rows(("a", 1)))
    table.upsert(rows(("a", 2)))
    mainstem.register_merger(SUM, wrong)
    with pytest.raises(Invalid, match="a registered merger returned"):
        table.scan().to_arrow()


MODEL = "org.apache.hudi.common.model."


def by_payload(payload, ordering="ts", **more):
    return {
        "hoodie.table.version": "8", "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
        "hoodie.compaction.payload.class": MODEL + payload,
        "hoodie.table.precombine.field": ordering, **more,
    }  # fmt: skip


@pytest.mark.supports("Merging", "Hudi's payload classes")
@pytest.mark.parametrize(
    ("payload", "ordering", "rules"),
    [
        ("DefaultHoodieRecordPayload", "ts", MergeRules(("ts",))),
        ("EventTimeAvroPayload", "ts", MergeRules(("ts",))),
        ("OverwriteWithLatestAvroPayload", "ts", MergeRules()),
        ("PartialUpdateAvroPayload", "ts", MergeRules(("ts",), "IGNORE_DEFAULTS")),
        ("OverwriteNonDefaultsWithLatestAvroPayload", "ts", MergeRules((), "IGNORE_DEFAULTS")),
        ("AWSDmsAvroPayload", "ts", MergeRules(delete_field="Op", delete_marker="D")),
        (
            "debezium.PostgresDebeziumAvroPayload",
            "_event_lsn",
            MergeRules(
                ("_event_lsn",), "FILL_UNAVAILABLE", "__debezium_unavailable_value",
                delete_field="_change_operation_type", delete_marker="d",
            ),
        ),
        (
            "debezium.MySqlDebeziumAvroPayload",
            "_event_bin_file,_event_pos",
            MergeRules(
                ("_event_bin_file", "_event_pos"),
                delete_field="_change_operation_type", delete_marker="d",
            ),
        ),
    ],
)  # fmt: skip
def test_hudis_payload_classes_become_the_rules_that_hudi_maps_them_to(payload, ordering, rules):
    assert merge_rules(by_payload(payload, ordering)) == rules


@pytest.mark.parametrize(
    ("properties", "needle"),
    [
        (by_payload("OverwriteWithSomethingPayload"), "OverwriteWithSomethingPayload"),
        (by_payload("debezium.MySqlDebeziumAvroPayload", "_event_seq"), "_event_bin_file, _event_pos"),
        (by_payload("EventTimeAvroPayload", ""), "an ordering field"),
        (
            by_payload("EventTimeAvroPayload", **{"hoodie.record.merge.strategy.id": UNKNOWN}),
            UNKNOWN,
        ),
    ],
    ids=["unknown class", "other ordering", "no ordering", "another merger"],
)
def test_other_payload_classes_and_mergers_are_refused_by_name(properties, needle):
    with pytest.raises(Unsupported, match=needle):
        merge_rules(properties)
