"""What PyFlink lacks: the stream side of any table environment, and workers that can import mainstem."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import mainstem
from mainstem.errors import Unsupported

if TYPE_CHECKING:
    from pyflink.table import StreamTableEnvironment, TableEnvironment


_OLDEST = (2, 3)


def check_release() -> None:
    """Refuse a release of Flink whose planner misses what is needed (``TO_CHANGELOG``, plans of queries that
    are planned in parts), before anything is planned. Raises ``Unsupported``."""
    from pyflink.version import __version__ as found

    if tuple(int(part) for part in found.split(".")[:2]) < _OLDEST:
        raise Unsupported(
            f"apache-flink {found} is installed; mainstem needs 2.3 (pip install mainstem[flink])"
        )


def keep_java_thread() -> None:
    """Let Python's garbage collector talk to Java on connections of its own.

    Java runs what comes in on a connection in a thread of that connection, and the planner keeps in a thread
    what it planned with (``RelMetadataQueryBase.THREAD_PROVIDERS``). py4j's connections are a pool: whenever
    some Python thread, such as ZooKeeper's, happened to collect a Java object while a statement was planned,
    the next step of planning could come to another Java thread and fail there with a NullPointerException.
    """
    from py4j.java_gateway import GatewayClient
    from pyflink.java_gateway import get_gateway

    client = get_gateway()._gateway_client
    if "garbage_collect_object" in vars(client):
        return
    apart = GatewayClient(
        gateway_parameters=client.gateway_parameters, gateway_property=client.gateway_property
    )

    def collect(target: str) -> None:
        if client.is_connected:
            apart.garbage_collect_object(target)

    client.garbage_collect_object = collect


def stream_environment(env: TableEnvironment) -> StreamTableEnvironment:
    """``env`` as one that makes streams of tables; the same catalogs, functions, settings and planner."""
    from pyflink.table import StreamTableEnvironment

    # Of Java's kind: PyFlink's own class also stands for a plain one, if it was made of settings alone.
    if env._j_tenv.getClass().getSimpleName() == "StreamTableEnvironmentImpl":
        return env
    from pyflink.java_gateway import get_gateway

    made = env._j_tenv
    bridge = get_gateway().jvm.org.apache.flink.table.api.bridge.java.internal.StreamTableEnvironmentImpl
    return StreamTableEnvironment(
        bridge(
            made.getCatalogManager(),
            java_field(made, "moduleManager"),
            java_field(made, "resourceManager"),
            java_field(made, "functionCatalog"),
            made.getConfig(),
            made.getPlanner().getExecEnv(),
            made.getPlanner(),
            java_field(made, "execEnv"),
            java_field(made, "isStreamingMode"),
        )
    )


def java_field(made: Any, name: str) -> Any:
    """A private field of a Java object."""
    kind = made.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field.get(made)
        kind = kind.getSuperclass()
    raise AttributeError(name)


def checkpoint_interval_ms(env: TableEnvironment) -> int | None:
    """The checkpoint interval; None without checkpoints."""
    stream = env._j_tenv.getPlanner().getExecEnv()
    stream.configure(env._j_tenv.getConfig().getConfiguration())
    found = stream.getCheckpointConfig()
    return int(found.getCheckpointInterval()) if found.isCheckpointingEnabled() else None


def is_batch(env: TableEnvironment) -> bool:
    """Whether queries run in batch mode."""
    return bool(env.get_config().get("execution.runtime-mode", "STREAMING").upper() == "BATCH")


def is_local(env: TableEnvironment) -> bool:
    """Whether jobs run in a cluster of this process, not in another one."""
    from pyflink.util.java_utils import get_j_env_configuration, is_local_deployment

    return bool(is_local_deployment(get_j_env_configuration(env._get_j_env())))


def ensure_workers(env: TableEnvironment) -> None:
    """Let Python workers find this interpreter and this mainstem, where the user did not say otherwise.

    Workers of a cluster run with what is installed there; those of a local one are started beside this
    process, which may have mainstem on its path only.
    """
    if not is_local(env):
        return
    config = env.get_config()
    if not config.get("python.executable", ""):
        config.set("python.executable", sys.executable)
    home = os.path.dirname(os.path.dirname(os.path.abspath(mainstem.__file__)))
    if "site-packages" not in home and not config.get("python.pythonpath", ""):
        config.set("python.pythonpath", home)
