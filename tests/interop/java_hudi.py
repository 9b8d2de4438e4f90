"""Java Hudi 1.2.0 as a subprocess: reads, writes, compacts, cleans, locks, all by Java's own code.

`JavaHudi` starts `java_worker.py` with the Python of `.venv-interop` (pyspark 3.5; the Hudi bundle
is brought by `spark.jars.packages`) and keeps it, since a JVM starts slowly. Rows
travel as Parquet files. `nbcc_options` gives the writer options under which Java and mainstem may
write one table at the same moment.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("MAINSTEM_INTEROP_PYTHON", ROOT / ".venv-interop" / "bin" / "python"))
WORKER = Path(__file__).with_name("java_worker.py")

HUDI = "1.2.0"
BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:"
# A JVM that lives for some minutes and reads small tables: no time is spent on what pays off after hours.
# Hudi's size estimator otherwise attaches to its own process, twice, and waits for it in vain.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true"
)
# Java must neither build a metadata table beside us nor rewrite the table's version.
# By default Java takes 16 MB of memory for every log file that it opens.
READ_OPTIONS = {"hoodie.metadata.enable": "false", "hoodie.memory.dfs.buffer.max.size": "65536"}
READ_OPTIMIZED = {"hoodie.datasource.query.type": "read_optimized"}
LOCK_PROVIDER = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"


def as_of_options(instant: str) -> dict[str, str]:
    """Time travel; `instant` is a requested time."""
    return {"as.of.instant": instant}


def changes_options(after: str, until: str | None = None) -> dict[str, str]:
    """Incremental query; `after` exclusive, `until` inclusive, completion times."""
    options = {
        "hoodie.datasource.query.type": "incremental",
        "hoodie.datasource.read.begin.instanttime": after,
    }
    if until is not None:
        options["hoodie.datasource.read.end.instanttime"] = until
    return options


class JavaFailed(Exception):
    """Java answered a request with an exception; the text is Java's."""


