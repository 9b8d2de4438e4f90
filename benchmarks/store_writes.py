"""Large files into an object store, MinIO on loopback: bytes per second against the bare library's ``put``.

A file that grows by pieces, as log files and base files do, and one whose content is there at once, as a file
that is spilled to this machine and then put. The library puts parts side by side, which a new object that
must not replace another one does not allow: the same ``put`` on this condition is the bound.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import obstore

from benchmarks import Missing, Row, asked, median_seconds, row
from mainstem.limits import MIB
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store
from tests.servers.object_stores import Minio, NoServer

LARGE_BYTES = 256 * MIB
PIECE_BYTES = 4 * MIB
BUCKET = "benchmark"


def run(reduced: bool) -> list[Row]:
    """Rows of the table."""
    try:
        with Minio() as server:
            server.make_bucket(BUCKET)
            return _rows(server, LARGE_BYTES // (4 if reduced else 1), 5 if reduced else 9)
    except NoServer as missing:
        raise Missing(str(missing)) from None


def _rows(server: Minio, size: int, repeats: int) -> list[Row]:
    location = server.location(BUCKET, "large")
    store, storage = open_store(location), ObjectStorage(open_store(location), location)
    content = memoryview(np.random.default_rng(0).bytes(size))
    number = 0

    def name() -> str:
        nonlocal number
        number += 1
        return f"f{number}"

    def bare() -> None:
        obstore.put(store, f"large/{name()}", content)

    def pieces() -> None:
        upload = storage.upload(name())
        for at in range(0, size, PIECE_BYTES):
            upload.append([content[at : at + PIECE_BYTES]])
        upload.close(durable=True)

    def condition() -> None:
        obstore.put(store, f"large/{name()}", content, mode="create", use_multipart=False)

    works: dict[str, Callable[[], object]] = {
        "bare": bare,
        "condition": condition,
        "at once": lambda: storage.put_new(name(), content, durable=True),
        "by pieces": pieces,
    }
    seconds = median_seconds(works, repeats)
    speed = {work: size / MIB / taken for work, taken in seconds.items()}
    target = asked(0.8, speed["condition"] / speed["bare"])
    note = f"obstore's put of an object that must be new: {speed['condition']:.0f} MiB/s"
    return [
        row(
            f"a new file of {size / MIB:.0f} MiB written {how}", speed[how], "MiB/s",
            against="obstore's put, bare", baseline=speed["bare"], target=target, note=note,
        )
        for how in ("at once", "by pieces")
    ]  # fmt: skip
