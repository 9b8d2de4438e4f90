"""Parsers that want a file: the bytes under test are put where the parser looks for them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from mainstem.storage.local import LocalStorage


@cache
def folder() -> Path:
    """Of this process's files."""
    return Path(tempfile.mkdtemp(prefix="mainstem-fuzz-"))


def in_file(
    path: str, read: Callable[[LocalStorage], object], others: dict[str, bytes] | None = None
) -> Callable[[bytes], object]:
    """A parser that is given a storage with these bytes at ``path``."""

    def run(data: bytes) -> object:
        base = folder() / path.replace("/", "-")
        shutil.rmtree(base, ignore_errors=True)
        for name, content in {**(others or {}), path: data}.items():
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).write_bytes(content)
        return read(LocalStorage(str(base), sync=False))

    return run
