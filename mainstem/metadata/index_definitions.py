"""``index.json``: the definitions of all indexes except ``files`` (HoodieIndexMetadata).

    {"indexDefinitions": {"<partition>": {"indexName", "indexType", "indexFunction", "sourceFields": [...],
                                          "indexOptions": {...}, "version": "V1" | "V2"}}}

``files``, ``partition_stats`` and ``bloom_filters`` have no entry. At every change Java rewrites the whole
file and checks every entry, so one bad entry blocks all later changes: nothing is written that does not pass
``check``. Unknown fields are kept. A file that names a class (Java's JSON readers may be told to instantiate
it) is refused, whichever engine wrote it.

The file is replaced in one step under the table lock (``replace_definitions``): readers find it whole, and a
process that has lost the lock replaces nothing. A new index's definition is written before its name is added
to ``hoodie.table.metadata.partitions``, and a dropped index's name is removed first: a listed index always
has its definition.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mainstem.errors import CorruptTable, Invalid, Unsupported
from mainstem.layout.properties import TableConfig
from mainstem.limits import PROPERTIES_BYTES_MAX
from mainstem.metadata.metadata_partitions import (
    COLUMN_STATS,
    PARTITION_STATS,
    RECORD_INDEX,
    SECONDARY_PREFIX,
)
from mainstem.metadata.records.row_keys import V1, V2
from mainstem.options.metadata import DEFINITIONS_PATH
from mainstem.publish.publisher import Guarded
from mainstem.publish.staging import replace_guarded
from mainstem.storage import paths
from mainstem.storage.folders import make_folder
from mainstem.storage.protocol import Storage
from mainstem.truetime.seams import Randomness

PARTITIONED = "isPartitioned"
_ALL = "indexDefinitions"
_OWNER = "definitions"  # owner in the names of private files
# Java empties the file and writes it again (HoodieIndexMetadata through FileIOUtils.createFileInPath), which
# takes milliseconds. A file without its end is read again up to this often, some 50 ms, before it is damaged.
_WHILE_JAVA_WRITES = 1000
_NAMES_OF_CLASSES = ("class", "@class", "classname", "@type", "@c")


@dataclass(frozen=True)
class Definition:
    """One index. ``partition``: its partition of the metadata table, which is also its name; ``fields``: its
    source columns; ``version``: "V1", "V2" or None; ``other``: unknown fields of the entry."""

    partition: str
    index_type: str
    function: str = ""
    fields: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    version: str | None = None
    other: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Definitions:
    """All indexes by partition; ``other``: unknown fields of the file."""

    by_partition: Mapping[str, Definition] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)

    def get(self, partition: str) -> Definition | None:
        """The definition of an index; None if the file has no entry."""
        return self.by_partition.get(partition)

    def stats_version(self, partition: str, table_version: int) -> str:
        """Index version of statistics: its own, else for ``partition_stats`` that of ``column_stats``, else
        the one that the table version implies."""
        names = (partition, COLUMN_STATS) if partition == PARTITION_STATS else (partition,)
        found = (d.version for d in map(self.get, names) if d is not None and d.version)
        return next(found, V2 if table_version >= 9 else V1)

    def secondary_version(self, partition: str) -> str:
        """V2 only if the definition says so (HoodieIndexVersion.getCurrentVersion of version 8: V1)."""
        found = self.get(partition)
        return found.version or V1 if found is not None else V1

    @property
    def partitioned_record_index(self) -> bool | None:
        """Whether each partition has a record index of its own; None if no definition tells."""
        found = self.get(RECORD_INDEX)
        text = None if found is None else found.options.get(PARTITIONED)
        return None if text is None else text.lower() == "true"

    def with_definition(self, definition: Definition) -> Definitions:
        """A copy with this definition added or replaced."""
        return Definitions({**self.by_partition, definition.partition: definition}, self.other)

    def without(self, partitions: Iterable[str]) -> Definitions:
        """A copy without the definitions of these partitions."""
        gone = set(partitions)
        return Definitions({p: d for p, d in self.by_partition.items() if p not in gone}, self.other)


def definitions_path(config: TableConfig) -> str:
    """Path of the file (``hoodie.table.index.defs.path``), always inside the table."""
    found = config.raw.get(DEFINITIONS_PATH, "").strip()
    return paths.inside(found, source=config.path) if found else paths.INDEX_DEFINITIONS


def read_definitions(storage: Storage, config: TableConfig) -> Definitions:
    """The definitions in the file; none if it does not exist. Raises like ``parse_definitions``."""
    path = definitions_path(config)
    data = b""
    try:
        for _ in range(_WHILE_JAVA_WRITES):
            data = storage.read(path, max_bytes=PROPERTIES_BYTES_MAX)
            if data.rstrip().endswith(b"}"):
                break
    except FileNotFoundError:
        return Definitions()
    return _parsed(data, path)


@lru_cache(maxsize=16)
def _parsed(data: bytes, path: str) -> Definitions:
    """The parsed file, cached: every commit reads it twice, once under the lock, and it rarely changes."""
    return parse_definitions(data, path=path)


def parse_definitions(data: bytes, *, path: str) -> Definitions:
    """Parse the file. ``CorruptTable`` for other content or a repeated index, ``Unsupported`` for a class."""
    try:
        found = json.loads(data, object_pairs_hook=lambda pairs: _object(pairs, path))
    except (ValueError, RecursionError) as error:
        raise _corrupt(f"it is not JSON: {error}", path) from None
    if not isinstance(found, dict) or not isinstance(found.get(_ALL, {}), dict):
        raise _corrupt(f"expected an object with {_ALL!r}", path)
    made = {name: _definition(name, raw, path) for name, raw in found.get(_ALL, {}).items()}
    return Definitions(made, {key: value for key, value in found.items() if key != _ALL})


def _object(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    """Refuse what a plain ``dict`` would let pass: repeated names, and names of classes."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _corrupt(f"{twice!r:.100} occurs twice", path)
    for name in made:
        if name.rpartition(".")[2].lower() in _NAMES_OF_CLASSES:
            raise Unsupported(
                f"the index definitions in {path} name a class ({name!r:.100}): mainstem never runs code that"
                " a table names; remove the entry"
            )
    return made


