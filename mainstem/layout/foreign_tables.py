"""Checks a table that another engine filled: its bucket count, its file ids, the form of its keys.

Hudi does not store the bucket count reliably (Flink's default is 4, Spark's 256), and two writers with
different counts double rows without an error. So a count is trusted only if it fits every file id and a
sample of the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from mainstem.errors import CorruptTable, Invalid, MainstemError, Unsupported
from mainstem.formats.avro_schema import META_FIELDS
from mainstem.formats.log_file import BlockKind, read_blocks
from mainstem.layout.buckets import bucket_ids, file_id_bucket
from mainstem.layout.hash_rings import ring_hashes
from mainstem.layout.key_index import KeyIndex
from mainstem.layout.partitions import list_partitions
from mainstem.layout.properties import (
    FIELD_PREFIXED,
    VALUE_ONLY,
    WITHOUT_BUCKETS,
    TableConfig,
    parsed_config,
)
from mainstem.layout.stored_bucket_rules import put_first_rules, stored_rules
from mainstem.layout.stored_rings import Completed, newest_ring
from mainstem.layout.version_changes import changes_to, with_changes
from mainstem.limits import LOCK_FILE_BYTES_MAX, PROPERTIES_BYTES_MAX, TIMELINE_FILE_BYTES_MAX
from mainstem.merge.rules import merge_rules
from mainstem.options.placing import (
    BUCKET_ENGINE,
    BUCKET_EXPRESSIONS,
    BUCKETS,
    HASH_FIELD,
    INDEX_TYPE,
    KEY_ENCODING,
    KEY_MOVES,
    NEW_ENCODING,
)
from mainstem.publish.first_note import first_note
from mainstem.storage import maps, paths
from mainstem.storage.protocol import Storage
from mainstem.timeline.active import load_timeline
from mainstem.timeline.commit_metadata import decode_commit
from mainstem.timeline.instant import COMMIT, DELTACOMMIT, REPLACECOMMIT

_MADE_HERE = f"{paths.FENCE}/{paths.MADE_HERE}"
_SAMPLED_FILES = 16
_SAMPLED_KEYS = 200
_SAMPLED_INSTANTS = 8
_KEY = META_FIELDS[2]
_SHAPES = {FIELD_PREFIXED: "'field:value'", VALUE_ONLY: "'value'"}


def check_buckets(storage: Storage, config: TableConfig) -> Mapping[str, str]:
    """What completes ``config``, which already includes what the caller gave, to the bucket counts to write
    with: those of the table's file, where it has one (``stored_bucket_rules``).

    Raises ``Invalid`` if the count is unknown or does not fit the table's files, and ``Unsupported`` for
    a table with replaced file groups or with another index than the simple bucket index.
    """
    ours = config.buckets is not None and made_here(storage, config)
    told = {} if ours and config.bucket_rules is None else stored_rules(storage, config)
    config = config.completed_by(told)
    if config.buckets is None:
        if not config.uses_rings:
            _check_index(storage, config)
        raise Invalid(
            f"the table does not say its bucket count: give {BUCKETS} as all its writers do (Spark's"
            " default is 256, Flink's is 4). A wrong count would double rows",
            table=storage.base,
        )
    if ours:
        if not told and config.bucket_rules is not None:
            put_first_rules(storage, config.bucket_rules)  # whoever made the table died before
        return told
    if config.uses_rings:
        _check_rings(storage, config)
        return told
    for instant in load_timeline(storage).instants:
        if instant.comparable_action == REPLACECOMMIT:
            raise Unsupported(
                f"the timeline holds the {instant.action} {instant.requested}: file groups were"
                " replaced, and non-blocking writers append to the replaced ones (apache/hudi#19793)",
                table=storage.base,
            )
    _check_files(storage, config)
    return told


def check_key_index(storage: Storage, config: TableConfig, index: KeyIndex, *, told: bool) -> None:
    """Check that the table has no buckets, and that all mainstem writers mean keys to be unique alike.

    ``told``: the table's own properties name the index, which no writer may contradict then.
    Raises ``Invalid`` for a table with buckets and for writers that differ, ``Unsupported`` for consistent
    hashing.
    """
    if storage.stat(paths.CONSISTENT_HASHING) is not None:
        raise Unsupported(
            f"{INDEX_TYPE}={index.kind}, but the table has {_index_of(storage, config)}. {WITHOUT_BUCKETS}",
            table=storage.base,
        )
    for path, file_id in _file_ids(storage, config):
        if _is_bucket(file_id):
            raise Invalid(
                f"{INDEX_TYPE}={index.kind}, but file id {file_id!r} is that of a bucket (file {path}): give"
                f" {INDEX_TYPE}=BUCKET and {BUCKETS} as the table's other writers do",
                table=storage.base,
            )
        break
    if not config.partition_fields:
        return  # one partition is the table
    if not told:
        _check_unique_in(storage, index)
    if index.is_global and _rows_are_whole(config):
        _check_moves(storage, index)


def _check_unique_in(storage: Storage, index: KeyIndex) -> None:
    noted = first_note(storage, paths.UNIQUE_NOTE, index.unique_in, max_bytes=LOCK_FILE_BYTES_MAX)
    if noted != index.unique_in:
        raise Invalid(
            f"{INDEX_TYPE}={index.kind} makes a record key unique in its {index.unique_in}, but other writers"
            f" of the table have it unique in its {noted}: rows would be doubled. Give all writers the same"
            f" index (if that note is wrong and no writer is open, delete {paths.UNIQUE_NOTE})",
            table=storage.base,
        )


def _rows_are_whole(config: TableConfig) -> bool:
    """Whether keys may move at all: rows that are merged by columns or by a function do not."""
    rules = merge_rules(config.raw)
    return rules.partial is None and rules.merger is None


def _check_moves(storage: Storage, index: KeyIndex) -> None:
    """A writer whose keys stay does not look for those that others move."""
    what = {False: "stay", True: "move"}
    noted = first_note(storage, paths.MOVES_NOTE, what[index.moves], max_bytes=LOCK_FILE_BYTES_MAX)
    if noted != what[index.moves]:
        raise Invalid(
            f"under {INDEX_TYPE}={index.kind} as it is given here, keys that come with another partition"
            f" {what[index.moves]}, but other writers of the table let them {noted[:20]!r}: rows would be"
            f" doubled. Give all writers the same {' or '.join(map(str, KEY_MOVES))}, and close all before it"
            f" is changed (then delete {paths.MOVES_NOTE})",
            table=storage.base,
        )


def made_here(storage: Storage, config: TableConfig) -> bool:
    """Whether mainstem created the table and its decisive properties have not changed since: its bucket count
    and file ids are then known. The note holds the properties at creation; older releases left it empty."""
    try:
        noted = storage.read(_MADE_HERE, max_bytes=PROPERTIES_BYTES_MAX)
    except FileNotFoundError:
        return False
    return not noted or not _upgraded(parsed_config(noted, _MADE_HERE), config.version).changed(config)


def _upgraded(noted: TableConfig, version: int) -> TableConfig:
    """What a table's properties at its creation would be at the version that it has by now."""
    if noted.version == version:
        return noted
    try:
        return TableConfig(with_changes(noted.raw, changes_to(noted, version)), noted.path)
    except MainstemError:
        return noted


