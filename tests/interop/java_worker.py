"""One Spark 3.5 with a Hudi bundle, spoken to in JSON lines. Runs inside `.venv-interop`.

It is started by `java_hudi.JavaHudi` and imports nothing of mainstem: what it answers is Java's
word alone. One request per line on standard input, one answer per line on the original standard
output; everything else that Python, Spark or the JVM print goes to standard error. Rows travel as
Parquet files. A request is {"op": name, ...arguments}; an answer is {"ok": true, ...} or
{"ok": false, "error": class and message, "trace": text}.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
import time
import traceback
from functools import reduce

#: Maven's name of the bundle, or the path of one that was built here
BUNDLE = os.environ["MAINSTEM_HUDI_BUNDLE"]
IS_FILE = BUNDLE.endswith(".jar")
RELEASE = re.search(r"[:-]((\d+)\.(\d+)\.(\d+)(-SNAPSHOT)?)(\.jar)?$", BUNDLE)
VERSION = tuple(map(int, RELEASE.group(2, 3, 4)))


def _session(cores: int, memory: str, scratch: str):
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars" if IS_FILE else "spark.jars.packages": BUNDLE,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # UTC for the whole JVM: a table without hoodie.table.timeline.timezone is LOCAL.
        "spark.driver.extraJavaOptions": f"{os.environ['MAINSTEM_JVM_OPTIONS']} -Duser.timezone=UTC "
        f"-Dlog4j2.configurationFile={os.path.join(scratch, 'log4j2.properties')} "
        f"-Dderby.system.home={scratch}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.warehouse.dir": os.path.join(scratch, "warehouse"),
        "spark.local.dir": os.path.join(scratch, "spark"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **json.loads(os.environ.get("MAINSTEM_SPARK_SETTINGS", "{}")),
    }
    with open(os.path.join(scratch, "log4j2.properties"), "w", encoding="utf-8") as file:
        file.write(LOG4J)
    builder = SparkSession.builder.master(f"local[{cores}]").appName("java-hudi")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


LOG4J = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%rEx{20}
"""


