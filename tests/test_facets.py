"""Goal: what a facet of ``Table`` offers has its older name on ``Table`` too, with the same arguments.

Method: signatures are compared; one table is made, and asked under both names.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem.api.indexes import Indexes
from mainstem.api.services import Services
from mainstem.api.vectors import Vectors

RENAMED = {
    "run": "run_services", "in_background": "services_in_background", "get": "index",
    "validate": "validate_metadata", "create": "create_index", "refresh": "refresh_index",
    "rebuild": "reindex", "rebuild_all": "reindex_all", "drop": "drop_index", "explain": "explain_search",
}  # fmt: skip
#: came after the facets, so no older name
NEWER = [(Vectors, "coverage"), (Services, "publish_iceberg")]
METHODS = [
    (facet, name)
    for facet in (Services, Indexes, Vectors)
    for name in vars(facet)
    if not name.startswith("_") and (facet, name) not in NEWER
]


@pytest.mark.parametrize(("facet", "name"), METHODS, ids=[f"{f.__name__}.{n}" for f, n in METHODS])
def test_a_method_of_a_facet_has_its_older_name_on_the_table(facet: type, name: str) -> None:
    alias = getattr(mainstem.Table, RENAMED.get(name, name))
    assert inspect.signature(alias) == inspect.signature(getattr(facet, name))
    assert alias.__doc__ == f"``{facet.__name__.lower()}.{name}``."


def test_the_table_inherits_from_nobody() -> None:
    assert mainstem.Table.__bases__ == (object,)


def test_both_names_do_the_same(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = mainstem.create_table(tmp_path / "t", schema, record_key="id", buckets=1)
    table.upsert({"id": ["a", "b"], "v": [1, 2]})
    saved = table.services.savepoint()
    assert table.savepoints() == table.services.savepoints() == [saved]
    table.create_index("files")
    assert table.indexes() == [table.indexes.get("files")] == [table.index("files")]
    assert table.services.compact()
    assert not table.compact()