def _check_index(storage: Storage, config: TableConfig) -> None:
    """Raise ``Unsupported`` if the table's first file id is not that of a bucket."""
    for path, file_id in _file_ids(storage, config):
        if not _is_bucket(file_id):
            raise _other_index(storage, config, file_id, path)


def _file_ids(storage: Storage, config: TableConfig) -> Iterator[tuple[str, str]]:
    """(path, file id) of every data file."""
    for listing in list_partitions(storage, partitioned=bool(config.partition_fields)):
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is not None:
                yield paths.in_partition(listing.partition, name), parsed.file_id


def _is_bucket(file_id: str) -> bool:
    bucket = file_id_bucket(file_id)
    return bucket is not None and bucket < BUCKETS.high


def _other_index(storage: Storage, config: TableConfig, file_id: str, path: str) -> Unsupported:
    return Unsupported(
        f"the table has no simple bucket index, but {_index_of(storage, config)}: file id {file_id!r} does"
        f" not begin with the eight digits of a bucket (file {path}). {WITHOUT_BUCKETS}",
        table=storage.base,
    )


def _index_of(storage: Storage, config: TableConfig) -> str:
    """What can be told of the index of a table whose file ids are not those of buckets."""
    if storage.stat(paths.CONSISTENT_HASHING) is not None:
        return f"{INDEX_TYPE}=BUCKET with {BUCKET_ENGINE}=CONSISTENT_HASHING"
    if "record_index" in config.metadata_partitions:
        return "another index (RECORD_INDEX or RECORD_LEVEL_INDEX, as its metadata table has a record index)"
    return "another index (SIMPLE or BLOOM if Spark wrote it, FLINK_STATE if Flink did; Hudi stores no name)"