class Worker:
    """The operations; every public method is one of them."""

    def __init__(self, spark, scratch: str) -> None:
        self._spark = spark
        self._jvm = spark.sparkContext._jvm
        self._scratch = scratch
        self._locks: dict[str, object] = {}
        self._count = 0

    def hello(self) -> dict:
        """Versions, so that a report can name what it compared with."""
        java = self._jvm.java.lang.System.getProperty("java.version")
        return {"spark": self._spark.version, "java": java, "hudi": RELEASE.group(1)}

    def read(self, path: str, out: str, options: dict | None = None, where: str | None = None) -> dict:
        """Runs a Hudi query and leaves its rows as one Parquet file at ``out``; ``where`` is SQL."""
        frame = self._spark.read.format("hudi").options(**(options or {})).load(path)
        frame = frame.where(where) if where else frame
        return self._to_file(frame, out)

    def files_read(self, path: str, options: dict, where: str) -> dict:
        """How many files the scans of a query name, after Hudi's own skipping; ``where`` is SQL."""
        frame = self._spark.read.format("hudi").options(**options).load(path).where(where)
        rows = frame.collect()
        leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
        plans = [leaves.apply(i) for i in range(leaves.size())]
        plans = [p.executedPlan() if "Adaptive" in p.nodeName() else p for p in plans]
        counts = [p.metrics().get("numFiles") for p in plans]
        return {"rows": len(rows), "files": sum(c.get().value() for c in counts if c.isDefined())}

    def read_loop(self, path: str, times: int, options: dict | None = None) -> dict:
        """Seconds of each of several snapshots of all columns that are read and thrown away."""
        seconds = []
        for _ in range(times):
            begun = time.perf_counter()
            frame = self._spark.read.format("hudi").options(**(options or {})).load(path)
            frame.write.format("noop").mode("overwrite").save()
            seconds.append(time.perf_counter() - begun)
        return {"seconds": seconds}

    def _to_file(self, frame, out: str) -> dict:
        folder = out + ".folder"
        shutil.rmtree(folder, ignore_errors=True)
        frame.coalesce(1).write.parquet(folder)
        files = glob.glob(os.path.join(folder, "*.parquet"))
        if len(files) != 1:
            raise RuntimeError(f"expected one Parquet file in {folder}, found {files}")
        os.replace(files[0], out)
        shutil.rmtree(folder)
        return {"out": out}

    def column_metadata(self, path: str) -> dict:
        """Column -> its metadata, as Java's reader shows it."""
        frame = self._spark.read.format("hudi").load(path)
        return {"columns": {field.name: field.metadata for field in frame.schema}}

    def read_many(self, path: str, out: str, queries: list[dict]) -> dict:
        """Several queries of one table in one job: Parquet files in the folder ``out``.

        The column ``query`` numbers the rows' queries. Most of a small query is planning and committing.
        """
        from pyspark.sql.functions import lit

        frames = [
            self._spark.read.format("hudi").options(**options).load(path).withColumn("query", lit(number))
            for number, options in enumerate(queries)
        ]
        reduce(lambda one, other: one.unionByName(other), frames).coalesce(2).write.parquet(out)
        return {}

    def write(
        self, path: str, rows: str, options: dict, mode: str = "append", types: dict | None = None
    ) -> dict:
        """Writes the rows of a Parquet file as one Hudi commit; answers with the seconds.

        ``types``: column -> what Hudi's column metadata ``hudi_type`` says of it, for lists without nulls.
        """
        from pyspark.sql.types import ArrayType, StructField, StructType

        start = time.perf_counter()
        frame = self._spark.read.parquet(rows)
        if types:
            fields = {field.name: field for field in frame.schema}
            for name, kind in types.items():
                array = ArrayType(fields[name].dataType.elementType, False)
                fields[name] = StructField(name, array, True, {"hudi_type": kind})
            frame = self._spark.createDataFrame(frame.collect(), StructType([*fields.values()]))
        frame.write.format("hudi").options(**options).mode(mode).save(path)
        return {"seconds": time.perf_counter() - start}

    def write_loop(
        self,
        path: str,
        files: list[str],
        options: dict,
        warm_files: list[str] | None = None,
        ready: str | None = None,
        go: str | None = None,
        stop: str | None = None,
    ) -> dict:
        """Writes one commit per file, the files of ``warm_files`` before it creates ``ready``.

        After ``ready`` it waits for the file ``go``; it ends early once the file ``stop`` exists.
        Answers with the wall clock seconds at which every commit began and ended.
        """
        for name in warm_files or []:
            frame = self._spark.read.parquet(name)
            frame.write.format("hudi").options(**options).mode("append").save(path)
        if ready is not None:
            with open(ready, "w", encoding="utf-8"):
                pass
        while go is not None and not os.path.exists(go):
            time.sleep(0.01)
        commits: list[dict] = []
        for name in files:
            if stop is not None and os.path.exists(stop):
                break
            start = time.time()
            frame = self._spark.read.parquet(name)
            frame.write.format("hudi").options(**options).mode("append").save(path)
            commits.append({"start": start, "end": time.time()})
        return {"commits": commits}

    def stream(
        self,
        path: str,
        source: str,
        schema_of: str,
        checkpoint: str,
        options: dict,
        files_per_batch: int,
    ) -> dict:
        """Java's own streaming sink over a folder of Parquet files, until the folder is used up."""
        schema = self._spark.read.parquet(schema_of).schema
        frame = (
            self._spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", str(files_per_batch))
            .parquet(source)
        )
        start = time.perf_counter()
        query = (
            frame.writeStream.format("hudi")
            .options(**options)
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination()
        seconds = time.perf_counter() - start
        rows = sum(int(p["numInputRows"]) for p in query.recentProgress)
        batches = sum(1 for p in query.recentProgress if int(p["numInputRows"]) > 0)
        return {"seconds": seconds, "rows": rows, "batches": batches}

    def _client(self, path: str, options: dict):
        jvm = self._jvm
        context = self._spark.sparkContext._jsc
        conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(context.hadoopConfiguration())
        meta = (
            jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
            .setConf(conf)
            .setBasePath(path)
            .build()
        )
        resolver = jvm.org.apache.hudi.common.table.TableSchemaResolver(meta)
        older = VERSION < (1, 2)
        schema = resolver.getTableAvroSchema(False) if older else resolver.getTableSchema(False)
        name = meta.getTableConfig().getTableName()
        text = schema.toString()
        return jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
            context, text, path, name, {str(k): str(v) for k, v in options.items()}
        )

    def hive_sync(self, options: dict) -> dict:
        """Hudi's HiveSyncTool, as its command line runs it."""
        properties = self._jvm.java.util.Properties()
        for key, value in options.items():
            properties.setProperty(key, value)
        conf = self._spark.sparkContext._jsc.hadoopConfiguration()
        self._jvm.org.apache.hudi.hive.HiveSyncTool(properties, conf).syncHoodieTable()
        return {}

    def _none(self):
        return self._jvm.org.apache.hudi.common.util.Option.empty()

    def clean(self, path: str, options: dict) -> dict:
        """A Java clean; under the LAZY policy it first rolls back instants of dead writers."""
        client = self._client(path, options)
        try:
            client.clean()
        finally:
            client.close()
        return {}

    def schedule_clean(self, path: str, options: dict) -> dict:
        """Plans a clean; answers with its instant or null."""
        kind = self._jvm.org.apache.hudi.common.model.TableServiceType.CLEAN
        client = self._client(path, options)
        try:
            instant = client.scheduleTableService(self._none(), kind)
            return {"instant": instant.get() if instant.isPresent() else None}
        finally:
            client.close()

    def schedule_compaction(self, path: str, options: dict) -> dict:
        """Plans a compaction; answers with its instant or null."""
        client = self._client(path, options)
        try:
            instant = client.scheduleCompaction(self._none())
            return {"instant": instant.get() if instant.isPresent() else None}
        finally:
            client.close()

    def run_compaction(self, path: str, options: dict, instant: str) -> dict:
        """Executes a planned compaction and completes it."""
        client = self._client(path, options)
        try:
            done = client.compact(instant)
            if VERSION < (1, 1):
                done = done.getCommitMetadata().get()
            client.commitCompaction(instant, done, self._none())
        finally:
            client.close()
        return {}

    def schedule_clustering(self, path: str, options: dict) -> dict:
        """Plans a clustering; answers with its instant or null."""
        client = self._client(path, options)
        try:
            instant = client.scheduleClustering(self._none())
            return {"instant": instant.get() if instant.isPresent() else None}
        finally:
            client.close()

    def run_clustering(self, path: str, options: dict, instant: str) -> dict:
        """Executes a planned clustering and completes it."""
        client = self._client(path, options)
        try:
            client.cluster(instant, True)
        finally:
            client.close()
        return {}

    def schedule_log_compaction(self, path: str, options: dict) -> dict:
        """Plans a log compaction; answers with its instant or null."""
        client = self._client(path, options)
        try:
            instant = client.scheduleLogCompaction(self._none())
            return {"instant": instant.get() if instant.isPresent() else None}
        finally:
            client.close()

    def run_log_compaction(self, path: str, options: dict, instant: str) -> dict:
        """Executes a planned log compaction and completes it."""
        client = self._client(path, options)
        try:
            client.commitLogCompaction(instant, client.logCompact(instant), self._none())
        finally:
            client.close()
        return {}

    def schedule_index(self, path: str, options: dict, kinds: list[str]) -> dict:
        """Plans an INDEX action (HoodieIndexer's) of MetadataPartitionTypes; its instant or null."""
        types = self._jvm.java.util.ArrayList()
        for kind in kinds:
            types.add(getattr(self._jvm.org.apache.hudi.metadata.MetadataPartitionType, kind))
        client = self._client(path, options)
        try:
            instant = client.scheduleIndexing(types, self._jvm.java.util.ArrayList())
            return {"instant": instant.get() if instant.isPresent() else None}
        finally:
            client.close()

    def run_index(self, path: str, options: dict, instant: str) -> dict:
        """Executes a planned INDEX action, catch-up included."""
        client = self._client(path, options)
        try:
            client.index(instant)
        finally:
            client.close()
        return {}

    def sql(self, text: str, conf: dict | None = None, out: str | None = None) -> dict:
        """Runs one SQL statement under temporary settings; answers with its rows as text."""
        conf = conf or {}
        for key, value in conf.items():
            self._spark.conf.set(key, value)
        try:
            frame = self._spark.sql(text)
            if out is not None:
                return self._to_file(frame, out)
            return {"rows": [[str(cell) for cell in row] for row in frame.collect()]}
        finally:
            for key in conf:
                self._spark.conf.unset(key)

    def hfile_rows(self, path: str, keys: list[str]) -> dict:
        """Key and value (hex) of all entries of an HFile, and those that seeking these keys finds."""
        jvm = self._jvm
        with open(path, "rb") as file:
            data = file.read()
        stream = jvm.org.apache.hudi.io.ByteBufferBackedInputStream(data)
        stream = jvm.org.apache.hudi.io.ByteArraySeekableDataInputStream(stream)
        reader = jvm.org.apache.hudi.io.hfile.HFileReaderImpl(stream, len(data))
        reader.initializeMetadata()

        def entry() -> list[str]:
            found = reader.getKeyValue().get()
            block, key, value = found.getBytes(), found.getKeyContentOffset(), found.getValueOffset()
            row = bytes(block[key : key + found.getKeyContentLength()])
            return [row.decode(), bytes(block[value : value + found.getValueLength()]).hex()]

        rows, more = [], reader.seekTo()
        while more:
            rows.append(entry())
            more = reader.next()
        reader.seekTo()
        found = {}
        for key in keys:
            at = jvm.org.apache.hudi.io.hfile.UTF8StringKey(key)
            found[key] = entry()[1] if reader.seekTo(at) == 0 else None
        return {"rows": rows, "count": reader.getNumKeyValueEntries(), "found": found}

    def hfile_write(self, path: str, rows: list[list[str]], codec: str, block_bytes: int) -> dict:
        """An HFile by Java's own writer; values in hex, keys in order."""
        classes = self._jvm.org.apache.hudi.io
        compression = getattr(classes.compress.CompressionCodec, codec)
        context = classes.hfile.HFileContext.builder().blockSize(block_bytes)
        stream = self._jvm.java.io.FileOutputStream(path)
        writer = classes.hfile.HFileWriterImpl(context.compressionCodec(compression).build(), stream)
        for key, value in rows:
            writer.append(key, bytes.fromhex(value))
        writer.close()
        stream.close()
        return {}

    def parse_bucket_rules(self, expressions: str, kind: str, default: int) -> dict:
        """Java keeps parsed rules in a plain HashMap: tasks that meet new ones at one moment may end with a
        ConcurrentModificationException (PartitionBucketIndexCalculator.getInstance). So meet them here."""
        rules = self._jvm.org.apache.hudi.index.bucket.partition.PartitionBucketIndexCalculator
        rules.getInstance(expressions, kind, default)
        return {}

    def _provider(self, path: str, options: dict):
        jvm = self._jvm
        properties = jvm.org.apache.hudi.common.config.TypedProperties()
        properties.setProperty("hoodie.base.path", path)
        # HoodieLockConfig's default (never), which a bare LockConfiguration does not fill in.
        properties.setProperty("hoodie.write.lock.filesystem.expire", "0")
        for key, value in options.items():
            properties.setProperty(key, value)
        conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(
            self._spark.sparkContext._jsc.hadoopConfiguration()
        )
        lock = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
        provider = jvm
        for name in options.get("hoodie.write.lock.provider", lock).split("."):
            provider = getattr(provider, name)
        return provider(jvm.org.apache.hudi.common.config.LockConfiguration(properties), conf)

    def _try_lock(self, provider) -> bool:
        return bool(provider.tryLock(0, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS))

    def lock(self, path: str, options: dict, name: str = "lock") -> dict:
        """One tryLock of Java's lock provider, FileSystemBasedLockProvider unless named; {"held": bool}."""
        provider = self._provider(path, options)
        held = self._try_lock(provider)
        if held:
            self._locks[name] = provider
        return {"held": held}

    def count(self, path: str, counter: str, times: int) -> dict:
        """Adds one to the number in a file ``times`` times, each time under Java's lock."""
        for _ in range(times):
            provider = self._provider(path, {})
            while not self._try_lock(provider):
                time.sleep(0.002)
            with open(counter, encoding="utf-8") as file:
                number = int(file.read())
            time.sleep(0.002)
            with open(counter, "w", encoding="utf-8") as file:
                file.write(str(number + 1))
            provider.unlock()  # no close(): it would delete the lock file of the next holder
        return {}

    def unlock(self, name: str = "lock") -> dict:
        """Releases; the provider is closed by `close_lock`, as LockManager does a moment later."""
        self._locks[name].unlock()
        return {}

    def close_lock(self, name: str = "lock") -> dict:
        """Closes the provider that was unlocked; Java deletes the lock file whose-ever it is."""
        self._locks.pop(name).close()
        return {}


def _root(error: Exception) -> str:
    """What a Java exception goes back to, for the front of its message."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return "" if cause is None else f"{cause.toString()[:1000]}: "


def main() -> None:
    """Serves requests until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    cores, memory, scratch = int(sys.argv[1]), sys.argv[2], sys.argv[3]

    def answer(value: dict) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    spark = _session(cores, memory, scratch)
    worker = Worker(spark, scratch)
    answer({"ok": True, "spark": spark.version})
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("op")
        if operation == "quit":
            break
        try:
            answer({"ok": True, **getattr(worker, operation)(**request)})
        except Exception as error:
            text = getattr(error, "java_exception", None)
            message = f"{type(error).__name__}: {_root(error)}{error}"
            answer(
                {
                    "ok": False,
                    "error": message[:4000],
                    "java": str(text)[:2000],
                    "trace": traceback.format_exc()[-4000:],
                }
            )
    spark.stop()


if __name__ == "__main__":
    main()
