"""A factory of small tables; every test has tables of its own."""

from __future__ import annotations

import pytest
from small_table import SCHEMA

import mainstem


@pytest.fixture
def make_table(tmp_path):
    def make(name="t", *, ordering="ts", partition_by="city", buckets=2, table_version=9, **properties):
        options = {
            "hoodie.mainstem.exclusive": True,
            "hoodie.mainstem.fsync": False,
            **{key.replace("__", "."): value for key, value in properties.items()},
        }
        return mainstem.create_table(
            tmp_path / name,
            SCHEMA,
            record_key="id",
            ordering=ordering,
            partition_by=partition_by,
            buckets=buckets,
            table_version=table_version,
            properties=options,
        )

    return make
