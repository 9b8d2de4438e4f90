"""Indexes that a job's options ask for: a table that lacks one gets it, beside its writers, before the job
writes.

The table says which indexes are maintained, whatever the options of a job; an option only adds one. Nothing
is dropped where an option says ``false``, unlike in Hudi (apache/hudi#18180).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mainstem import options as core
from mainstem.api.hoodie_options import INDEX_SWITCHES
from mainstem.api.job_table import Wanted, open_or_create
from mainstem.api.table import Table
from mainstem.errors import Invalid
from mainstem.indexing.index_lists import ready
from mainstem.indexing.status import BUILDING, PLANNED, READY
from mainstem.layout.properties import load_config


def open_for_job(options: Wanted, schema: pa.Schema) -> Table:
    """``open_or_create``, for the process that begins a job: the table has the indexes that are asked for.

    A missing index is built (``Table.create_index``): writers go on, those of other engines that are in
    flight are waited for. One that a living process builds is left to it. Raises what ``create_index``
    raises; the table is as before then.
    """
    table = open_or_create(options, schema)
    for kind in asked_indexes(options.passed):
        _provide(table, kind)
    return table


def asked_indexes(passed: Mapping[str, str]) -> list[str]:
    """Kinds of the indexes that options switch on, the listing of files first; [] where
    ``hoodie.metadata.enable=false`` switches all off. Raises ``Invalid`` for values that do not parse."""
    kinds = [kind for name, kind in INDEX_SWITCHES.items() if core.flag(passed, name, False)]
    if not core.flag(passed, core.METADATA, bool(kinds)):
        return []
    return list(dict.fromkeys(["files", *kinds]))


def _provide(table: Table, kind: str) -> None:
    if kind in ready(load_config(table._seams.storage)):
        return
    try:
        table.create_index(kind)
    except Invalid:
        states = {index.partition: index.state for index in table.indexes()}
        if states.get(kind) not in (READY, BUILDING, PLANNED):
            raise
