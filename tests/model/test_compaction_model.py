"""Goal: where a compaction changes what later writes do is known completely, named, and Hudi's rule.

Method: every history of up to three writes of one key, cut in every way by up to two compactions, and of
four by one, is answered by a model of Hudi's rules with and without the compactions. Of those that
differ the minimal ones must have a name. Real tables that hold all histories at once are written,
compacted and read by mainstem and must give the model's answers (by Java:
tests/interop/test_interop_compaction_cases.py, and of version 10 test_interop_version_10.py).
"""

from __future__ import annotations

import itertools
import logging
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import mainstem
from mainstem.merge.compaction_cautions import Caution
from tests.model import compaction_model as model
from tests.model.compacted_tables import BY_SQL, KINDS, NATIVE_KINDS, Histories, write_one_after_another
from tests.model.compaction_model import EVENT, MODES, PARTIAL_EVENT, TREE_PARTIAL_EVENT

DOCS = Path(__file__).resolve().parents[2] / "docs" / "services.md"

# Of three writes for one kind of each mode, but the one with the most histories; Java gets more of them.
LENGTHS = dict.fromkeys(
    (
        "event time", "deletes by SQL", "version 10", "lsm tree",
        "commit time", "ignore defaults, commit time",
    ),
    3,
)  # fmt: skip
BY_NAME = pytest.mark.parametrize("kind", [*KINDS, *NATIVE_KINDS, BY_SQL], ids=lambda kind: kind.name)
BY_MODE = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)


@cache
def cases(mode: model.Mode) -> dict[str | None, int]:
    found: dict[str | None, int] = {}
    # Partial rows by event time have too many histories of four writes; three show every case.
    four = [] if mode in (PARTIAL_EVENT, TREE_PARTIAL_EVENT) else [(4, 1)]
    for length, compactions in [(1, 1), (2, 1), (3, 2), *four]:
        for history, layers in model.minimal(mode, length, compactions):
            name = model.case(mode, history, layers)
            assert name is not None, f"{', '.join(map(str, history))} cut as {layers} has no name"
            found[name] = found.get(name, 0) + 1
    return found


@BY_MODE
def test_every_minimal_history_that_a_compaction_changes_has_a_name_and_is_told_to_users(mode, tmp_path):
    table = next(kind for kind in (*KINDS, *NATIVE_KINDS) if kind.mode == mode).make(tmp_path / "t")
    assert set(cases(mode)) == {caution.name for caution in table.cautions}


@BY_MODE
def test_where_no_write_crosses_and_nothing_is_deleted_only_late_partial_rows_can_differ(mode):
    rows = [w for w in model.writes(mode) if w.kind == "row"]
    for layers in model.cuts(3, 2):
        if list(layers) != sorted(layers):
            continue
        differ = any(model.changed(mode, h, layers) for h in itertools.product(rows, repeat=3))
        assert not differ or mode == PARTIAL_EVENT, layers  # not in an LSM tree


def test_rows_with_ordering_values_of_their_own_and_no_deletes_never_differ():
    for layers in model.cuts(3, 2):
        for orders in itertools.permutations(model.ORDERS):
            history = tuple(model.Write("row", order) for order in orders)
            assert not model.changed(EVENT, history, layers)


def documented() -> list[tuple[str, str, str]]:
    """(case, history, "with" / "without" answers) of the table in the documentation."""
    section = DOCS.read_text().split("## Where compaction changes the answer")[1].split("\n## ")[0]
    return re.findall(r"^\| \*\*(.+?)\*\* \|.*?\| `(.+?)` \| (.+?) \|$", section, re.MULTILINE)


def test_the_documented_histories_are_minimal_ones_of_their_case():
    found = documented()
    assert {name for name, _, _ in found} == {name for mode in MODES for name in cases(mode)}
    for name, text, _ in found:
        history, layers = model.parse(text)
        fitting = [m for m in MODES if model.is_minimal(m, history, layers)]
        assert name in {model.case(m, history, layers) for m in fitting}, text


@pytest.mark.supports("Services", "compaction: by Hudi's rules in every short history")
@BY_NAME
def test_our_reader_and_compaction_give_the_models_answers(tmp_path, kind):
    histories = Histories(kind, LENGTHS.get(kind.name, 2))
    table = kind.make(tmp_path / "t")
    histories.write(table, lambda: None)
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=False)
    table.compact()
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=False)
    table = kind.make(tmp_path / "compacted")
    histories.write(table, table.schedule_compaction)
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=False), "only planned"
    table.run_compaction()
    wanted = histories.wanted(compacted=True, keep=kind.keep)
    assert histories.found(table.scan().to_arrow()) == wanted
    table.compact()
    assert histories.found(table.scan().to_arrow()) == wanted


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize(
    "kind", [k for k in (*KINDS, *NATIVE_KINDS, BY_SQL) if k.keep], ids=lambda kind: kind.name
)
def test_writes_after_a_compaction_meet_the_deletes_that_it_kept_as_in_the_model(tmp_path, kind):
    histories = Histories(kind, LENGTHS.get(kind.name, 2), late=True)
    table = kind.make(tmp_path / "t")
    histories.write(table, table.schedule_compaction, table.run_compaction)
    wanted = histories.wanted(compacted=True, keep=kind.keep)
    assert histories.found(table.scan().to_arrow()) == wanted
    assert table.compact()
    assert histories.found(table.scan().to_arrow()) == wanted


