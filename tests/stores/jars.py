"""Jars from Maven that tests of object stores need, fetched once into ``.venv-stores``."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.servers.object_stores import PROGRAMS

POMS = Path(__file__).with_name("java")
S3A, LOCK = ("s3a-jars", "s3a.xml"), ("lock-jars", "pom.xml")


def missing(*wanted: tuple[str, str]) -> str | None:
    """Why the jars of some folders cannot be had, or our classes cannot be made of them; None if they can."""
    if shutil.which("mvn") is None and not all((PROGRAMS / name).is_dir() for name, _ in wanted):
        return "needs Maven, which fetches jars"
    if LOCK in wanted and shutil.which("javac") is None:
        return "needs javac"
    return None


def jars(name: str, pom: str) -> Path:
    """The folder ``name`` with what ``java/<pom>`` lists; skips the test where Maven is missing."""
    if reason := missing((name, pom)):
        pytest.skip(reason)
    return fetched(name, pom)


def fetched(name: str, pom: str) -> Path:
    """The folder ``name`` with what ``java/<pom>`` lists."""
    folder = PROGRAMS / name
    if not folder.is_dir():
        coming = Path(tempfile.mkdtemp(prefix=f"{name}-coming-", dir=PROGRAMS))
        subprocess.run(
            ["mvn", "-q", "-B", "-f", str(POMS / pom), "dependency:copy-dependencies",
             f"-DoutputDirectory={coming}"], check=True,
        )  # fmt: skip
        try:
            coming.rename(folder)
        except OSError:  # somebody else was faster
            shutil.rmtree(coming)
    return folder


def lock_classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of Hudi's bundle and AWS's client, and of our two classes, the stand-in for hudi-aws one."""
    if reason := missing(LOCK):
        pytest.skip(reason)
    return fetched(*LOCK), compiled(tmp_path_factory.mktemp("classes"))


def compiled(folder: Path) -> Path:
    """Our classes, compiled into ``folder``."""
    found = fetched(*LOCK)
    subprocess.run(
        ["javac", "-nowarn", "-d", str(folder), "-cp", f"{found}/*", *map(str, POMS.glob("*.java"))],
        check=True,
    )
    return folder