def _definition(name: str, raw: Any, path: str) -> Definition:
    if not isinstance(raw, dict):
        raise _corrupt(f"the index {name!r:.100} is no object", path)
    known = dict(raw)
    texts = [known.pop(key, None) for key in ("indexName", "indexType", "indexFunction", "version")]
    fields, options = known.pop("sourceFields", None), known.pop("indexOptions", None)
    fields, options = fields or [], options or {}
    fits = isinstance(fields, list) and isinstance(options, dict)
    if not fits or not all(isinstance(t, str) for t in (*fields, *options.values(), *filter(None, texts))):
        raise _corrupt(f"the index {name!r:.100} has fields that are no texts", path)
    if texts[0] not in (None, name):
        raise _corrupt(f"the index {name!r:.100} calls itself {texts[0]!r:.100}", path)
    return Definition(name, texts[1] or "", texts[2] or "", tuple(fields), options, texts[3] or None, known)


def _corrupt(what: str, path: str) -> CorruptTable:
    return CorruptTable(
        f"damaged index definitions: {what}; restore the file, or drop the indexes with Hudi", path=path
    )


def check(definitions: Definitions, table_version: int) -> None:
    """Apply the rules that Java enforces whenever it rewrites the file (HoodieIndexVersion). Raises
    ``Invalid``, naming the definition that breaks one."""
    for name, definition in definitions.by_partition.items():
        if table_version >= 9 and definition.version not in (V1, V2):
            raise Invalid(f"index {name!r} has the version {definition.version!r}; a table of version 9 needs"
                          " V1 or V2, else Java can change no index any more")  # fmt: skip
        if table_version < 9 and name.startswith(SECONDARY_PREFIX) and definition.version not in (None, V1):
            raise Invalid(f"index {name!r} has the version {definition.version!r}; secondary indexes of a"
                          " table of version 8 have V1 or none")  # fmt: skip


def encode_definitions(definitions: Definitions) -> bytes:
    """Bytes of the file, formatted like Java's writer (Jackson)."""
    entries = {name: _raw(d) for name, d in definitions.by_partition.items()}
    return _laid_out({_ALL: entries, **definitions.other}).encode()


def _laid_out(value: Any, indent: str = "") -> str:
    inner = indent + "  "
    if isinstance(value, Mapping):
        parts = [f"{inner}{json.dumps(k)} : {_laid_out(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}" if parts else "{ }"
    if isinstance(value, list):
        return f"[ {', '.join(_laid_out(v, inner) for v in value)} ]" if value else "[ ]"
    return json.dumps(value, ensure_ascii=False)


def _raw(definition: Definition) -> dict[str, Any]:
    made = {
        "indexName": definition.partition,
        "indexType": definition.index_type,
        "indexFunction": definition.function,
        "sourceFields": list(definition.fields),
        "indexOptions": dict(definition.options),
    }
    return {**made, **({"version": definition.version} if definition.version else {}), **definition.other}


def replace_definitions(
    section: Guarded, random: Randomness, config: TableConfig, definitions: Definitions
) -> None:
    """Replace the file with these definitions. Raises ``LeaseLost`` if the lock was taken over.

    Call ``check`` first if a definition is new. An old bad one must not keep others from being dropped.
    """
    storage, path = section.storage, definitions_path(config)
    folder = path.rpartition("/")[0]
    make_folder(storage, folder)
    replace_guarded(section, random, _OWNER, path, encode_definitions(definitions))
    storage.settle([], [folder], durable=True)
