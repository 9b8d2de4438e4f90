"""Fixtures of the interop tests: one Java Hudi for the whole run (a JVM starts slowly)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from java_hudi import PYTHON, QUICK_JVM, JavaHudi


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaHudi]:
    """A running Java Hudi 1.2.0; its log is kept in pytest's folder."""
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} does not exist: run `make interop`, which creates it")
    log = tmp_path_factory.mktemp("java") / "stderr.log"
    with JavaHudi(cores=2, memory="1g", log=log, jvm=QUICK_JVM) as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a test puts its table."""
    return str(tmp_path / "table")
