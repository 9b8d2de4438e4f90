"""Goal: Spark's UI tells what a job of ours does, a stream's progress is completed from the tables, and jobs
that say ``format("hudi")`` run as they are.

Method: one small session; job descriptions are read from Spark's own store of its UI; a stream of two batches
is compared with what the table says of its commits.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import mainstem
from mainstem import spark as ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.versions]

OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.bucket.index.num.buckets": 2,
}


def _jobs(spark: SparkSession) -> list[str]:
    """What Spark's UI calls the jobs that it knows, the newest first."""
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    told = [jobs.apply(number).description() for number in range(jobs.size())]
    return [text.get() if text.isDefined() else "" for text in told]


@pytest.mark.supports("Engines", "Spark: jobs of writes and services have names in Spark's UI")
def test_the_ui_names_jobs_by_what_they_do_and_gives_the_threads_name_back(
    spark: SparkSession, tmp_path: Path
):
    path, rows = str(tmp_path / "t"), spark.range(40).selectExpr("id", "id AS v")
    context = spark.sparkContext
    context.setJobDescription("nightly load")
    try:
        ms.write_batch(rows, path, options={**OPTIONS, "hoodie.mainstem.spark.driver.rows.max": 0})
        ms.write_batch(rows, path, options=OPTIONS)
        ms.run_services(spark, path, "compact", if_due=False)
        assert context.getLocalProperty("spark.job.description") == "nightly load"
    finally:
        context.setLocalProperty("spark.job.description", None)
    told = _jobs(spark)
    assert f"mainstem upsert into {path}: write log files<br/>nightly load" in told
    assert f"mainstem upsert into {path}: collect rows<br/>nightly load" in told
    done = [i.requested for i in mainstem.open_table(path).timeline() if i.action == "commit"]
    assert f"mainstem compaction {done[0]} of {path}<br/>nightly load" in told


@pytest.mark.supports("Engines", "Spark: rows, instants, commit time and lag of a stream's progress")
def test_a_progress_is_completed_by_the_instants_of_its_batch_and_the_lag(
    spark: SparkSession, tmp_path: Path
):
    first, second = tmp_path / "first", tmp_path / "second"
    ms.write_batch(spark.range(5).selectExpr("id", "id AS v"), str(first), options=OPTIONS)
    read = spark.readStream.format("mainstem").load(str(first)).select("id", "v")
    query = ms.write_stream(
        read, str(second), options=OPTIONS, checkpoint=str(tmp_path / "chk"), trigger={"availableNow": True}
    )
    query.awaitTermination()
    progress = query.lastProgress
    found = ms.stream_metrics(spark, progress, sink=str(second), source=str(first))
    commit = mainstem.open_table(second).timeline()[-1]
    assert found["commitMs"] >= 0
    assert found == {
        "batchId": 0, "rows": 5, "deletes": 0, "instants": [commit.requested], "lagMs": 0,
        "commitMs": found["commitMs"],
    }  # fmt: skip
    mainstem.open_table(first).upsert([{"id": 1, "v": 2}])
    behind = ms.stream_metrics(spark, progress, sink=str(second), source=str(first))
    assert behind["lagMs"] > 0 and behind["instants"] == found["instants"]
    other = ms.stream_metrics(spark, progress, sink=str(second), identifier="another stream")
    assert (other["rows"], other["instants"], other["commitMs"]) == (0, [], None)


@pytest.mark.supports("Engines", 'Spark: format("hudi"), format("org.apache.hudi") where no jar of Hudi is')
def test_a_job_of_hudis_quick_start_runs_as_it_is(spark: SparkSession, tmp_path: Path):
    options = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "uuid",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.table.name": "trips",
        "hoodie.datasource.write.operation": "upsert",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.upsert.shuffle.parallelism": 2,
        "hoodie.insert.shuffle.parallelism": 2,
    }
    columns = "ts int, uuid string, fare double, city string"
    rows = spark.createDataFrame([(1, "a", 9.5, "oslo"), (2, "b", 7.0, "rome")], columns)
    for name in ("hudi", "org.apache.hudi"):
        path = str(tmp_path / name)
        rows.write.format(name).options(**options).mode("overwrite").save(path)
        dearer = rows.where("city = 'oslo'").selectExpr("ts + 1 AS ts", "uuid", "fare * 2 AS fare", "city")
        dearer.write.format(name).options(**options).mode("append").save(path)
        fares = spark.read.format(name).load(path).orderBy("uuid").select("fare").collect()
        assert [row.fare for row in fares] == [19.0, 7.0]


JAVA = """
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.sources.*;

public class Taken implements DataSourceRegister, RelationProvider {
    public String shortName() { return "hudi"; }
    public BaseRelation createRelation(SQLContext c, scala.collection.immutable.Map<String, String> p) {
        throw new IllegalStateException("the jar has it");
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a compiler of Java")
def test_a_jar_that_has_the_name_hudi_keeps_it(spark: SparkSession, tmp_path: Path):
    import pyspark

    (tmp_path / "Taken.java").write_text(JAVA)
    named = tmp_path / "META-INF" / "services" / "org.apache.spark.sql.sources.DataSourceRegister"
    named.parent.mkdir(parents=True)
    named.write_text("Taken\n")
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    subprocess.run(["javac", "-proc:none", "-cp", str(jars), "Taken.java"], cwd=tmp_path, check=True)
    jvm, gateway = spark._jvm, spark.sparkContext._gateway
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    urls = gateway.new_array(jvm.java.net.URL, 1)
    urls[0] = jvm.java.net.URI(f"{tmp_path.as_uri()}/").toURL()
    thread.setContextClassLoader(jvm.java.net.URLClassLoader(urls, before))
    try:
        with pytest.raises(Exception, match="the jar has it"):
            spark.read.format("hudi").load(str(tmp_path))
        ms.register(spark)
        with pytest.raises(Exception, match="the jar has it"):
            spark.read.format("hudi").load(str(tmp_path))
    finally:
        thread.setContextClassLoader(before)


def test_spark_finds_the_source_under_its_three_names_by_itself():
    from importlib import import_module

    found = [import_module(one.name) for one in iter_modules() if one.name.startswith("pyspark_mainstem")]
    assert sorted(one.DefaultSource.name() for one in found) == ["hudi", "mainstem", "org.apache.hudi"]
