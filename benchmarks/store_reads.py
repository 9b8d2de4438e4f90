"""Reads from an object store: MinIO on loopback, and the same behind a delay of 10 ms for every request.

Large files: bytes that arrive per second by the three ways in which large files are read (a base file's row
groups, a log file or HFile as a whole, a file that is spilled to this machine), against a plain ``get`` of
the bare library. Then whole queries of a table of a hundred file slices: the first of a handle, the next one,
one after another commit, one key; behind the delay, where requests one after another are what counts. The
same on a local disk says what decoding takes; hudi-rs reads the same table in the same way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import mainstem
from benchmarks import Missing, Row, data, median_seconds, read_tables, row, work_folder
from mainstem.limits import MIB
from mainstem.readers.rows.equal_chunks import chunk_start
from mainstem.storage import maps
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store
from tests.servers.object_stores import Minio, NoServer
from tests.servers.tcp_proxy import TcpProxy

LARGE_BYTES = 256 * MIB
PARTITIONS, BUCKETS, ROWS = 25, 4, 100_000
DELAY_S = 0.010
BUCKET = "benchmark"


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    folder = work_folder("store_reads")
    try:
        with Minio() as server:
            server.make_bucket(BUCKET)
            rows = _large_files(server, folder, LARGE_BYTES // (4 if reduced else 1), 5 if reduced else 9)
            return rows + _queries(server, folder, ROWS // (4 if reduced else 1), 5 if reduced else 9)
    except NoServer as missing:
        raise Missing(str(missing)) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- large files ---------------------------------------------------------------------------------------


def _large_files(server: Minio, folder: Path, size: int, repeats: int) -> list[Row]:
    location = server.location(BUCKET, "large")
    store, storage = open_store(location), ObjectStorage(open_store(location), location)
    base, plain = folder / "base.parquet", folder / "plain"
    plain.write_bytes(np.random.default_rng(0).bytes(size))
    numbers = np.frombuffer(plain.read_bytes(), np.int64).reshape(8, -1)
    columns = {f"c{number}": pa.array(column) for number, column in enumerate(numbers)}
    pq.write_table(
        pa.table(columns), base, compression="none", use_dictionary=False, row_group_size=MIB // 2
    )
    for path in (base, plain):
        obstore.put(store, f"large/{path.name}", path)
    described = pq.read_metadata(base)

    def groups() -> None:
        """The row groups as a scan fetches them, not decoded."""
        file = storage.open_input(base.name)
        for number in range(described.num_row_groups):
            group = described.row_group(number)
            chunks = [group.column(at) for at in range(group.num_columns)]
            ranges = [(chunk_start(chunk), chunk.total_compressed_size) for chunk in chunks]
            file.prefetch(ranges)
            for start, length in ranges:
                file.seek(start)
                assert len(file.read_buffer(length)) == length

    def bare(path: Path) -> None:
        assert len(obstore.get(store, f"large/{path.name}").bytes()) == path.stat().st_size

    works: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(plain),
        "whole": lambda: maps.view(storage, plain.name),
        "spilled": lambda: maps.private_copy(storage, plain.name, size, spill=True),
        "bare base": lambda: bare(base),
        "groups": groups,
    }
    found = median_seconds(works, repeats)
    mib = {name: (base if name in ("bare base", "groups") else plain).stat().st_size / MIB for name in works}
    speed = {name: mib[name] / seconds for name, seconds in found.items()}
    named = {
        "groups": f"row groups of a base file of {mib['groups']:.0f} MiB fetched, all columns",
        "whole": f"a file of {mib['whole']:.0f} MiB fetched whole",
        "spilled": f"a file of {mib['spilled']:.0f} MiB fetched into a temporary file",
    }
    return [
        row(
            work, speed[name], "MiB/s", against="obstore's get, bare",
            baseline=speed["bare base" if name == "groups" else "bare"],
            target=None if name == "spilled" else 0.8,
        )
        for name, work in named.items()
    ]  # fmt: skip


# -- queries -------------------------------------------------------------------------------------------


def _queries(server: Minio, folder: Path, count: int, repeats: int) -> list[Row]:
    table = _made(folder / "table", count)
    location = server.location(BUCKET, "table")
    _copy(folder / "table", location, "table")
    rows: list[Row] = []
    with TcpProxy(server.port, delay_s=DELAY_S) as proxy:
        far = proxy.reach(location)
        key = data.keys(np.array([7]))[0].as_py()
        opened = mainstem.open_table(far)
        expected = opened.scan().to_arrow().num_rows
        peer, note = _hudi_rs(far, expected)
        works: dict[str, Callable[[], object]] = {
            "first": lambda: mainstem.open_table(far).scan().to_arrow(),
            "next": lambda: opened.scan().to_arrow(),
            "local": lambda: table.scan().to_arrow(),
            "key": lambda: opened.scan(filter=pc.field(data.KEY) == key).to_arrow(),
        }
        if peer is not None:
            works["peer"] = peer
        found = median_seconds(works, repeats)
        table.upsert(data.rows(np.arange(50), version=9))
        _copy(folder / "table", location, "table")
        found |= median_seconds({"changed": works["next"]}, 1)
    slices = PARTITIONS * BUCKETS
    told = f"{slices} file slices, {expected:,} rows, {DELAY_S * 1000:.0f} ms a request"
    peers = {
        "first": ("hudi-rs 0.5, table opened and read", found.get("peer"), None, note),
        "next": ("the same table on a local disk", found["local"], 0.5, ""),
        "changed": ("the same table on a local disk", found["local"], None, ""),
        "key": ("the same handle's full scan", found["next"], None, ""),
    }
    names = {
        "first": "table opened and scanned",
        "next": "the same handle's next scan",
        "changed": "its scan after one more commit",
        "key": "one row by its key",
    }
    for name, work in names.items():
        against, seconds, target, more = peers[name]
        rows.append(
            row(
                f"{work}, {told}", 1 / found[name], "queries/s", against=against,
                baseline=1 / seconds if seconds else None, target=target,
                note="; ".join(filter(None, (f"{found[name] * 1000:.0f} ms", more))),
            )
        )  # fmt: skip
    return rows


def _made(path: Path, count: int) -> mainstem.Table:
    """A table of base files and log files in all its file groups."""
    table = read_tables.create(path, buckets=BUCKETS, partition_by=["city"], schema=data.SCHEMA)

    def batch(first: int, end: int, version: int) -> pa.Table:
        made = pa.table(data.rows(np.arange(first, end), version=version))
        place = pa.array([f"p{number % PARTITIONS:02}" for number in range(first, end)])
        return made.set_column(made.schema.get_field_index("city"), "city", place)

    table.upsert(batch(0, count, 0))
    read_tables.compacted(table)
    table.upsert(batch(0, count // 10, 1))
    return table


def _copy(folder: Path, location: Location, prefix: str) -> None:
    """Put the files of a folder that the store lacks."""
    store = open_store(location)
    there = {one["path"]: one["size"] for one in obstore.list(store, prefix).collect()}
    for path in folder.rglob("*"):
        key = f"{prefix}/{path.relative_to(folder).as_posix()}"
        if path.is_file() and there.get(key) != path.stat().st_size:
            obstore.put(store, key, path.read_bytes())


def _hudi_rs(location: Location, expected: int) -> tuple[Callable[[], object] | None, str]:
    """A read by hudi-rs, or why there is none."""
    try:
        from hudi import HudiTableBuilder
    except ImportError:
        return None, "hudi is not installed (extra 'dev')"
    given = location.option_values()
    told = {
        "AWS_ENDPOINT_URL": given["fs.s3a.endpoint"],
        "AWS_REGION": given["fs.s3a.endpoint.region"],
        "AWS_ACCESS_KEY_ID": given["fs.s3a.access.key"],
        "AWS_SECRET_ACCESS_KEY": given["fs.s3a.secret.key"],
        "AWS_ALLOW_HTTP": "true",
    }

    def read() -> int:
        with _environment(told):
            table = HudiTableBuilder.from_base_uri(location.base).build()
            return sum(pa.record_batch(batch).num_rows for batch in table.read())

    try:
        found = read()
    except Exception as error:
        return None, f"hudi-rs fails: {str(error)[:80]}"
    return read, "" if found == expected else f"it finds {found:,} rows"


@contextmanager
def _environment(variables: dict[str, Any]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
