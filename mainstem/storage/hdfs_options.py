"""What users say of an HDFS cluster, and the client that they reach it by.

A URL names a name node (``hdfs://HOST:PORT/PATH``), a name service (``hdfs://NAME/PATH``), or neither
(``hdfs:///PATH``): then ``fs.defaultFS`` counts. Settings are those of ``core-site.xml`` and
``hdfs-site.xml`` in ``HADOOP_CONF_DIR`` (else ``HADOOP_HOME/etc/hadoop``); options of the same names count
before them. The user is that of the Kerberos ticket, else ``HADOOP_USER_NAME``, else the system's.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.forks import Mutex
from mainstem.storage.location import Location

SCHEME = "hdfs"
#: options of Hadoop that reach a cluster: they are no properties of a table
PREFIXES = ("dfs.", "fs.defaultFS", "fs.hdfs.", "hadoop.security.", "hadoop.rpc.")
# What the library reads of the environment decides which cluster it is, and as whom.
_VARIABLES = ("HADOOP_", "KRB5")
_CLIENTS_MAX = 64

_clients: dict[tuple[object, ...], Any] = {}
_guard = Mutex()


def is_of_hdfs(name: str) -> bool:
    """Whether an option belongs to HDFS, by its prefix."""
    return name.startswith(PREFIXES)


def kept(given: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The options of HDFS among these, as a ``Location`` keeps them."""
    return tuple(sorted((name, text.strip()) for name, text in given.items() if is_of_hdfs(name)))


def open_client(location: Location) -> Any:
    """The client of the library hdfs-native for a cluster; the tables of a cluster share it.

    Raises ``Unsupported`` where the library is not installed, ``Invalid`` for a cluster that is not
    described, ``Unavailable`` for a name node whose host nobody knows.
    """
    try:
        import hdfs_native
    except ImportError as error:
        raise Unsupported(
            "hdfs:// needs the library hdfs-native: pip install 'mainstem[hdfs]'", table=location.base
        ) from error
    told = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES)))
    key = (location.authority, location.options, told)
    with _guard.held:
        client = _clients.get(key)
        if client is None:
            while len(_clients) >= _CLIENTS_MAX:
                del _clients[next(iter(_clients))]
            _check_host(location)
            url = f"{SCHEME}://{location.authority}" if location.authority else None
            try:
                client = hdfs_native.Client(url, dict(location.options))
            except Exception as error:  # RuntimeError for what is not described, OSError for its files
                raise Invalid(
                    f"the cluster is not described ({error}): give HOST:PORT of the name node in the URL, or"
                    " set HADOOP_CONF_DIR to the folder of core-site.xml and hdfs-site.xml, or give the"
                    " options dfs.ha.namenodes.NAME and dfs.namenode.rpc-address.NAME.NODE",
                    table=location.base,
                ) from error
            _clients[key] = client
    return client


def _check_host(location: Location) -> None:
    """A wrong name is said at once: the library would look it up again for three minutes."""
    host, _, port = location.authority.rpartition(":")
    if not host or not port.isdigit():
        return  # a name service
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
    except OSError as error:
        raise Unavailable(
            f"the name node's host {host!r} is not known: {error}", table=location.base
        ) from error
