"""Goal: the public names exist, and ``import mainstem`` and opening a table stay cheap.

Method: the names are compared with the documented list; the import is made in a fresh interpreter
and must not load any heavy package (its time is measured by the benchmarks, not by a test).
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import mainstem
from mainstem import errors

PUBLIC = {
    "create_table", "open_table", "Table", "Transaction", "Outcome", "StreamGuard",
    "MainstemError", "Invalid", "Unsupported", "CorruptTable", "LockUnavailable", "Unavailable",
    "LeaseLost", "RolledBack", "OutcomeUnknown", "TableExists", "TableReplaced", "ValidationFailed",
}  # fmt: skip
HEAVY = {
    "numpy", "pyarrow", "fastavro", "pandas", "pyspark", "greenlet", "kazoo", "asyncio",
    "multiprocessing", "urllib.request", "http.client",
}  # fmt: skip


def _loaded_after(statement: str) -> set[str]:
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(run.stdout))


def test_the_public_names_are_there_and_listed() -> None:
    assert set(mainstem.__all__) >= PUBLIC
    assert mainstem.__all__ == sorted([*mainstem._PLACES, "__version__"])
    for name in mainstem.__all__:
        assert getattr(mainstem, name) is not None
        assert name in dir(mainstem)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        mainstem.no_such_name  # noqa: B018


def test_import_mainstem_loads_nothing_heavy() -> None:
    loaded = _loaded_after("import mainstem")
    assert not loaded & HEAVY
    assert not {m for m in loaded if m.startswith("mainstem.")} & {
        "mainstem.api.table", "mainstem.readers", "mainstem.writers", "tests.sim",
    }  # fmt: skip


def test_reading_and_writing_never_load_the_engines() -> None:
    loaded = _loaded_after("import mainstem; mainstem.open_table; mainstem.Table")
    assert not loaded & {"pyspark", "pandas", "greenlet", "kazoo"}
    assert "tests.sim" not in loaded


def test_opening_a_table_loads_neither_pyarrow_nor_readers_nor_writers(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])
    for name, options in (("plain", {}), ("indexed", {"hoodie.metadata.enable": "true"})):
        path = str(tmp_path / name)
        mainstem.create_table(path, schema, record_key="id", properties=options)
        loaded = _loaded_after(f"import mainstem; mainstem.open_table({path!r})")
        assert not loaded & {*HEAVY, "obstore", "boto3", "faiss", "logging.config"}
        rooms = {module.split(".")[1] for module in loaded if module.startswith("mainstem.")}
        assert not rooms & {"readers", "writers", "services", "indexing", "vectors", "filters", "flink"}
        assert not loaded & {
            "mainstem.publish.publisher", "mainstem.publish.gate_fence", "mainstem.storage.aws_credentials",
            "mainstem.truetime.locks.zookeeper_options", "mainstem.truetime.locks.dynamodb_options",
        }  # fmt: skip


def test_every_error_is_a_mainstem_error_and_says_what_to_do_in_its_docstring() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and not name.startswith("_"):
            assert issubclass(value, errors.MainstemError)
            assert value.__doc__
