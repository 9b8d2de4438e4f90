"""Jars from Maven that tests of object stores need, fetched once into ``.venv-stores``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.object_stores import PROGRAMS

POMS = Path(__file__).with_name("java")


def jars(name: str, pom: str) -> Path:
    """The folder ``name`` with what ``java/<pom>`` lists; skips the test without it and Maven."""
    folder = PROGRAMS / name
    if not folder.is_dir():
        mvn = shutil.which("mvn")
        if mvn is None:
            pytest.skip("needs Maven")
        coming = folder.with_name(f"{name}-coming")
        subprocess.run(
            [mvn, "-q", "-B", "-f", str(POMS / pom), "dependency:copy-dependencies",
             f"-DoutputDirectory={coming}"], check=True,
        )  # fmt: skip
        coming.rename(folder)
    return folder


def lock_classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of Hudi's bundle and AWS's client, and of our two classes, the stand-in for hudi-aws one."""
    javac = shutil.which("javac")
    if javac is None:
        pytest.skip("needs javac")
    found, made = jars("lock-jars", "pom.xml"), tmp_path_factory.mktemp("classes")
    subprocess.run(
        [javac, "-nowarn", "-d", str(made), "-cp", f"{found}/*", *map(str, POMS.glob("*.java"))], check=True
    )
    return found, made
