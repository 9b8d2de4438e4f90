"""Suites that were written for a disk, on other stores: ``--store NAME``.

Every table that a test gives by a path then lies in that store, as long as this process opens it:

- ``objects``: an object store whose objects are files of the same folder; ``renames``: the same for a store
  that renames and has no links, as HDFS does. Also forked children see them.
- ``memory``: the code for object stores, on objects in this process.
- ``minio``, ``versitygw``, ``azurite``, ``fake-gcs``, ``hdfs``: real servers (``make stores`` installs them),
  one for all processes of xdist, each with a bucket of its own.

Of the last two kinds, tests find the files in the folder, too (``tests/storage/shown_files.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from mainstem.api import neighbours
from mainstem.storage import backends

#: stores in which this process alone, or it and forked children, find the tables
HERE = ("objects", "renames", "memory")
SERVERS = ("minio", "versitygw", "azurite", "fake-gcs", "hdfs")
_BUCKET = "suites-"


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--store", choices=(*HERE, *SERVERS), help="where tables lie that are given by paths")


def leave_out(store: str | None, items: list[pytest.Item]) -> None:
    """Skip the tests that say that they are about something else: ``disk``, ``here``."""
    for item in items:
        for name, elsewhere in (("disk", HERE + SERVERS), ("here", ("memory", *SERVERS))):
            mark = item.get_closest_marker(name)
            if mark is not None and store in elsewhere:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {mark.args[0]}"))


class Server:
    """The server of a run; a plugin of the process that starts it and deals the tests out."""

    def __init__(self, name: str) -> None:
        self._open = ExitStack()
        self._name = name
        self._running: Any = None
        self.alone: tuple[str, dict[str, str]] | None = None

    def _place(self, process: str) -> tuple[str, dict[str, str]]:
        """URL and options of a bucket for one process of tests."""
        if self._running is None:
            self._running = self._open.enter_context(_started(self._name))
        if self._name == "hdfs":
            return self._running.url(process), self._running.options()
        self._running.make_bucket(_BUCKET + process)
        return self._running.url(_BUCKET + process, ""), self._running.options()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        if not session.config.getoption("numprocesses", None):
            self.alone = self._place("alone")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["store"] = self._place(node.workerinput["workerid"])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._open.close()


def _started(name: str) -> Any:
    from tests.servers import hdfs, object_stores

    if name == "hdfs":
        if not hdfs.installed():
            raise pytest.UsageError(f"{hdfs.JARS} has no Hadoop, or Java is missing: make stores installs it")
        return hdfs.Hdfs()
    try:
        return next(kind for kind in object_stores.SERVERS if kind.name == name)()
    except object_stores.NoServer as error:
        raise pytest.UsageError(str(error)) from None


@contextmanager
def tables_in(config: pytest.Config) -> Iterator[None]:
    """While it lasts, paths of this process are places in the store that ``--store`` names."""
    store = config.getoption("--store")
    if store is None:
        yield
        return
    backend = _backend(store, config)
    around = getattr(backend, "around", backends.storage_of)
    with patch.dict(backends.BACKENDS, file=backend), patch.object(neighbours, "storage_of", around):
        yield


def _backend(store: str, config: pytest.Config) -> Callable[..., Any]:
    if store == "objects":
        from tests.storage.folder_objects import folder_objects

        return folder_objects
    if store == "renames":
        from tests.publish.renaming_store import renaming_store

        return renaming_store
    from tests.storage.shown_files import OnServer

    if store == "memory":
        return OnServer("memory://suites", {})
    given = getattr(config, "workerinput", {}).get("store")
    if given is None:
        given = config.pluginmanager.get_plugin("suite_server").alone
    return OnServer(*given)
