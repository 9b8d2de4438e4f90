"""``index.json``: what each index of a table is, replaced in one step under the table lock.

Java overwrites the file in place; here the fence's ticket is renamed over it, so readers find it whole, and a
process that lost the lock replaces nothing. Entries and fields that mainstem does not know stay as they are
(``HoodieIndexMetadata``). Whoever adds an index writes its definition before its name is put into the table's
lists, and whoever drops one takes the name out first: a listed index always has its definition.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from mainstem.errors import CorruptTable
from mainstem.indexing.lists import definitions_path
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.storage import paths
from mainstem.storage.protocol import Storage
from mainstem.table.properties import TableConfig, load_config
from mainstem.timeline.publish import Guarded
from mainstem.writers.context import WriterContext
from mainstem.writers.private_files import forget, prepare

_ENTRIES = "indexDefinitions"
_OWNER = "definitions"


def load_document(storage: Storage, config: TableConfig) -> dict[str, Any]:
    """The whole file, ``{"indexDefinitions": {}}`` where there is none; ``CorruptTable`` for anything that is
    no such object."""
    path = definitions_path(config)
    try:
        data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return {_ENTRIES: {}}
    return parse_document(data, path=path)


def parse_document(data: bytes, *, path: str) -> dict[str, Any]:
    """Raises ``CorruptTable`` for what is no object with objects by name."""
    try:
        found = json.loads(data) if data.strip() else {}
    except (ValueError, RecursionError) as error:
        raise CorruptTable(f"the definitions of indexes are no JSON ({error})", path=path) from error
    entries = found.setdefault(_ENTRIES, {}) if isinstance(found, dict) else None
    if not isinstance(entries, dict) or not all(isinstance(one, dict) for one in entries.values()):
        raise CorruptTable(
            f"the definitions of indexes are not an object {_ENTRIES!r} with one object per name", path=path
        )
    return found


def put_definition(ctx: WriterContext, section: Guarded, partition: str, entry: Mapping[str, Any]) -> None:
    """Write the definition of an index, in place of an older one of its name."""
    found = load_document(section.storage, load_config(section.storage))
    if found[_ENTRIES].get(partition) != dict(entry):
        found[_ENTRIES][partition] = dict(entry)
        _replace(ctx, section, found)


def forget_definitions(ctx: WriterContext, section: Guarded, partitions: Collection[str]) -> None:
    """Remove the definitions of these indexes, as far as there are any."""
    found = load_document(section.storage, load_config(section.storage))
    kept = {name: entry for name, entry in found[_ENTRIES].items() if name not in partitions}
    if kept != found[_ENTRIES]:
        _replace(ctx, section, {**found, _ENTRIES: kept})


def _replace(ctx: WriterContext, section: Guarded, document: Mapping[str, Any]) -> None:
    path = definitions_path(load_config(section.storage))
    folder = path.rpartition("/")[0]
    section.storage.make_folder(folder)
    private = prepare(ctx, _OWNER, formatted(document).encode())
    try:
        section.storage.delete(paths.checksum_file(path))  # of Java's content, it would not match
        section.replace(private, path)
    finally:
        forget(ctx, private)
    section.storage.sync_folder(folder)


def formatted(value: Any, indent: str = "") -> str:
    """JSON laid out as Java's writer (Jackson) lays it out."""
    inner = indent + "  "
    if isinstance(value, Mapping):
        parts = [f"{inner}{json.dumps(k)} : {formatted(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}" if parts else "{ }"
    if isinstance(value, list):
        return f"[ {', '.join(formatted(v, inner) for v in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)