def _check_files(storage: Storage, config: TableConfig) -> None:
    sampled, rules = 0, config.bucket_rules
    for listing in list_partitions(storage, partitioned=bool(config.partition_fields)):
        owners: dict[int, str] = {}
        count = (config.buckets or 0) if rules is None else rules.count(listing.partition)
        told = BUCKETS if rules is None else BUCKET_EXPRESSIONS
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is None:
                continue
            path = paths.in_partition(listing.partition, name)
            bucket = file_id_bucket(parsed.file_id)
            if bucket is None or not _is_bucket(parsed.file_id):
                raise _other_index(storage, config, parsed.file_id, path)
            if bucket >= count:
                raise Invalid(
                    f"file id {parsed.file_id!r} does not fit {told}={count}: expected eight digits"
                    f" below {count} in front; the table has another bucket count (file {path})",
                    table=storage.base,
                )
            other = owners.setdefault(bucket, parsed.file_id)
            if other != parsed.file_id:
                raise CorruptTable(
                    f"bucket {bucket} has two file groups, {other!r} and {parsed.file_id!r}",
                    path=path,
                    table=storage.base,
                )
            if sampled < _SAMPLED_FILES:
                sampled += _check_keys(storage, config, path, bucket, count)


def _check_rings(storage: Storage, config: TableConfig) -> None:
    """Check that the table's file groups are those of its rings, and a sample of the keys lies in them."""
    sampled, completed = 0, Completed(storage, config.history)
    for listing in list_partitions(storage, partitioned=bool(config.partition_fields)):
        ring = newest_ring(storage, listing.partition, completed)
        for name in listing.names:
            parsed = paths.parse_log_name(name) or paths.parse_base_name(name)
            if parsed is None:
                continue
            path = paths.in_partition(listing.partition, name)
            if ring is None:
                raise Invalid(
                    f"{BUCKET_ENGINE}=CONSISTENT_HASHING, but partition {listing.partition!r} has rows and no"
                    f" ring in {paths.rings_of(listing.partition)} (file {path}): the table has another"
                    f" index, or {BUCKET_ENGINE}=SIMPLE. Give what its other writers do",
                    table=storage.base,
                )
            node = ring.nodes.get(parsed.file_id)
            if node is None or sampled >= _SAMPLED_FILES:
                continue  # split or merged
            for keys in _keys_of(storage, path):
                keys = keys.slice(0, _SAMPLED_KEYS)
                sampled += 1
                found = ring.find(ring_hashes(keys, hash_fields=config.hash_fields, parts=None))
                wrong = [at for at, its in enumerate(found.tolist()) if its != node]
                if wrong:
                    raise Invalid(
                        f"record key {keys[wrong[0]].as_py()!r} belongs into file group"
                        f" {ring.file_id(int(found[wrong[0]]))} by the ring {ring.instant} over"
                        f" {list(config.hash_fields)}, but lies in {path}: give the {HASH_FIELD} of the"
                        " table's other writers. Nothing was written",
                        table=storage.base,
                    )


def check_key_encoding(storage: Storage, config: TableConfig) -> None:
    """Check that this writer's keys look like the stored ones: one key field under a COMPLEX key generator.

    Java trusts its option. Here a sample of the stored keys must agree with it, and where
    ``hoodie.properties`` is silent, so must the note of the first writer. Raises ``Invalid`` if they
    disagree, ``Unsupported`` for a table that holds keys of both kinds.
    """
    if not config.single_field_complex or (config.version != 8 and made_here(storage, config)):
        return
    seen: dict[str, str] = {}
    for path in _sampled(storage, config):
        for encoding, key in _encodings(storage, path, config.record_key[0]):
            seen.setdefault(encoding, f"{key!r} in {path}")
    if len(seen) > 1:
        raise Unsupported(
            f"the table holds record keys as 'field:value' ({seen[FIELD_PREFIXED]}) and as 'value'"
            f" ({seen[VALUE_ONLY]}; HUDI-7001): some rows may exist twice, and any write would double others."
            " Write its rows into a new table, or repair it as Hudi's guide says"
            " (https://hudi.apache.org/docs/deployment#complex-key-generator)",
            table=storage.base,
        )
    wanted = config.key_encoding
    if seen and wanted not in seen:
        found, where = next(iter(seen.items()))
        way = f"set {NEW_ENCODING}={str(found == VALUE_ONLY).lower()}"
        if config.version != 8:
            way = f"set {KEY_ENCODING}={found}"
        raise Invalid(
            f"the table's record keys are {_SHAPES[found]} ({where}), and this writer's would be"
            f" {_SHAPES[wanted]}: every row would be doubled (HUDI-7001); {way} in all its writers",
            table=storage.base,
        )
    if config.version == 8 and not config.raw.get(KEY_ENCODING):
        _note_encoding(storage, wanted)


def _note_encoding(storage: Storage, wanted: str) -> None:
    """Note how the first writer writes keys; raise ``Invalid`` for a later writer that would differ."""
    found = first_note(storage, paths.KEY_ENCODING_NOTE, wanted, max_bytes=LOCK_FILE_BYTES_MAX)
    if found != wanted:
        raise Invalid(
            f"this writer's record keys would be {_SHAPES[wanted]}, but other writers of the table write"
            f" {_SHAPES.get(found, found)}: every row would be doubled (HUDI-7001). Set {NEW_ENCODING} to"
            f" one value in all of them (if no rows were ever written, delete {paths.KEY_ENCODING_NOTE})",
            table=storage.base,
        )


