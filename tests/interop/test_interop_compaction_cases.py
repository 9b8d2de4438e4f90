"""Goal: where a compaction changes the answer, it does so in Java exactly as in mainstem and the model.

Method: one table per kind of merge holds every history of three writes (of two for partial rows by
event time), cut in every way by one compaction, with our transactions in flight across it. Java compacts
and reads; and Java reads what we compacted.
"""

from __future__ import annotations

import pytest
from java_hudi import JavaHudi, nbcc_options

from tests.model.compacted_tables import KINDS, Histories, Kind
from tests.model.compaction_model import PARTIAL_EVENT

pytestmark = pytest.mark.supports("Services", "compaction: by Hudi's rules in every short history")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_java_gives_the_models_answers_whoever_compacts(java: JavaHudi, path: str, kind: Kind) -> None:
    histories = Histories(kind, 2 if kind.mode == PARTIAL_EVENT else 3)
    options = nbcc_options("cuts", record_key=["id"], ordering=kind.ordering, partition_by=["cut"], buckets=1)
    table = kind.make(path, exclusive=False)
    planned: list[str] = []
    histories.write(table, lambda: planned.append(java.schedule_compaction(path, options)))
    assert histories.found(java.read(path)) == histories.wanted(compacted=False), "only planned"
    java.run_compaction(path, options, planned[0])
    wanted = histories.wanted(compacted=True)
    found = histories.found(java.read(path))
    lost = [place for place in wanted if found[place] != wanted[place]]
    # Java's compaction leaves the marker where a log row had filled in another's value; its reader does not.
    assert len(lost) == (12 if kind.absent else 0), lost[:5]
    assert histories.found(table.scan().to_arrow()) == found
    ours = kind.make(f"{path}-ours")
    histories.write(ours, ours.compact)
    assert histories.found(java.read(ours.path)) == wanted
