"""Checks before a job of INSERTs is submitted and its tables are created: checkpoints must make its commits
exactly once, and a checkpoint to resume from must be its own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from mainstem.errors import Invalid
from mainstem.flink.stream_workers import checkpoint_interval_ms, is_batch, is_local, stream_environment

if TYPE_CHECKING:
    from pyflink.table import Table, TableEnvironment

#: how the uids of our file sinks begin; one follows from the table's identity and the sink's name
SINK_UID = "mainstem-sink-"


def check_exactly_once(env: TableEnvironment, queries: Iterable[Table]) -> None:
    """Raises ``Invalid`` if rows of these queries would be committed never or twice."""
    config = env.get_config()
    if is_batch(env):
        return
    if checkpoint_interval_ms(env) is None:
        if all(_bounded(env, rows) for rows in queries):
            return
        raise Invalid(
            "INSERT INTO a Hudi table from an unbounded source without checkpoints would never commit: each"
            " commit is a checkpoint. Set execution.checkpointing.interval, for example"
            " t_env.get_config().set('execution.checkpointing.interval', '10 s')"
        )
    if "LEAST" in config.get("execution.checkpointing.mode", "EXACTLY_ONCE").upper():
        raise Invalid(
            "execution.checkpointing.mode=AT_LEAST_ONCE would write rows twice after a failure; set"
            " EXACTLY_ONCE, the default"
        )
    finished = "execution.checkpointing.checkpoints-after-tasks-finish"
    for key in (finished, f"{finished}.enabled"):
        if config.get(key, "true").lower() == "false":
            raise Invalid(f"{key}=false: the last rows of a source that ends would never be committed")


def ends(env: TableEnvironment, rows: Table) -> bool:
    """Whether a query ends by itself."""
    return is_batch(env) or _bounded(env, rows)


def _bounded(env: TableEnvironment, rows: Table) -> bool:
    """Whether every source that a query reads ends by itself."""
    stream = stream_environment(env)._j_tenv.toChangelogStream(rows._j_table)
    sources = stream.getTransformation().getTransitivePredecessors()
    return all(_ends(source) for source in sources if source.getInputs().isEmpty())


def _ends(source: Any) -> bool:
    methods = {method.getName() for method in source.getClass().getMethods()}
    if "getBoundedness" not in methods:
        return False
    if source.getBoundedness().toString() == "BOUNDED":
        return True
    if "getOperator" not in methods:
        return False
    # VALUES reads an input format, which ends, through a source that claims to be unbounded.
    function = source.getOperator().getUserFunction().getClass().getSimpleName()
    return function == "InputFormatSourceFunction"


def check_state(env: TableEnvironment, uids: Collection[str]) -> None:
    """Raises ``Invalid`` if the checkpoint or savepoint to resume from holds rows of sinks other than
    ``uids``. Flink would refuse it only when the job starts, after its tables were created."""
    from py4j.protocol import Py4JError
    from pyflink.java_gateway import get_gateway

    runtime = get_gateway().jvm.org.apache.flink.runtime
    asked = runtime.jobgraph.SavepointRestoreSettings.fromConfiguration(_settings(env))
    if not asked.restoreSavepoint() or asked.allowNonRestoredState():
        return
    path = asked.getRestorePath()
    try:
        found = _sinks_in(path)
    except Py4JError as error:
        if not is_local(env):
            return  # the cluster may see what this process does not
        raise Invalid(
            f"execution.state-recovery.path={path} is no checkpoint or savepoint: {error}"
        ) from error
    foreign = found - set(uids)
    if foreign:
        raise Invalid(
            f"execution.state-recovery.path={path} is of another table, of one that was dropped and made"
            " anew, or of other sinks (write.client.id, or the table's name in SQL). Start without it; or,"
            " to lose the rows it holds for them, with execution.state-recovery.ignore-unclaimed-state=true"
        )


def _settings(env: TableEnvironment) -> Any:
    from pyflink.java_gateway import get_gateway

    made = env._j_tenv
    configuration = get_gateway().jvm.org.apache.flink.configuration.Configuration
    settings = configuration(made.getPlanner().getExecEnv().getConfiguration())
    settings.addAll(made.getConfig().getConfiguration())
    return settings


def _sinks_in(path: str) -> set[str]:
    """Uids of our file sinks that have state in a checkpoint or savepoint."""
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    runtime = jvm.org.apache.flink.runtime
    access = runtime.state.filesystem.AbstractFsCheckpointStorageAccess
    handle = access.resolveCheckpointPointer(path).getMetadataHandle()
    data = jvm.java.io.DataInputStream(handle.openInputStream())
    try:
        loader = jvm.Thread.currentThread().getContextClassLoader()
        operators = runtime.checkpoint.Checkpoints.loadCheckpointMetadata(data, loader, path)
    finally:
        data.close()
    filled = filter(_filled, _listed(operators.getOperatorStates()))
    return {uid for one in filled if (uid := one.getOperatorUid().orElse("")).startswith(SINK_UID)}


def _filled(operator: Any) -> bool:
    return any(state.hasState() for state in _listed(operator.getStates()))


def _listed(collection: Any) -> Any:
    """A Java collection as a list that Python can iterate over."""
    from pyflink.java_gateway import get_gateway

    return get_gateway().jvm.java.util.ArrayList(collection)