def nbcc_options(
    name: str,
    *,
    record_key: Sequence[str],
    partition_by: Sequence[str] = (),
    ordering: Sequence[str] = (),
    buckets: int = 8,
    operation: str = "upsert",
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Options of a Spark 3.5 write to a non-blocking multi-writer table of version 9.

    The key generator follows from the number of key and partition fields, as Java infers it. The
    lock is the file system lock at its default place; Java looks for it every 50 ms (Hudi's default
    of 5 s only suits writers that never meet). What the table's hoodie.properties say too must be
    the same here: Java refuses a contradiction ("Config conflict").
    """
    options = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.operation": operation,
        "hoodie.datasource.write.recordkey.field": ",".join(record_key),
        "hoodie.datasource.write.partitionpath.field": ",".join(partition_by),
        "hoodie.datasource.write.keygenerator.class": key_generator(record_key, partition_by),
        "hoodie.datasource.write.hive_style_partitioning": "false",
        "hoodie.index.type": "BUCKET",
        "hoodie.index.bucket.engine": "SIMPLE",
        "hoodie.bucket.index.num.buckets": str(buckets),
        "hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
        "hoodie.write.lock.client.num_retries": "2400",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.auto.upgrade": "false",
        "hoodie.metadata.enable": "false",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.insert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.datasource.meta.sync.enable": "false",
    }
    if ordering:
        options["hoodie.table.ordering.fields"] = ",".join(ordering)
        options["hoodie.datasource.write.precombine.field"] = ",".join(ordering)
    else:
        options["hoodie.record.merge.mode"] = "COMMIT_TIME_ORDERING"
    options.update(extra or {})
    return options


def key_generator(record_key: Sequence[str], partition_by: Sequence[str]) -> str:
    """The class that Java infers from the field counts (KeyGenUtils.inferKeyGeneratorType)."""
    if not partition_by:
        return "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
    if len(record_key) == 1 and len(partition_by) == 1:
        return "org.apache.hudi.keygen.SimpleKeyGenerator"
    return "org.apache.hudi.keygen.ComplexKeyGenerator"


class JavaHudi:
    """One running Java worker; a context manager. Not for use from several threads."""

    def __init__(
        self, *, cores: int = 2, memory: str = "2g", log: Path | None = None,
        version: str = HUDI, jar: Path | None = None, jvm: str = "",
        settings: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if not PYTHON.exists():
            raise FileNotFoundError(
                f"{PYTHON} does not exist: `make interop` creates it (or set MAINSTEM_INTEROP_PYTHON)"
            )
        self._scratch = Path(tempfile.mkdtemp(prefix="java-hudi-"))
        self._log_path = log or self._scratch / "stderr.log"
        self._log = open(self._log_path, "ab")  # noqa: SIM115 - lives as long as the worker
        self._process = subprocess.Popen(
            [str(PYTHON), str(WORKER), str(cores), memory, str(self._scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **_environment(),
                "MAINSTEM_HUDI_BUNDLE": BUNDLE + version if jar is None else str(jar),
                "MAINSTEM_JVM_OPTIONS": jvm,
                "MAINSTEM_SPARK_SETTINGS": json.dumps(dict(settings or {})),
                **(environment or {}),
            },
        )
        self._files = 0
        self._started = False

    def __enter__(self) -> JavaHudi:
        return self.wait_started()

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_started(self) -> JavaHudi:
        """Waits for the session; several workers may be started first and waited for later."""
        if not self._started:
            self.receive()
            self._started = True
        return self

    def close(self) -> None:
        """Ends the worker and its JVM and removes their files."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            try:
                self._process.stdin.write('{"op": "quit"}\n')
                self._process.stdin.close()
                self._process.wait(timeout=30)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._log.close()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def send(self, op: str, **arguments: Any) -> None:
        """Sends a request; `receive` waits for its answer."""
        self.wait_started()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        """The answer to the oldest unanswered request; raises `JavaFailed` with Java's message."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._log.flush()
            tail = self._log_path.read_text(errors="replace")[-3000:]
            raise JavaFailed(f"the Java worker ended with {self._process.wait()}; its log ends:\n{tail}")
        answer = json.loads(line)
        if not answer.pop("ok"):
            raise JavaFailed(answer["error"])
        return answer

    def call(self, op: str, **arguments: Any) -> dict[str, Any]:
        """A request and its answer."""
        self.send(op, **arguments)
        return self.receive()

    def answered(self) -> bool:
        """Whether the answer to the one request that was sent is there."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def stop(self) -> None:
        """Stops the JVM where it is, until ``go_on``."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets a stopped JVM go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self.processes():
            os.kill(pid, number)

    def processes(self) -> list[int]:
        """All below the worker: the JVM, and the script that started it."""
        children: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            children.setdefault(parent, []).append(int(stat.parent.name))
        todo = list(children.get(self._process.pid, ()))
        assert todo, "the worker has no JVM"
        for pid in todo:
            todo += children.get(pid, ())
        return todo

    def scratch_file(self, suffix: str = ".parquet") -> str:
        """A fresh name in the worker's folder."""
        self._files += 1
        return str(self._scratch / f"{self._files}{suffix}")

    def rows_file(self, rows: pa.Table) -> str:
        """Leaves rows as a Parquet file for Java and gives its name."""
        name = self.scratch_file()
        pq.write_table(rows, name)
        return name

    def read(
        self, path: str | Path, options: Mapping[str, str] | None = None, where: str | None = None
    ) -> pa.Table:
        """A Hudi query by Java: the rows with Hudi's five meta columns; ``where`` is SQL."""
        out = self.scratch_file()
        self.call("read", path=str(path), out=out, options={**READ_OPTIONS, **(options or {})}, where=where)
        table = pq.ParquetFile(out).read()
        os.unlink(out)
        return table

    def read_by_default(self, path: str | Path, where: str | None = None) -> pa.Table:
        """``read`` without any option: what Java's users get."""
        out = self.scratch_file()
        self.call("read", path=str(path), out=out, options={}, where=where)
        table = pq.ParquetFile(out).read()
        os.unlink(out)
        return table

    def files_read(self, path: str | Path, options: Mapping[str, str], where: str) -> tuple[int, int]:
        """Rows of a query, and how many file slices its scans name; ``where`` is SQL."""
        answer = self.call("files_read", path=str(path), options={**READ_OPTIONS, **options}, where=where)
        return int(answer["rows"]), int(answer["files"])

    def read_many(
        self, path: str | Path, queries: Sequence[Mapping[str, str]]
    ) -> list[pa.Table | JavaFailed]:
        """Several queries of one table in one job; if that fails, one by one.

        Each answer is a table, or the exception that Java ended this query with.
        """
        out = self.scratch_file(".folder")
        options = [{**READ_OPTIONS, **query} for query in queries]
        try:
            self.call("read_many", path=str(path), out=out, queries=options)
        except JavaFailed:
            return [self._read_or_error(path, query) for query in queries]
        rows = pa.concat_tables([pq.ParquetFile(file).read() for file in Path(out).glob("*.parquet")])
        shutil.rmtree(out)
        number = rows.column("query")
        rows = rows.drop_columns(["query"])
        return [rows.filter(pc.equal(number, at)) for at in range(len(queries))]

    def _read_or_error(self, path: str | Path, query: Mapping[str, str]) -> pa.Table | JavaFailed:
        try:
            return self.read(path, query)
        except JavaFailed as error:
            return error

    def read_optimized(self, path: str | Path) -> pa.Table:
        """Base files only."""
        return self.read(path, READ_OPTIMIZED)

    def read_as_of(self, path: str | Path, instant: str) -> pa.Table:
        """Time travel; `instant` is a requested time."""
        return self.read(path, as_of_options(instant))

    def changes(self, path: str | Path, after: str, until: str | None = None) -> pa.Table:
        """Incremental query; `after` exclusive, `until` inclusive, completion times."""
        return self.read(path, changes_options(after, until))

    def write(
        self, path: str | Path, rows: pa.Table, options: Mapping[str, str], mode: str = "append",
        types: Mapping[str, str] | None = None,
    ) -> float:
        """One commit by Java; the seconds that it took. ``types``: column -> "VECTOR(4)"."""
        name = self.rows_file(rows)
        answer = self.call(
            "write", path=str(path), rows=name, options=dict(options), mode=mode, types=dict(types or {})
        )
        os.unlink(name)
        return float(answer["seconds"])

    def parse_bucket_rules(self, options: Mapping[str, str]) -> None:
        """To be called before this Java's first job under these rules, whose tasks would race for it."""
        at = "hoodie.bucket.index."
        self.call(
            "parse_bucket_rules", expressions=options[at + "partition.expressions"],
            kind=options[at + "partition.rule.type"], default=int(options[at + "num.buckets"]),
        )  # fmt: skip

    def clean(self, path: str | Path, options: Mapping[str, str]) -> None:
        """A Java clean, which rolls back instants whose heartbeat has expired."""
        self.call("clean", path=str(path), options=dict(options))

    def schedule_clean(self, path: str | Path, options: Mapping[str, str]) -> str | None:
        """Plans a clean; None where Java planned nothing."""
        return self.call("schedule_clean", path=str(path), options=dict(options))["instant"]

    def schedule_compaction(self, path: str | Path, options: Mapping[str, str]) -> str | None:
        """Plans a compaction (after one delta commit already); None where Java planned nothing."""
        due = {**options, "hoodie.compact.inline.max.delta.commits": "1"}
        return self.call("schedule_compaction", path=str(path), options=due)["instant"]

    def run_compaction(self, path: str | Path, options: Mapping[str, str], instant: str) -> None:
        """Executes a planned compaction."""
        self.call("run_compaction", path=str(path), options=dict(options), instant=instant)

    def compact(self, path: str | Path, options: Mapping[str, str]) -> str:
        """Plans and executes a compaction; gives its instant."""
        instant = self.schedule_compaction(path, options)
        assert instant is not None, f"Java found nothing to compact in {path}"
        self.run_compaction(path, options, instant)
        return instant

    def schedule_clustering(self, path: str | Path, options: Mapping[str, str]) -> str | None:
        """Plans a clustering; None where Java planned nothing."""
        return self.call("schedule_clustering", path=str(path), options=dict(options))["instant"]

    def run_clustering(self, path: str | Path, options: Mapping[str, str], instant: str) -> None:
        """Executes a planned clustering."""
        self.call("run_clustering", path=str(path), options=dict(options), instant=instant)

    def schedule_log_compaction(self, path: str | Path, options: Mapping[str, str]) -> str | None:
        """Plans a log compaction (of two blocks already); None where Java planned nothing."""
        due = {
            **options,
            "hoodie.log.compaction.enable": "true",
            "hoodie.log.compaction.blocks.threshold": "2",
        }
        return self.call("schedule_log_compaction", path=str(path), options=due)["instant"]

    def run_log_compaction(self, path: str | Path, options: Mapping[str, str], instant: str) -> None:
        """Executes a planned log compaction."""
        enabled = {**options, "hoodie.log.compaction.enable": "true"}
        self.call("run_log_compaction", path=str(path), options=enabled, instant=instant)

    def try_lock(self, path: str | Path, options: Mapping[str, str] | None = None) -> bool:
        """One tryLock of Java's FileSystemBasedLockProvider on the table."""
        return bool(self.call("lock", path=str(path), options=dict(options or {}))["held"])

    def unlock(self) -> None:
        """Releases what `try_lock` got."""
        self.call("unlock")

    def close_lock(self) -> None:
        """Closes the unlocked provider: Java then deletes the lock file, whose-ever it is."""
        self.call("close_lock")


def _environment() -> dict[str, str]:
    """The worker sees its own venv only: a PYTHONPATH of ours would mix two Sparks."""
    dropped = {"PYTHONPATH", "SPARK_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV"}
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, "PYSPARK_PYTHON": str(PYTHON), "TZ": "UTC"}
