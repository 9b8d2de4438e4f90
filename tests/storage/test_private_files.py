"""Goal: private files of an object store behave as files do that are on a disk, and lie in no object.

Method: every verb on a private path, over a store in memory.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from mainstem.storage import paths
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.private_files import PrivateFiles

PRIVATE = paths.prepared("archive", "0" * 16)


@pytest.fixture
def storage() -> PrivateFiles:
    return PrivateFiles(ObjectStorage(MemoryStore(), Location("memory", "bucket", "/table")))


def test_a_private_file_is_read_by_pyarrow_as_archives_are_merged(storage: PrivateFiles) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2]}), sink)
    upload = storage.upload(PRIVATE)
    upload.append([sink.getvalue().to_pybytes()])
    storage.renew(PRIVATE)  # while it grows, too: nobody sweeps it
    upload.close(durable=True)
    assert pq.read_table(storage.open_input(PRIVATE))["a"].to_pylist() == [1, 2]
    assert storage.inner.names("") == []
    with pytest.raises(FileNotFoundError):
        storage.open_input(paths.prepared("archive", "1" * 16))
