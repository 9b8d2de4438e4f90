"""Part of the tests, the same ones every time: ``--sample K/N``."""

from __future__ import annotations

import zlib

import pytest


def add_options(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample", type=_part_of, default=(1, 1), metavar="K/N",
        help="one test in N, always the same ones; the parts 1/N to N/N are all tests",
    )  # fmt: skip


def _part_of(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not part.isdigit() or not parts.isdigit() or not 1 <= int(part) <= int(parts):
        raise ValueError(text)
    return int(part), int(parts)


def sampled(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in the sample; what is asked for by its own name stays."""
    part, parts = config.getoption("--sample")
    if parts == 1 or any("::" in name for name in config.args):
        return
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[zlib.crc32(item.nodeid.encode()) % parts == part - 1].append(item)
    items[:] = chosen[True]
    config.hook.pytest_deselected(items=chosen[False])
