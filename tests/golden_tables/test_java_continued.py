"""Goal: mainstem goes on with the tables that Java wrote, or refuses to by name.

Method: every golden table is opened for writing with the options of its Java writers. Where mainstem
may write (merge on read, simple buckets, a metadata table whose partitions it maintains or none), rows are
updated and deleted before and after a compaction, and must then be what a model in plain Python says.
``tests/interop`` has Java read the results.
"""

from __future__ import annotations

import pytest

from mainstem.errors import MainstemError
from tests.golden_tables.continued import TABLES, Continued, open_as_its_writers, refusal, shown

WRITTEN = [name for name in TABLES if refusal(name) is None]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_table_of_java_is_written_and_compacted_by_us(name, tmp_path):
    continued = Continued(open_as_its_writers(name, tmp_path))
    if name == "v10_basic_mdt":  # keys that Java left out (java_index_defects.json: keys_of_inserts)
        continued.table.reindex_all()
    continued.go_on()
    assert shown(continued.table.scan().to_arrow()) == continued.expected()
    report = continued.table.validate_metadata()
    assert report is None or report.ok, report


@pytest.mark.parametrize("name", [name for name in TABLES if refusal(name) is not None])
def test_a_table_that_cannot_be_written_is_refused_by_name(name, tmp_path):
    with pytest.raises(MainstemError) as refused:
        table = open_as_its_writers(name, tmp_path)
        Continued(table).go_on()
    assert refusal(name) in str(refused.value)
