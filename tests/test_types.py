"""Goal: the types that `py.typed` promises are there for a user's type checker, and wrong calls are found.

Method: mypy, strict, over a user's program; what it finds for each marked expression and each wrong line is
compared with what stands beside it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mypy import api

ROOT = Path(__file__).resolve().parents[1]
# As for an installed package: it is read for its types, and what may be wrong in it is not told.
SETTINGS = """
[mypy]
strict = True
mypy_path = {root}
follow_imports = silent
[mypy-{libraries}]
follow_imports = skip
follow_imports_for_stubs = True
ignore_missing_imports = True
"""
PROGRAM = '''
import pyarrow as pa
import mainstem
from mainstem import Invalid, Outcome, StreamGuard, Table, Transaction

schema = pa.schema([("id", pa.string()), ("fare", pa.float64())])
table = mainstem.create_table("/trips", schema, record_key="id", ordering=["fare"], buckets=4)
same: Table = mainstem.open_table("/trips", {"hoodie.clean.commits.retained": 3})
reveal_type(table)  # Table
reveal_type(table.path)  # str
reveal_type(table.properties)  # dict[str, str]
reveal_type(table.timeline()[0].completion)  # str | None
reveal_type(table.file_slices()[0].log_files)  # tuple[str, ...]
reveal_type(table.upsert({"id": ["a"], "fare": [1.0]}))  # Outcome
reveal_type(table.delete(pa.table({"id": ["a"]})).completion_time)  # str | None
reveal_type(table.services.compact())  # list[Compaction]
reveal_type(table.indexes.create("column_stats", ["fare"]))  # Built | Refreshed
reveal_type(table.vectors.search("place", [0.1, 0.2], k=3))  # Any
reveal_type(table.compact())  # list[Compaction]
reveal_type(table.clean())  # list[Cleaned]
reveal_type(table.scan(["id"], as_of="20260101000000000").to_batches())  # Iterator[Any]
reveal_type(table.changes(deletes=True))  # ScanPlan

with table.begin("upsert", guard=StreamGuard("trips", 7)) as transaction:
    reveal_type(transaction)  # Transaction
    reveal_type(transaction.write(pa.table({"id": ["b"], "fare": [2.0]})))  # int
    reveal_type(transaction.instant)  # str
    outcome: Outcome = transaction.commit()
    reveal_type(outcome.rows)  # int


def take(transaction: Transaction) -> str:
    try:
        return transaction.commit().status
    except Invalid as error:
        reveal_type(error.table)  # str | None
        return error.message


table.begin(guard="trips")  # error: arg-type
table.begin(operation=7)  # error: arg-type
table.upsrt({})  # error: attr-defined
mainstem.open_tabel("/trips")  # error: attr-defined
mainstem.create_table("/trips")  # error: call-arg
'''
_NOTE = re.compile(r'program\.py:(\d+): note: Revealed type is "(.*)"$')
_ERROR = re.compile(r"program\.py:(\d+): error: .*\[([a-z-]+)\]$")
_MODULE = re.compile(r"\b[a-z_]+\.(?:[a-z_]+\.)*")
_MARK = re.compile(r"  # (error: )?(.*)$")


def _untyped_libraries() -> list[str]:
    """Those whose types our own checks do not follow either."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (libraries,) = (group["module"] for group in told if group.get("follow_imports") == "skip")
    return libraries


def test_a_users_type_checker_finds_our_types_and_his_mistakes(tmp_path):
    program, settings = tmp_path / "program.py", tmp_path / "mypy.ini"
    program.write_text(PROGRAM)
    settings.write_text(SETTINGS.format(root=ROOT, libraries=",".join(_untyped_libraries())))
    said, trouble, _ = api.run(
        ["--config-file", str(settings), "--cache-dir", str(tmp_path / "cache"), str(program)]
    )
    assert not trouble
    found: dict[int, str] = {}
    for line in said.splitlines():
        if note := _NOTE.search(line):
            found[int(note[1])] = _MODULE.sub("", note[2])
        elif error := _ERROR.search(line):
            found[int(error[1])] = f"error: {error[2]}"
    lines = enumerate(PROGRAM.splitlines(), 1)
    expected = {number: "".join(m.groups("")) for number, line in lines if (m := _MARK.search(line))}
    assert found == expected, said