def _sampled(storage: Storage, config: TableConfig) -> Iterator[str]:
    """Files of the newest commits and, for a table made elsewhere, the first files in its folders."""
    writes = (i for i in load_timeline(storage).instants if i.action in (COMMIT, DELTACOMMIT))
    done = [i for i in writes if i.is_completed]
    for instant in sorted(done, key=lambda i: i.completion or "")[-_SAMPLED_INSTANTS:]:
        path = paths.timeline_file(f"{instant.requested}_{instant.completion}.{instant.action}")
        try:
            data = storage.read(path, max_bytes=TIMELINE_FILE_BYTES_MAX)
        except FileNotFoundError:
            continue  # archived since the listing
        for stats in islice(decode_commit(data, path=path).stats.values(), 2):
            yield from (stat["path"] for stat in stats[:1] if stat.get("path"))
    if not made_here(storage, config):
        yield from (path for path, _ in islice(_file_ids(storage, config), _SAMPLED_FILES))


def _encodings(storage: Storage, path: str, field: str) -> Iterator[tuple[str, str]]:
    """(encoding, an example key) of a file's first rows; nothing for a file that is gone or empty."""
    try:
        for columns in _columns_of(storage, path, [_KEY, field]):
            keys = columns[0].slice(0, _SAMPLED_KEYS).cast(pa.string())
            bare = pc.invert(pc.starts_with(keys, f"{field}:"))
            if len(columns) > 1 and columns[1].type == pa.string():  # a value may itself begin with "field:"
                bare = pc.or_kleene(bare, pc.equal(keys, columns[1].slice(0, _SAMPLED_KEYS)))
            bare = pc.fill_null(bare, False)
            for encoding, rows in ((VALUE_ONLY, bare), (FIELD_PREFIXED, pc.invert(bare))):
                at = pc.index(rows, True).as_py()
                if at >= 0:
                    yield encoding, keys[at].as_py()
    except FileNotFoundError:
        return


def _check_keys(
    storage: Storage, config: TableConfig, path: str, bucket: int, count: int
) -> int:
    checked = 0
    for keys in _keys_of(storage, path):
        if len(keys) == 0:
            continue
        checked = 1
        keys = keys.slice(0, _SAMPLED_KEYS)
        found = bucket_ids(keys, buckets=count, hash_fields=config.hash_fields, parts=None)
        wrong = [i for i, b in enumerate(found.tolist()) if b != bucket]
        if wrong:
            key = keys[wrong[0]].as_py()
            raise Invalid(
                f"record key {key!r} hashes to bucket {found[wrong[0]]} of {count} over"
                f" {list(config.hash_fields)}, but lies in bucket {bucket} (file {path}): the bucket"
                " count, the hash fields or the index of the table differ from these. Nothing was written;"
                f" give the {BUCKETS}, {BUCKET_EXPRESSIONS} and {HASH_FIELD} of its other writers",
                table=storage.base,
            )
    return checked


def _keys_of(storage: Storage, path: str) -> Iterator[pa.Array]:
    return (columns[0] for columns in _columns_of(storage, path, [_KEY]))


def _columns_of(storage: Storage, path: str, names: Sequence[str]) -> Iterator[list[pa.Array]]:
    """The first of these columns, and the others if present, of a file's first rows.

    Nothing of a file that is gone or that does not decode: somebody may be writing it, and whether a commit
    names it is asked by queries.
    """
    if path.endswith(".parquet"):
        yield from _parquet_columns(storage, path, names)
        return
    try:
        blocks = read_blocks(maps.view(storage, path), path=path, damaged="skip")
    except FileNotFoundError:
        return
    for block in blocks[:2]:
        if block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA):
            yield _arrays(block.table(list(names)), names)


def _parquet_columns(storage: Storage, path: str, names: Sequence[str]) -> list[list[pa.Array]]:
    import pyarrow.parquet as pq

    try:
        with storage.open_input(path) as source:
            file = pq.ParquetFile(source)
            there = [name for name in names if name in file.schema_arrow.names]
            if not file.num_row_groups or names[0] not in there:
                return []
            return [_arrays(file.read_row_group(0, columns=there), there)]
    except (FileNotFoundError, pa.ArrowException, UnicodeDecodeError):
        return []
    except OSError as error:
        if error.errno is not None:
            raise
        return []  # pyarrow's way of saying that bytes do not decode


def _arrays(table: pa.Table | pa.RecordBatch, names: Sequence[str]) -> list[pa.Array]:
    columns = [table.column(name) for name in names if name in table.schema.names]
    return [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
