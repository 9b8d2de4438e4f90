"""One target per parser that reads storage, arguments or what other processes wrote.

Fence markers and tickets of the fence have no content: only their names are parsed.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pyarrow as pa

from mainstem import open_table
from mainstem.cli.main import DONE, REFUSED, TRY_AGAIN, USAGE, main
from mainstem.errors import Unsupported
from mainstem.formats.avro_container import decode_container
from mainstem.formats.avro_schema import avro_to_arrow, parse_schema
from mainstem.formats.hfile import HFile, open_hfile
from mainstem.formats.hfile_write import write_hfile
from mainstem.formats.java_properties import format_properties, parse_properties
from mainstem.formats.log_file import BlockKind, Header, LogBlock, delete_block, hfile_block, read_blocks
from mainstem.layout import field_ids
from mainstem.layout.properties import load_config, parsed_config
from mainstem.lsm_archive.manifest import parse_manifest
from mainstem.lsm_archive.names import parse_data_name, parse_manifest_name
from mainstem.lsm_archive.reader import Archive
from mainstem.readers.rows.base_rows import open_base
from mainstem.storage import paths
from mainstem.storage.local import LocalStorage
from mainstem.timeline.clean_records import CleanPlan, decode_clean_plan, encode_clean_plan
from mainstem.timeline.clustering_plans import (
    ClusteredSlice,
    ClusteringGroup,
    ClusteringPlan,
    decode_clustering_plan,
    encode_clustering_plan,
)
from mainstem.timeline.commit_metadata import decode_commit, encode_commit
from mainstem.timeline.index_records import IndexBuild, decode_index_builds, encode_index_plan
from mainstem.timeline.instant import parse_instant
from mainstem.timeline.plans import (
    CompactionOperation,
    decode_compaction_plan,
    decode_rollback_plan,
    encode_compaction_plan,
    encode_rollback_plan,
)
from mainstem.timeline.restore_records import (
    PlannedInstant,
    RestorePlan,
    SavepointRecord,
    decode_restore_plan,
    decode_savepoint,
    encode_restore_plan,
    encode_savepoint,
)
from mainstem.truetime.heartbeats import encode_promise, parse_promise
from mainstem.truetime.locks.owner_record import OwnerRecord, parse_owner_record
from mainstem.truetime.locks.zookeeper import in_line
from mainstem.writers.write_ordinals import StreamWrite, allocate, stream_folder
from mainstem.writers.write_task import decode_result
from tests.formats.golden_logs import GOLDEN
from tests.fuzz.column_targets import COLUMN_TARGETS
from tests.fuzz.corpus import INSTANT, TABLE, TEXT, blocks, golden, names, small_log
from tests.fuzz.files import folder as _folder
from tests.fuzz.files import in_file as _in_file
from tests.fuzz.harness import Target
from tests.fuzz.metadata_targets import METADATA_TARGETS
from tests.fuzz.native_targets import NATIVE_TARGETS
from tests.fuzz.own_targets import OWN_TARGETS
from tests.fuzz.vector_targets import VECTOR_TARGETS

# ----------------------------------------------------------------------------------- log files


def _check_rows(block: LogBlock) -> pa.Table:
    rows = block.table()
    rows.validate(full=True)
    assert rows.schema.equals(avro_to_arrow(block.schema_text)), "rows of another schema"
    return rows


def _check_block(block: LogBlock) -> object:
    if block.kind == BlockKind.DELETE:
        found = block.deletes()
        found.validate(full=True)
        assert found.column_names == ["record_key", "partition_path", "ordering", "ordering_is_default"]
        return found
    if block.kind == BlockKind.HFILE_DATA:
        return _check_hfile(block.hfile())
    if block.kind in (BlockKind.AVRO_DATA, BlockKind.PARQUET_DATA, BlockKind.CDC_DATA):
        return _check_rows(block)
    return None


def _check_hfile(hfile: HFile) -> object:
    keys, values = hfile.rows()
    for column in (keys, values):
        column.validate(full=True)
    assert len(keys) == len(values) == hfile.entry_count
    some = keys.slice(len(keys) // 2, 3)
    for found in (*hfile.lookup(some), *hfile.prefixes(some)):
        found.validate(full=True)
    hfile.meta("bloomFilter")
    return list(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def _hfiles() -> list[bytes]:
    keys = pa.array([f"{n:02}" * (n % 70) + str(n) for n in range(60)])
    values = pa.array([bytes(n % 7) for n in range(60)], pa.binary())
    made = [
        write_hfile(keys, values, schema_text=TEXT, base_file=True, compression=c, block_bytes=size)
        for c in ("GZ", "NONE") for size in (500, 100_000)
    ]  # fmt: skip
    return [write_hfile(keys[:1], values[:1], schema_text=None, base_file=False), *made]


def _hfile_log() -> bytes:
    keys, values = pa.array(["a", "b"]), pa.array([b"", b"v"], pa.binary())
    parts = [*hfile_block(INSTANT, TEXT, keys, values), *delete_block(INSTANT, TEXT, keys, "files", None)]
    return b"".join(map(bytes, parts))


def _log_file(data: bytes) -> list[object]:
    read_blocks(memoryview(data), path="f", damaged="skip")
    found = read_blocks(memoryview(data), path="f")
    return [(block.kind, block.instant, _check_block(block)) for block in found]


def _is_prefix(whole: list, found: list) -> bool:
    return whole[: len(found)] == found


def _content(kind: BlockKind, schema_text: str) -> Callable[[bytes], object]:
    headers = {Header.INSTANT_TIME: INSTANT, Header.SCHEMA: schema_text}
    return lambda data: _check_block(LogBlock(kind, INSTANT, headers, memoryview(data), 0, "f"))


def _by_schema(kind: BlockKind) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for block in blocks(kind):
        found.setdefault(block.schema_text, []).append(bytes(block.content))
    return found


def _contents(kind: BlockKind) -> tuple[Callable[[bytes], object], Callable[[], list[bytes]]]:
    """A parser of contents under the schemas of the corpus; the first byte says which."""

    @cache
    def known() -> list[tuple[str, list[bytes]]]:
        return sorted(_by_schema(kind).items(), key=lambda item: min(map(len, item[1])))

    def run(data: bytes) -> object:
        if not data:
            return _content(kind, known()[0][0])(b"")
        schema_text = known()[data[0] % len(known())][0]
        return _content(kind, schema_text)(data[1:])

    def seeds() -> list[bytes]:
        return [bytes([i]) + content for i, (_, found) in enumerate(known()) for content in found]

    return run, seeds


def _many_rows() -> bytes:
    """Enough records for the decoder by columns."""
    from mainstem.formats.log_file import data_block

    rows = pa.concat_tables([TABLE] * 40)
    (block,) = read_blocks(memoryview(b"".join(map(bytes, data_block(INSTANT, TEXT, rows)))), path="f")
    return bytes(block.content)


def _schema(data: bytes) -> object:
    text = data.decode("latin-1")
    parse_schema(text, "f")
    return avro_to_arrow(text, path="f")


# ------------------------------------------------------------------------------------ timeline


def _commit(data: bytes) -> object:
    found = decode_commit(data, path="f")
    for path in found.files():
        assert paths.inside(path, source="f") == path
    return found


def _commits() -> list[bytes]:
    ours = encode_commit([], {"schema": TEXT}, "UPSERT")
    return [ours, *golden("*/*_*.deltacommit"), *golden("*/*_*.commit")]


def _rollback_plans() -> list[bytes]:
    ours = encode_rollback_plan(INSTANT, "deltacommit", [("p", "f", "n")], "/t")
    return [ours, *golden("*.rollback.requested")]


def _compaction_plans() -> list[bytes]:
    operation = CompactionOperation("p", "f-0", INSTANT, None, (f".f-0_{INSTANT}.log.1_0-1-2",))
    return [encode_compaction_plan([operation], [{}]), *golden("*compaction.requested")]


def _clean_plan(data: bytes, *, path: str = "f") -> object:
    """What a clean may delete are data files inside the table."""
    plan = decode_clean_plan(data, path=path, base="/t")
    for found in plan.paths() if plan is not None else ():
        assert paths.inside(found, source=path) == found and not found.startswith(paths.HOODIE)
        assert paths.file_id_of(found.rsplit("/", 1)[-1]) is not None
    return plan


def _clean_plans() -> list[bytes]:
    log, base = f".f-0_{INSTANT}.log.1_0-1-2", f"f-0_0-1-2_{INSTANT}.parquet"
    plan = CleanPlan("KEEP_LATEST_COMMITS", {"p": (base, log), "q/r": (log,)}, (INSTANT, "commit"), INSTANT)
    return [encode_clean_plan(plan, "/t"), encode_clean_plan(CleanPlan("", {"": (base,)}), "/t")]


def _index_plan(data: bytes, *, path: str = "f") -> object:
    """The names of partitions become folders."""
    found = decode_index_builds(data, path=path)
    for build in found:
        assert paths.inside(build.partition, source=path) == build.partition and "/" not in build.partition
    return found


def _index_plans() -> list[bytes]:
    builds = [IndexBuild("column_stats", INSTANT), IndexBuild("secondary_index_a", INSTANT, {"a": "b"})]
    return [encode_index_plan(builds), encode_index_plan(builds[:1])]


def _savepoint(data: bytes, *, path: str = "f") -> object:
    """What a savepoint keeps are data files of partitions inside the table."""
    found = decode_savepoint(data, path=path)
    for partition, kept in found.files.items():
        assert not partition or paths.inside(partition, source=path) == partition
        assert all(paths.file_id_of(name) is not None for name in kept)
    return found


def _savepoints() -> list[bytes]:
    ours = SavepointRecord("u", "c", 1_700_000_000_000, {"p": (f"f-0_0-1-2_{INSTANT}.parquet",)})
    return [encode_savepoint(ours), *golden("*.savepoint")]


def _restore_plan(data: bytes, *, path: str = "f") -> object:
    found = decode_restore_plan(data, path=path)
    assert all(instant.requested.isdigit() for instant in found.instants)
    return found


def _restore_plans() -> list[bytes]:
    ours = RestorePlan(INSTANT, (PlannedInstant(INSTANT, "deltacommit"),))
    return [encode_restore_plan(ours), *golden("*.restore.requested")]


def _clustering_plan(data: bytes, *, path: str = "f") -> object:
    found = decode_clustering_plan(data, path=path)
    for one in (one for group in found.groups for one in group.slices):
        assert not one.partition or paths.inside(one.partition, source=path) == one.partition
        assert all(paths.file_id_of(name) == one.file_id and "/" not in name for name in one.files)
    return found


def _clustering_plans() -> list[bytes]:
    one = ClusteredSlice("p", "f-0", f"f-0_0-1-2_{INSTANT}.parquet", (f".f-0_{INSTANT}.log.1_0-1-2",))
    ours = ClusteringPlan((ClusteringGroup((one,), 1, {"TOTAL_IO_MB": 1.0}),), notes={"k": "v"})
    return [encode_clustering_plan(ours, "/tables/t"), *golden("*.clustering.requested", most=3)]


def _containers() -> list[bytes]:
    kinds = ("clean", "clean.requested", "restore", "restore.requested", "clustering.requested", "rollback")
    patterns = [f"*.{kind}" for kind in kinds]
    return [found for pattern in patterns for found in golden(pattern, most=3)]


def _name(data: bytes) -> object:
    """All kinds of names; one that parses is the name that its parts make."""
    text = data.decode("utf-8", "surrogateescape")
    log, base, instant = paths.parse_log_name(text), paths.parse_base_name(text), parse_instant(text)
    if log is not None and log.token and not log.is_cdc and str(log.version) in text and ".log." in text:
        made = paths.log_name(log.file_id, log.instant, log.version, log.token)
        assert made == text or "0" in text, f"{made} is made of the parts of {text}"
    if base is not None:
        assert paths.base_name(base.file_id, base.token, base.instant) == text
    if instant is not None:
        assert instant.file_name == text
    for parse in (paths.file_id_of, paths.parse_marker_name, paths.parse_schema_commit, parse_manifest_name,
                  paths.sink_name):  # fmt: skip
        parse(text)
    if (note := paths.parse_guard_note(text)) is not None:
        assert paths.parse_guard_note(paths.guard_note(*note)) == note
    epoch, ticket = paths.parse_epoch(text), paths.parse_ticket_epoch(text)
    assert epoch is None or paths.parse_epoch(paths.epoch_marker(epoch).rsplit("/", 1)[-1]) == epoch
    assert ticket is None or ticket >= 0
    parse_data_name(text, 1)
    in_line([text, text[1:], *text.split("-")])
    return paths.inside(text, source="f")


def _file_names() -> list[bytes]:
    made = [
        paths.log_name("f-0", INSTANT, 2, "0-1-2"), paths.base_name("f-0", "0-1-2", INSTANT),
        f"{paths.log_name('f-0', INSTANT, 2, '0-1-2')}.marker.APPEND", "epoch-12", "ticket-12-00ff",
        "manifest_12", f"{INSTANT}_{INSTANT}_0.parquet", paths.guard_note(3, None, INSTANT), "my%2Fsink",
        paths.guard_note(3, 1, INSTANT), "city=paris/day=2026-01-01", "2026/01/01",
        "_c_0a8a2b1e-3a01-4fd1-9a3a-0e3a3a3a3a3a-lock-0000000012", f"{INSTANT}_{INSTANT}.schemacommit",
    ]  # fmt: skip
    return [name.encode() for name in (*made, *names())]


# ------------------------------------------------------------------------- properties and registers


def _properties(data: bytes) -> object:
    found = parse_properties(data, path="f")
    assert parse_properties(format_properties(found), path="f") == found, "format does not undo parse"
    return found


def _has_keys(whole: dict, found: dict) -> bool:
    """All but the last key are whole; of that one, key or value may be cut."""
    return all(whole.get(key) == value for key, value in list(found.items())[:-1])


def _config(storage: LocalStorage) -> object:
    parsed_config.cache_clear()
    config = load_config(storage)
    config.check_readable("t")
    with contextlib.suppress(Unsupported):
        config.check_writable("t")
    return dict(config.raw)


def _configs() -> list[bytes]:
    return list(golden(".hoodie/hoodie.properties"))


def _owner(data: bytes) -> object:
    found = parse_owner_record(data)
    if found is not None:
        assert parse_owner_record(found.encode()) == found
        found.describe()
    return found


def _promise(data: bytes) -> object:
    found = parse_promise(data)
    if found is not None:
        assert parse_promise(encode_promise(found)) == found
    return found


def _owner_seed() -> list[bytes]:
    return [OwnerRecord("o", "host", "boot", 12, 1_700_000_000_000, 60_000).encode()]


_WRITE = StreamWrite("id", "query", 3, "run", "write", "looks")
_REGISTER = f"{stream_folder(_WRITE.identifier)}/state-1"


def _register(storage: LocalStorage) -> object:
    return allocate(storage, random.Random(1), _WRITE)


def _register_seeds() -> list[bytes]:
    storage = LocalStorage(str(_folder() / "new register"), sync=False)
    with contextlib.suppress(FileExistsError):
        storage.make_folder(stream_folder(_WRITE.identifier))
    allocate(storage, random.Random(1), _WRITE)
    return [storage.read(_REGISTER, max_bytes=10_000)]


def _task_result(data: bytes) -> object:
    return decode_result(data, INSTANT)


def _column_ids(data: bytes) -> object:
    text = data.decode("latin-1")
    field_ids.parse_history(text, "f")
    return field_ids.parse_schema(text, "f")


def _column_id_seeds() -> list[bytes]:
    field = {"id": 0, "name": "a", "optional": True, "type": "long"}
    inner = {"type": "record", "fields": [{"id": 2, "name": "b", "optional": True, "type": "string"}]}
    schema = {"type": "record", "version_id": 7, "max_column_id": 2,
              "fields": [field, {"id": 1, "name": "s", "optional": True, "type": inner}]}  # fmt: skip
    return [json.dumps({**schema, "schemas": [schema]}).encode()]


# ------------------------------------------------------------------------------------- parquet


def _base(storage: LocalStorage) -> object:
    with open_base(storage, "b.parquet") as base:
        found = list(base.batches(base.names))
        for part in found:
            part.validate(full=True)
    return found


def _base_files() -> list[bytes]:
    """The Parquet file of a small block (a base file of ours begins with 400 KB of bloom filter)."""
    small = read_blocks(memoryview(small_log()), path="f")[-1]
    return [bytes(small.content), *golden("*.parquet", most=6)]


def _archive(storage: LocalStorage) -> object:
    archive = Archive.load(storage, "h")
    known = archive.instants()
    for instant in known[:3]:
        archive.completion_time(instant.requested)
        archive.metadata(instant.requested)
    return known


_ARCHIVED = "20261120095540763_20261120095607494_2.parquet"


def _manifest_of(name: str) -> bytes:
    return json.dumps({"files": [{"fileName": name, "fileLen": 1}]}).encode()


# ------------------------------------------------------------------------- whole tables, arguments


@cache
def _whole_table(name: str) -> tuple[Path, list[str], dict[str, bytes]]:
    base = _folder() / name
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        archive.extractall(base)
    found = [p for p in sorted(base.rglob("*")) if p.is_file() and p.stat().st_size < 30_000]
    files = [str(p.relative_to(base)) for p in found if p.suffix != ".crc"]
    files = [file for file in files if not file.startswith(".hoodie/metadata")]
    return base, files, {file: (base / file).read_bytes() for file in files}


def _whole(name: str) -> Target:
    """One file of a table replaced (the first byte says which), then the whole table read."""

    def run(data: bytes) -> object:
        base, files, contents = _whole_table(name)
        file = files[data[0] % len(files)] if data else files[0]
        (base / file).write_bytes(data[1:])
        try:
            table = open_table(base)
            found = [table.scan().to_arrow(), table.changes("000").to_arrow()]
            for part in found:
                part.validate(full=True)
            return [part.num_rows for part in found]
        finally:
            (base / file).write_bytes(contents[file])

    def seeds() -> list[bytes]:
        _, files, contents = _whole_table(name)
        return [bytes([i]) + contents[file] for i, file in enumerate(files[:256])]

    return Target(f"whole table {name}", run, seeds, lambda whole, found: True, slow=True)


def _arguments(data: bytes) -> object:
    words = data.decode("utf-8", "replace").replace("\0", "").split("\n")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(words)
    assert code in (DONE, REFUSED, USAGE, TRY_AGAIN), code
    assert "Traceback" not in said.getvalue()
    return code


def _argument_seeds() -> list[bytes]:
    lines = ["--help", "scan\n/nowhere", "changes\n/nowhere\n--since\n2026", "timeline\n/nowhere"]
    lines += ["slices\n/nowhere\n-p\nhoodie.x=1", "scan\n/nowhere\n--columns\na,b\n--limit\n3"]
    return [line.encode() for line in lines]


def _any(whole: object, found: object) -> bool:
    return True


_AVRO, _AVRO_SEEDS = _contents(BlockKind.AVRO_DATA)
_DELETE, _DELETE_SEEDS = _contents(BlockKind.DELETE)
_PARQUET, _PARQUET_SEEDS = _contents(BlockKind.PARQUET_DATA)

#: Parsers of containers beside the strange ones that they must survive.
CONTAINER_PARSERS = (
    decode_commit, decode_rollback_plan, decode_compaction_plan, _clean_plan, _index_plan, _savepoint,
    _restore_plan, _clustering_plan,
)  # fmt: skip

TARGETS = [
    Target("log file", _log_file, lambda: [small_log(), _hfile_log(), *golden("*.log.*", most=20)],
           _is_prefix),
    Target("Avro data block", _AVRO, _AVRO_SEEDS),
    Target("Avro data block of many rows", _content(BlockKind.AVRO_DATA, TEXT), lambda: [_many_rows()]),
    Target("delete block", _DELETE, _DELETE_SEEDS),
    Target("Parquet data block", _PARQUET, _PARQUET_SEEDS),
    Target("HFile", lambda data: _check_hfile(open_hfile(data, path="f")), _hfiles),
    Target("Avro schema", _schema,
           lambda: [text.encode() for text in (TEXT, *_by_schema(BlockKind.AVRO_DATA))]),
    Target("Avro container", lambda data: decode_container(data, path="f"), _containers),
    Target("commit metadata", _commit, _commits),
    Target("rollback plan", lambda data: decode_rollback_plan(data, path="f"), _rollback_plans, _any),
    Target("compaction plan", lambda data: decode_compaction_plan(data, path="f"), _compaction_plans, _any),
    Target("clean plan", _clean_plan, _clean_plans, _any),
    Target("index plan", _index_plan, _index_plans, _any),
    Target("savepoint", _savepoint, _savepoints, _any),
    Target("restore plan", _restore_plan, _restore_plans, _any),
    Target("clustering plan", _clustering_plan, _clustering_plans, _any),
    Target("names of files, instants and partitions", _name, _file_names, _any),
    Target("Java properties", _properties, _configs, _has_keys),
    Target("hoodie.properties", _in_file(paths.PROPERTIES, _config), _configs, _any, slow=True),
    Target("archive manifest", lambda data: parse_manifest(data, "f"),
            lambda: [*golden("*/manifest_*"), _manifest_of(_ARCHIVED)]),
    Target("archive version",
            _in_file("h/_version_", _archive, {"h/manifest_1": b'{"files":[]}'}),
            lambda: [b"1"], _any, slow=True),
    Target("archived instants",
            _in_file(f"h/{_ARCHIVED}", _archive,
                     {"h/_version_": b"1", "h/manifest_1": _manifest_of(_ARCHIVED)}),
            lambda: golden("*/history/*.parquet"), slow=True),
    Target("base file", _in_file("b.parquet", _base), _base_files, slow=True),
    Target("owner of a lock file", _owner, _owner_seed, lambda whole, found: found in (None, whole)),
    Target("heartbeat", _promise, lambda: [encode_promise(120_000)],
           lambda whole, found: found in (None, whole)),
    Target("register of a stream's writes", _in_file(_REGISTER, _register), _register_seeds, slow=True),
    Target("result of a task", _task_result,
           lambda: [json.dumps({"instant": INSTANT, "rows": 0, "files": []}).encode()]),
    Target("schemas with column ids", _column_ids, _column_id_seeds),
    Target("arguments of the command", _arguments, _argument_seeds, _any, slow=True),
    *COLUMN_TARGETS,
    *OWN_TARGETS,
    *METADATA_TARGETS,
    *NATIVE_TARGETS,
    *VECTOR_TARGETS,
    _whole("savepoint_restore"),
    _whole("archive_lsm"),
    _whole("v10_basic_mor"),
]  # fmt: skip


def protected() -> list[tuple[str, Target, bytes, Sequence[int]]]:
    """``(what, its target, a valid file, bytes to flip)``: the rows of the table in docs/damage.md."""
    known = {target.name: target for target in TARGETS}
    log = known["log file"]
    made = []
    for name, place in (("Avro", 0), ("delete", 1), ("Parquet", 3)):
        file = small_log()
        found = read_blocks(memoryview(file), path="f")
        block, end = found[place], (*(b.offset for b in found), len(file))[place + 1]
        alone = file[block.offset : end]
        first = block.content_offset - block.offset
        last = first + len(block.content)
        schema = alone.index(TEXT.encode())
        frame = [*range(schema), *range(schema + len(TEXT), first), *range(last, len(alone))]
        made.append((f"{name} block: sizes, kinds, instant, trailer", log, alone, frame))
        made.append((f"{name} block: content", log, alone, range(first, last)))
    made.insert(2, ("block: schema header", log, alone, range(schema, schema + len(TEXT))))
    commit = encode_commit([], {"schema": "s"}, "UPSERT")
    made.append(("timeline file (Avro container)", known["commit metadata"], commit, range(len(commit))))
    properties = _configs()[0]
    made.append(("hoodie.properties", known["hoodie.properties"], properties, range(len(properties))))
    parquet = _base_files()[0]
    made.append(("Parquet base file", known["base file"], parquet, range(len(parquet))))
    return made
