"""One table environment, and so one JVM, for all tests of this folder that need Flink."""

from __future__ import annotations

import importlib.util
import warnings

import pytest


@pytest.fixture(scope="session")
def table_environment():
    """A PyFlink StreamTableEnvironment, streaming mode. Its catalog is shared: name tables apart."""
    if importlib.util.find_spec("pyflink") is None:
        pytest.skip(
            "apache-flink is not installed (it has no wheels for this Python, or the extra is missing)"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyFlink's own imports say about each other
        import pyflink.fn_execution.beam.beam_worker_pool_service  # noqa: F401
        from pyflink.datastream import StreamExecutionEnvironment
        from pyflink.table import StreamTableEnvironment

    return StreamTableEnvironment.create(StreamExecutionEnvironment.get_execution_environment())


@pytest.fixture
def environment(table_environment):
    """Makes connected environments in the one JVM. Flink keeps settings of a job for the next one of its
    environment, so each has its own."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import StreamTableEnvironment

    from mainstem.flink import connect

    def make(every: str | None = None, tasks: int = 2, start: str | None = None, **more: str):
        given = {
            "parallelism.default": str(tasks),
            "execution.checkpointing.interval": every,
            "execution.state-recovery.path": start,
            **more,
        }
        settings = Configuration()
        for key, value in given.items():
            if value is not None:
                settings.set_string(key, value)
        streams = StreamExecutionEnvironment.get_execution_environment(settings)
        return connect(StreamTableEnvironment.create(streams))

    return make