@pytest.mark.supports("Services", "compaction: late rows do not bring deleted rows back")
@pytest.mark.parametrize("kind", [KINDS[0], BY_SQL], ids=lambda kind: kind.name)
@pytest.mark.parametrize("compacted", [(), (1,), (2,), (1, 2)], ids=str)
def test_overwrites_hide_rows_and_deletes_and_what_follows_a_compaction_is_as_without(
    tmp_path, kind, compacted
):
    """Every history of three writes, one after another: rows, deletes of each kind, overwrites."""
    histories = list(itertools.product([*model.writes(EVENT), *model.OVERWRITES], repeat=3))
    layers = tuple(sum(at <= number for at in compacted) for number in range(3))
    table = kind.make(tmp_path / "t")
    write_one_after_another(table, kind, histories, compacted)
    wanted = [model.sequential(EVENT, history, layers, keeps=True) for history in histories]
    uncut = [model.sequential(EVENT, history, (0, 0, 0), keeps=True) for history in histories]
    for history, one, other in zip(histories, wanted, uncut, strict=True):
        assert one == other or "delete" in {write.kind for write in history}, history
    for compact in (lambda: None, table.compact):
        compact()
        listed = table.scan(columns=["id", "a"]).to_arrow().to_pylist()
        found = {row["id"]: int(row["a"]) for row in listed}
        assert len(found) == len(listed)
        for key, (history, cells) in enumerate(zip(histories, wanted, strict=True)):
            assert found.get(str(key)) == (None if cells is None else cells[0]), (history, cells)


def test_a_compaction_that_keeps_no_deletes_gives_the_models_answers_too(tmp_path):
    kind = replace(KINDS[0], properties={"hoodie.mainstem.keep.tombstones": "0"})
    histories = Histories(kind, 2, late=True)
    table = kind.make(tmp_path / "t")
    histories.write(table, table.schedule_compaction, table.run_compaction)
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=True)


KEPT = pytest.mark.parametrize("keep", [model.IN_FLIGHT, model.ENDED])


@KEPT
@pytest.mark.parametrize("mode", [EVENT, PARTIAL_EVENT], ids=lambda mode: mode.name)
def test_every_history_that_compactions_change_though_they_keep_deletes_has_a_name(mode, keep):
    found = {
        (model.case(mode, history, layers), begun == layers)
        for length in (2, 3)
        for history, layers, begun in model.minimal_kept(mode, length, 1, keep)
    }
    crossing = {name for name, sequential in found if not sequential}
    assert None not in crossing
    assert ("late row" in crossing) == (keep == model.IN_FLIGHT)
    assert {name for name, sequential in found if sequential} <= {
        "covered delete", "two kinds of deletes", "late partial rows"
    }  # fmt: skip


@KEPT
def test_keeping_deletes_mends_histories_and_harms_none_but_of_two_kinds_of_deletes(keep):
    mended = 0
    for length, compactions in ((2, 1), (3, 2)):
        for layers in model.cuts(length, compactions):
            for begun in model.begins(layers):
                for history in itertools.product(model.writes(EVENT), repeat=length):
                    without = model.changed(EVENT, history, layers)
                    kept = model.changed(EVENT, history, layers, begun, keep)
                    mended += without and not kept
                    assert without or not kept or {w.kind for w in history} == {"row", "flag", "delete"}
    assert mended > 500


def test_where_deletes_have_values_and_no_write_crosses_no_history_of_three_writes_is_changed():
    timed = [write for write in model.writes(EVENT) if write.kind != "delete"]
    for layers in model.cuts(3, 2):
        if list(layers) != sorted(layers):
            continue
        for history in itertools.product(timed, repeat=3):
            assert not model.changed(EVENT, history, layers, layers, model.ENDED), (history, layers)


@pytest.mark.supports("Services", "log compaction")
@pytest.mark.parametrize(
    "kind", [k for k in (*KINDS, *NATIVE_KINDS, BY_SQL) if not k.mode.one_by_one], ids=lambda kind: kind.name
)
def test_a_log_compaction_changes_no_history(tmp_path, kind):
    histories = Histories(kind, LENGTHS.get(kind.name, 2))
    table = kind.make(tmp_path / "t")
    beside = mainstem.open_table(table.path, {"hoodie.mainstem.log.compaction.beside.writers": "true"})
    histories.write(table, beside.log_compact)
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=False)
    table.log_compact()
    assert histories.found(table.scan().to_arrow()) == histories.wanted(compacted=False)


def test_a_new_table_names_its_cases_in_the_log_and_warns_nobody(tmp_path, caplog, recwarn):
    fields = {"record_key": "id", "ordering": "t1", "buckets": 1}
    with caplog.at_level(logging.INFO, "mainstem.api.create"):
        table = mainstem.create_table(tmp_path / "t", BY_SQL.schema, **fields)
    # Deletes of SQL's statements have ordering values, whatever the columns.
    assert [c.name for c in table.cautions] == [
        "late row", "crossing write", "covered delete", "two kinds of deletes"
    ]  # fmt: skip
    assert all(isinstance(c, Caution) and str(c) in caplog.text for c in table.cautions)
    # A socket that an earlier test forgot may be collected now.
    assert not [warning for warning in recwarn if not issubclass(warning.category, ResourceWarning)]
