"""Goal: docs/quickstart-spark.md is true: its statements run as they stand, or are refused as it says.

Method: all are carried out in order in one session. Each section begins with no table; ``/tmp`` is the test's
folder. What a refusal says first must be one line.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from mainstem import spark as ms
from mainstem.errors import MainstemError
from tests.statement_pages import sections_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.here("paths of the page are folders"),
    pytest.mark.supports("Engines", "Spark SQL: the statements of Hudi's pages, one by one"),
]
SECTIONS = sections_of("quickstart-spark.md")
MOST_REFUSED = 0.07


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    spark.sql("SELECT 7 AS id, 'a' AS name, 1 AS ts, '2021-12-09' AS dt").write.parquet(
        str(tmp_path / "parquet_dataset")
    )
    yield tmp_path
    for name in [n for n in spark.conf.getAll if n.startswith("hoodie.")]:
        spark.conf.unset(name)
    for name in [one.name for one in spark.catalog.listTables() if one.tableType != "TEMPORARY"]:
        spark.sql(f"DROP TABLE {name}")
        shutil.rmtree(Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / name, True)


@pytest.mark.parametrize("heading, statements", SECTIONS, ids=[name for name, _ in SECTIONS])
def test_every_statement_of_hudis_pages_runs_or_is_refused_in_one_line(
    spark: SparkSession, folder: Path, heading: str, statements: list[tuple[str, str]]
):
    spark.conf.set("hoodie.mainstem.spark.sql.cow.as.mor", str(heading != SECTIONS[0][0]).lower())
    wrong: list[str] = []
    for text, refused in statements:
        text = text.replace("/tmp/", f"{folder}/")
        try:
            ms.sql(spark, text).collect()
            if refused:
                wrong.append(f"not refused: {text}")
        except MainstemError as error:
            if not refused or refused not in str(error) or "\n" in str(error):
                wrong.append(f"{text}\n    {error}")
        except Exception as error:
            wrong.append(f"{text}\n    {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


def test_few_statements_are_refused():
    refusals = [refused for _, statements in SECTIONS for _, refused in statements]
    share = sum(map(bool, refusals)) / len(refusals)
    assert len(refusals) > 120 and share <= MOST_REFUSED, (len(refusals), share)
