"""Plans the pipeline from the rows of an INSERT to the part files that the committer reads.

  query -> [changes to rows with their kind] -> columns taken apart -> Python: stage -> lines -> file sink

All queries use the same pipeline. Everything but ``stage`` (``stage_function.py``) runs in the JVM. The only
state is that of Flink's own file sink. So a checkpoint may be restored with any parallelism, a bounded input
loses nothing at its end, and no timer has to fire. It is exactly once because

  1  Flink finishes the bundle of a Python operator before it lets a checkpoint's barrier pass: the rows
     before the barrier are staged, and their lines sent on, before the checkpoint has them
  2  the file sink (one task) closes its part file at the barrier, keeps it in the checkpoint, and gives it
     its final name after the checkpoint completed, again after a restore
  3  the committer takes final part files only

A worker or job that dies between two checkpoints leaves staged files whose lines do not count; the rows are
replayed from the previous checkpoint. Rows of one key keep the order in which one task of the query emits
them: there is no exchange before staging, and the lines of one task stay in order after it.

Changes of an updating query are first rekeyed to the table's key (by Flink's own materializer, if the query
has another key), then turned into rows with a column that tells their kind (``TO_CHANGELOG`` of Flink 2.3).
Flink's planner is asked for upserts. It leaves UPDATE_BEFORE out where that says nothing, and sends it where
it may be a deletion: behind a filter, or where rows may move to another partition (``update_pairs.py``).
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import Unsupported
from mainstem.flink.committer import folders
from mainstem.flink.declared_columns import Shape, taken_apart
from mainstem.flink.insert_target import Target, check_streamed, open_target, rehearsed
from mainstem.flink.inserting import row_kinds
from mainstem.flink.recovery import SINK_UID
from mainstem.flink.statements import named, quoted
from mainstem.layout.key_index import table_index
from mainstem.options.placing import INDEX_TYPE
from mainstem.storage.backends import is_local
from mainstem.writers.write_spec import BULK_INSERT, INSERT

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

    from mainstem.flink.declared_table import Declared
    from mainstem.storage.location import Location
    from mainstem.writers.write_spec import WriteSpec

_INSERT_ONLY = frozenset("I")
_BATCH_ROWS = 50_000
_BUNDLE_MS_MAX = 10_000


@dataclass(frozen=True)
class Planned:
    """One checked INSERT. Nothing runs yet, and nothing was created in the environment or at the path."""

    env: TableEnvironment
    rows: Table
    declared: Declared
    #: the query updates or deletes what it gave before
    changes: bool
    #: a job's checkpoints commit the rows; else they are one commit of this process
    streamed: bool = True

    def opened(self) -> Insert:
        """The INSERT with its table opened, or created if there is none."""
        _check_file_system(self.declared.options.location)
        return self._bound(self.declared)

    def explain(self) -> str:
        """What happens to the rows, and Flink's plan of the query."""
        with rehearsed(self.declared) as there:
            text = self._bound(there).explain()
        return text.replace(there.options.location.base, self.declared.options.location.base)

    def _bound(self, declared: Declared) -> Insert:
        target = open_target(declared)
        operation = target.options.operation
        if self.streamed:
            check_streamed(target, self.changes)
        elif operation == BULK_INSERT:
            operation = INSERT  # nothing is staged
        shapes, expressions = taken_apart(target.columns, quoted)
        spec = target.table.staging_spec(target.columns, operation)
        return Insert(self.env, self.rows, target, self.changes, spec, tuple(shapes), tuple(expressions))


def _check_file_system(location: Location) -> None:
    """Flink's file sink writes the committables: it needs Flink's own file system for a store."""
    from py4j.protocol import Py4JJavaError
    from pyflink.java_gateway import get_gateway

    if is_local(location):
        return
    jvm = get_gateway().jvm
    uri = jvm.java.net.URI.create(location.base)
    with suppress(Py4JJavaError):
        jvm.org.apache.flink.core.fs.FileSystem.get(uri)
        return
    _load_plugins(jvm)
    try:
        jvm.org.apache.flink.core.fs.FileSystem.get(uri)
    except Py4JJavaError as error:
        raise Unsupported(
            f"Flink has no file system for {location.scheme}:// that works, which its checkpoints and the"
            f" committables need: {str(error.java_exception)[:500]}. Install Flink's plugin for the store"
            " (flink-s3-fs-hadoop, flink-gs-fs-hadoop, flink-azure-fs-hadoop) and give it the credentials",
            table=location.base,
        ) from None


def _load_plugins(jvm: Any) -> None:
    """Load Flink's plugins with the options of its configuration, as ``flink run`` does: a JVM that a Python
    program starts has none."""
    flink = jvm.org.apache.flink
    settings = flink.configuration.GlobalConfiguration.loadConfiguration()
    manager = flink.core.plugin.PluginUtils.createPluginManagerFromRootFolder(settings)
    flink.core.fs.FileSystem.initialize(settings, manager)


