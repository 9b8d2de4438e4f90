"""``SET 'execution.runtime-mode'``: statements that follow run in batch or in streaming mode.

An environment of Flink keeps the mode that it was made in, and fails at every statement once its setting says
another. Flink's SQL client makes another environment then. So does this: one of each mode, with the same
catalogs (the very objects), current database and settings. Temporary tables, views and functions are of one
environment, and are there again when its mode is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import Invalid
from mainstem.flink.stream_workers import ensure_workers, is_batch

if TYPE_CHECKING:
    from pyflink.table import TableEnvironment

#: the setting
MODE = "execution.runtime-mode"
BATCH, STREAMING = "BATCH", "STREAMING"
# What a second environment calls the catalog that Flink makes with it, which nobody uses.
_UNUSED = "mainstem_unused"


class RuntimeModes:
    """The environments of one ``Environment``, by mode."""

    def __init__(self) -> None:
        self._known: dict[str, TableEnvironment] = {}

    def switched(self, now: TableEnvironment, asked: str) -> TableEnvironment:
        """The environment for this mode; ``now`` is the present one. Raises ``Invalid`` for other values."""
        wanted = asked.strip().upper()
        if wanted not in (BATCH, STREAMING):
            raise Invalid(f"{MODE}={asked!r}; expected batch or streaming")
        before = BATCH if is_batch(now) else STREAMING
        if wanted == before:
            return now
        self._known[before] = now
        if wanted not in self._known:
            self._known[wanted] = _made(now, wanted)
        other = self._known[wanted]
        _follow(other, now, wanted)
        return other


def _made(now: TableEnvironment, mode: str) -> TableEnvironment:
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import EnvironmentSettings, StreamTableEnvironment
    from pyflink.util.java_utils import get_j_env_configuration

    settings = Configuration(j_configuration=get_j_env_configuration(now._get_j_env()).clone())
    settings.add_all(now.get_config().get_configuration())
    settings.set_string(MODE, mode)
    streams = StreamExecutionEnvironment.get_execution_environment(settings)
    builder = EnvironmentSettings.new_instance().with_configuration(settings)
    builder = builder.in_batch_mode() if mode == BATCH else builder.in_streaming_mode()
    made = StreamTableEnvironment.create(streams, builder.with_built_in_catalog_name(_UNUSED).build())
    ensure_workers(made)
    return made


def _follow(other: TableEnvironment, now: TableEnvironment, mode: str) -> None:
    """Gives an environment what another one has by now."""
    there = set(other.list_catalogs())
    for name in now.list_catalogs():
        if name not in there and name != _UNUSED:
            other._j_tenv.registerCatalog(name, now._j_tenv.getCatalog(name).get())
    other.use_catalog(now.get_current_catalog())
    other.use_database(now.get_current_database())
    other.get_config().get_configuration().add_all(now.get_config().get_configuration())
    other.get_config().set(MODE, mode)
