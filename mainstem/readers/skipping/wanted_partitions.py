"""The partitions that rows passing a filter can be in, as folders to list: ``WantedFolders``.

Known if the filter lists values of the first partition column, or of several from the first on. Only text and
integer columns tell a path: how a time or a decimal becomes a folder depends on options that the table does
not store, and on the release that wrote it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mainstem.filters.predicates import Predicate, Term, listed
from mainstem.layout.key_generator import COMPLEX, CUSTOM, SIMPLE
from mainstem.layout.properties import TableConfig
from mainstem.layout.wanted_folders import Level, WantedFolders
from mainstem.readers.skipping.wanted_keys import texts_of


def wanted_folders(
    conjuncts: Sequence[Predicate], config: TableConfig, schema: pa.Schema
) -> WantedFolders | None:
    """Folders of the rows that pass all conjuncts; None: any."""
    if config.key_generator not in (SIMPLE, COMPLEX, CUSTOM):
        return None
    values: dict[str, frozenset[str]] = {}
    for conjunct in conjuncts:
        found = listed(conjunct)
        if found is None or found[0] != Term(found[0].column):
            continue
        at = schema.get_field_index(found[0].column)
        texts = None if at < 0 else texts_of(found[1], schema.field(at).type)
        if texts is not None:
            given = frozenset(texts.to_pylist())
            values[found[0].column] = values.get(found[0].column, given) & given
    levels = []
    for name, kind in zip(config.partition_fields, config.partition_kinds, strict=True):
        if name not in values or kind != SIMPLE:
            break
        number = pa.types.is_integer(schema.field(name).type)
        levels.append(Level(name, values[name], number))
    if not levels:
        return None
    return WantedFolders(
        tuple(levels), len(config.partition_fields), config.hive_style, config.url_encode
    )