def plan_insert(env: TableEnvironment, rows: Table, declared: Declared, *, streamed: bool = True) -> Planned:
    """Plans one INSERT; ``rows`` must have the declared columns, by name and order. ``streamed``: a job's
    checkpoints commit them.

    Raises what ``open_target`` raises, and ``Unsupported`` for columns that cannot be sent.
    """
    planned = Planned(env, rows, declared, row_kinds(rows) != _INSERT_ONLY, streamed)
    with rehearsed(declared) as there:
        planned._bound(there)
    return planned


@dataclass(frozen=True)
class Insert:
    """One INSERT with its open table. Nothing runs yet, and nothing was created in the environment."""

    env: TableEnvironment
    rows: Table
    target: Target
    #: the query updates or deletes what it gave before
    changes: bool
    spec: WriteSpec
    shapes: tuple[Shape, ...]
    expressions: tuple[str, ...] = field(repr=False)

    def explain(self) -> str:
        """What happens to the rows, and Flink's plan of the query."""
        target = self.target
        staged, committables = folders(target.table, target.sink)
        spread = f"{self.spec.buckets} buckets"
        if self.spec.placed_at_commit:
            spread = f"index {INDEX_TYPE.read({**target.table.properties, **target.options.table})}"
        kinds = "inserts, updates and deletes by row kind" if self.changes else "inserts only"
        return (
            "== mainstem ==\n"
            f"Table {target.table.path}: key {', '.join(target.key) or 'made up'}, partition"
            f" {', '.join(target.partition) or 'none'}, {spread}\n"
            f"Writer: Arrow batches ({kinds}), staged by Python workers before each checkpoint in {staged}\n"
            f"Committer: sink {target.sink!r}, one commit per checkpoint, of {committables}\n\n"
            f"{self.rows.explain()}"
        )

    def uid(self, number: int = 0) -> str:
        """Flink's name (uid) of the file sink's state; it differs for every table and sink."""
        seed = f"{self.spec.identity}/{self.target.sink}/{number}"
        return SINK_UID + hashlib.sha256(seed.encode()).hexdigest()[:24]

    def transformation(self, number: int = 0) -> Any:
        """Flink's (Java) transformation that ends in the file sink. ``number`` distinguishes INSERTs of a
        job with the same table and sink."""
        from pyflink.table.expressions import col

        from mainstem.flink.stage_function import StageFunction
        from mainstem.flink.stream_workers import stream_environment

        env = stream_environment(self.env)
        with _python_options(self.env):
            rows, before = self._sent(env)
            names = rows.get_schema().get_field_names()
            sink, anywhere = self.target.sink, self._unique_in_table()
            stage = _function(StageFunction(self.spec, sink, self.shapes, self.changes, anywhere))
            lines = rows.select(stage(*[col(name) for name in names]).alias("line"))
            lines = lines.where(col("line").is_not_null)
            stream = env._j_tenv.toDataStream(lines._j_table, _java_types().STRING())
        tasks = self.target.options.write_tasks
        if tasks is not None and self._spreadable(tasks):
            for one in set(stream.getTransformation().getTransitivePredecessors()) - before:
                one.setParallelism(tasks)
        return self._file_sink(stream, number)

    def _spreadable(self, tasks: int) -> bool:
        """Whether another number of tasks may write the rows, in any order: only with an ordering field, and
        if no row may take back what an earlier one of another task said."""
        if self.spec.ordering and self.spec.rules.ordering and not self.changes:
            return True
        if tasks != int(self.env.get_config().get("parallelism.default", "0")):
            why = "of an updating query" if self.changes else "without an ordering field"
            warnings.warn(
                f"write.tasks={tasks} has no effect: {why} the order of rows of one key"
                " counts, and they are written by the tasks of the query that give them",
                stacklevel=2,
            )
        return False

    def _unique_in_table(self) -> bool:
        """Whether a key is one row of the table, else of its partition."""
        index = table_index({**self.target.table.properties, **self.target.options.table})
        return self.spec.placed_at_commit and index is not None and index.is_global

    def _sent(self, env: Any) -> tuple[Table, set[Any]]:
        """The columns that the function receives, as an append-only table, and the transformations before it.

        They pass through a stream, so that Flink puts no Python function of the query into the staging
        operator.
        """
        from pyflink.table import Table

        from mainstem.flink.stage_function import COLUMN

        rows, owner, before = self.rows, self.env, "'UPDATE_BEFORE'"
        if self.changes:
            identity = [*self.target.key]
            if not self._unique_in_table():
                more = [name for name in self.target.partition if name in self.target.columns.names]
                identity += [name for name in more if name not in identity]
            (rows, rekeyed), owner = _with_kinds(env, rows, identity, self.target.key), env
            before += ", 'DELETE'" if rekeyed else ""
        columns = [f"{text} AS {quoted(COLUMN + str(i))}" for i, text in enumerate(self.expressions)]
        if self.changes:
            marks = (("deleted", "'DELETE'"), ("before", before))
            columns[:0] = [f"{_KIND} IN ({kinds}) AS {quoted(COLUMN + name)}" for name, kinds in marks]
        with named(owner, rows) as view:
            sent = owner.sql_query(f"SELECT {', '.join(columns)} FROM {view}")
        kind = sent._j_table.getResolvedSchema().toPhysicalRowDataType()
        stream = env._j_tenv.toDataStream(sent._j_table, kind.bridgedTo(_row_data()))
        earlier = set(stream.getTransformation().getTransitivePredecessors())
        return Table(env._j_tenv.fromDataStream(stream), env), earlier

    def _file_sink(self, stream: Any, number: int) -> Any:
        from pyflink.common.serialization import Encoder
        from pyflink.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy

        _, committables = folders(self.target.table, self.target.sink)
        sink = (
            FileSink.for_row_format(committables, Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
            .build()
        )
        name = f"mainstem: {self.target.sink}"
        placed = stream.sinkTo(sink.get_java_function()).setParallelism(1).uid(self.uid(number)).name(name)
        return placed.getTransformation()


_KIND = quoted("__mainstem_kind")


def _with_kinds(env: Any, rows: Table, identity: list[str], key: tuple[str, ...]) -> tuple[Table, bool]:
    """Rows with their change kind as a column, with one change at a time per ``identity``: the columns that
    tell a row of the table from others, those of its ``key`` among them. And whether Flink's materializer
    rekeyed them: of an update it makes a DELETE and an INSERT."""
    from pyflink.java_gateway import get_gateway
    from pyflink.table import Table
    from pyflink.util.java_utils import to_jarray

    gateway = get_gateway().jvm
    api = gateway.org.apache.flink.table.api
    modes = gateway.org.apache.flink.table.connector.ChangelogMode
    rows, primary = _never_null(env, rows, identity, key)
    builder = api.Schema.newBuilder()
    plain = api.Schema.newBuilder()
    for column in rows._j_table.getResolvedSchema().getColumns():
        kind = column.getDataType()
        kind = kind.notNull() if column.getName() in primary else kind
        builder.column(column.getName(), kind)
        plain.column(column.getName(), kind)
    if primary:
        builder.primaryKey(to_jarray(gateway.String, primary))
    with _set_meanwhile(env, {"table.exec.sink.require-on-conflict": "false"}):
        stream = env._j_tenv.toChangelogStream(rows._j_table, builder.build(), modes.upsert(False))
    steps = stream.getTransformation().getTransitivePredecessors()
    rekeyed = any("SinkMaterializer" in step.getName() for step in steps)
    changed = Table(env._j_tenv.fromChangelogStream(stream, plain.build(), modes.all()), env)
    with named(env, changed) as view:
        sql = f"SELECT * FROM TO_CHANGELOG(input => TABLE {view}, op => DESCRIPTOR({_KIND}))"
        return env.sql_query(sql), rekeyed


def _never_null(env: Any, rows: Table, identity: list[str], key: tuple[str, ...]) -> tuple[Table, list[str]]:
    """The rows, and columns of them that can be a primary key of Flink's: for a partition column that may be
    null there is another column with its text."""
    columns = rows._j_table.getResolvedSchema().getColumns()
    found = {column.getName(): column.getDataType() for column in columns}
    primary: list[str] = []
    more: list[str] = []
    for place, name in enumerate(identity):
        if name in key or not found[name].getLogicalType().isNullable():
            primary.append(name)
        else:
            primary.append(f"__mainstem_partition{place}")
            more.append(f"COALESCE(CAST({quoted(name)} AS STRING), '') AS {quoted(primary[-1])}")
    if not more:
        return rows, primary
    with named(env, rows) as view:
        return env.sql_query(f"SELECT *, {', '.join(more)} FROM {view}"), primary


@contextmanager
def _python_options(env: TableEnvironment) -> Iterator[None]:
    """Sets useful batch sizes, unless the user set them, while a pipeline is translated in this context."""
    from mainstem.flink.stream_workers import checkpoint_interval_ms

    interval = checkpoint_interval_ms(env) or 1000
    wanted: Mapping[str, str] = {
        "python.fn-execution.arrow.batch.size": str(_BATCH_ROWS),
        "python.fn-execution.bundle.size": str(_BATCH_ROWS),
        # A checkpoint ends the bundle anyway, and nothing is visible before it.
        "python.fn-execution.bundle.time": str(min(max(interval, 1000), _BUNDLE_MS_MAX)),
    }
    with _set_meanwhile(env, wanted):
        yield


@contextmanager
def _set_meanwhile(env: TableEnvironment, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings for what is translated in this context, unless the user set them."""
    config = env.get_config()
    mine = [key for key in wanted if not config.get(key, "")]
    for key in mine:
        config.set(key, wanted[key])
    try:
        yield
    finally:
        for key in mine:
            config.get_configuration().remove_config(key)


def _function(function: Any) -> Any:
    from pyflink.table import DataTypes
    from pyflink.table.udf import udf

    return udf(function, result_type=DataTypes.STRING(), func_type="pandas", deterministic=False)


def _java_types() -> Any:
    from pyflink.java_gateway import get_gateway

    return get_gateway().jvm.org.apache.flink.table.api.DataTypes


def _row_data() -> Any:
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName("org.apache.flink.table.data.RowData", True, loader)
