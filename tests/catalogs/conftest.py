"""A Hive Metastore for the run of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers import hive_metastore


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URI."""
    jars = hive_metastore.jars()
    assert jars is not None, "Spark's jars hold the metastore: make setup-dev"
    with hive_metastore.running(tmp_path_factory.mktemp("metastore"), jars) as uri:
        yield uri
