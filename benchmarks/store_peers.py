"""What other systems do with the rows of ``store_commits``, on the same server behind the same delay.

Each process has the table open and knows its newest version, as ours does. delta-rs merges, with conditional
puts and no lock service; pyiceberg upserts, with a catalog in SQLite on this machine, which no delay meets.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from benchmarks import Missing
from benchmarks.systems import Aborted, need
from mainstem.storage.location import Location

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
# A writer whose commit is refused for so long gives it up.
_PATIENCE_S = 20.0
PEERS = ("delta-rs merge", "pyiceberg upsert")


def batch(number: int) -> pa.Table:
    """The same keys with newer values."""
    return pa.table({"id": [f"k{n}" for n in range(4)], "v": [number] * 4, "ts": [number] * 4}, schema=SCHEMA)


def measure(
    commit: Callable[[int], bool],
    told: dict[str, Any],
    start: Any,
    seconds: float,
    out: Any,
    requests: Counter[str] | None = None,
) -> None:
    """Commit until ``seconds`` after all processes have begun, and twice before that.

    Puts in ``out`` what was told, the milliseconds of each commit that succeeded, requests and processor
    seconds.
    """
    number = 1
    for warm_up in range(2):
        commit(warm_up)
    start.wait()
    if requests is not None:
        requests.clear()
    told |= {name: type(value)() for name, value in told.items()}
    began_s, end, ms = time.process_time(), time.perf_counter() + seconds, []
    while (began := time.perf_counter()) < end:
        number += 1
        if commit(number):
            ms.append(1000 * (time.perf_counter() - began))
    cpu_s = time.process_time() - began_s
    out.put({**told, "ms": ms, "requests": sum((requests or Counter()).values()), "cpu_s": cpu_s})


def race(
    name: str,
    run: Callable[[Callable[..., None], str], Any],
    writers: int,
    location: Callable[[str], Location],
) -> Any:
    """Create the peer's table and ``run(body, folder)``; a text says why there is nothing to run."""
    folder = f"{name.split()[0]}{writers}"
    there = location(folder)
    try:
        if name.startswith("delta"):
            need("deltalake")
            _create_delta(there)
            return run(_delta, folder)
        need("pyiceberg")
        need("sqlalchemy")
        with TemporaryDirectory() as own:
            catalog = f"{own}/catalog.db"
            _create_iceberg(catalog, there)
            return run(partial(_iceberg, catalog), folder)
    except Missing as missing:
        return str(missing)


def _loop(
    attempt: Callable[[pa.Table], None], reload: Callable[[], None], start: Any, seconds: float, out: Any
) -> None:
    told: dict[str, Any] = {"aborts": 0, "why": ""}

    def commit(number: int) -> bool:
        limit = time.perf_counter() + _PATIENCE_S
        while time.perf_counter() < limit:
            try:
                attempt(batch(number))
                return True
            except Aborted as error:
                told["aborts"] += 1
                told["why"] = str(error)
                with suppress(Aborted):
                    reload()
        return False

    measure(commit, told, start, seconds, out)


# -- delta-rs ------------------------------------------------------------------------------------------


def _delta_options(options: Mapping[str, str]) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": options["fs.s3a.endpoint"],
        "AWS_REGION": options["fs.s3a.endpoint.region"],
        "AWS_ACCESS_KEY_ID": options["fs.s3a.access.key"],
        "AWS_SECRET_ACCESS_KEY": options["fs.s3a.secret.key"],
        "AWS_ALLOW_HTTP": "true",
        "aws_conditional_put": "etag",
    }


def _create_delta(there: Location) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(there.base, schema=SCHEMA, storage_options=_delta_options(there.option_values()))


def _delta(base: str, options: Mapping[str, str], start: Any, seconds: float, out: Any) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    table = DeltaTable(base, storage_options=_delta_options(options))

    def attempt(rows: pa.Table) -> None:
        merge = table.merge(rows, predicate="t.id = s.id", source_alias="s", target_alias="t")
        try:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        except (DeltaError, OSError) as error:
            raise Aborted(str(error)) from error

    def reload() -> None:
        table.update_incremental()

    _loop(attempt, reload, start, seconds, out)


# -- pyiceberg -----------------------------------------------------------------------------------------


def _catalog(catalog: str, base: str, options: Mapping[str, str]) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        "b",
        uri=f"sqlite:///{catalog}",
        warehouse=base,
        **{
            "s3.endpoint": options["fs.s3a.endpoint"],
            "s3.region": options["fs.s3a.endpoint.region"],
            "s3.access-key-id": options["fs.s3a.access.key"],
            "s3.secret-access-key": options["fs.s3a.secret.key"],
            "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        },
    )


def _create_iceberg(catalog: str, there: Location) -> None:
    made = _catalog(catalog, there.base, there.option_values())
    made.create_namespace("b")
    made.create_table("b.t", schema=SCHEMA)


def _iceberg(
    catalog: str, base: str, options: Mapping[str, str], start: Any, seconds: float, out: Any
) -> None:
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from sqlalchemy.exc import SQLAlchemyError

    opened = _catalog(catalog, base, options)
    table = opened.load_table("b.t")

    def attempt(rows: pa.Table) -> None:
        try:
            table.upsert(rows, join_cols=["id"])
        except (CommitFailedException, ValidationException, SQLAlchemyError, ValueError) as error:
            raise Aborted(f"{type(error).__name__}: {error}") from error

    def reload() -> None:
        nonlocal table
        table = opened.load_table("b.t")

    _loop(attempt, reload, start, seconds, out)
