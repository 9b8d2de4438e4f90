"""A real PostgreSQL server for tests, in a folder of its own, with the log that logical decoding needs.

``with PostgresDatabase() as server`` starts it on a free port of loopback; ``server.dsn`` is its connection
string. It can be killed and started again on the same data and port. PostgreSQL does not run as root: there
it runs as the user ``postgres`` that the system's package makes.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.zookeeper import free_port

_START_S = 60.0
_CONFIG = """wal_level = logical
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
shared_buffers = 16MB
max_connections = 30
max_wal_senders = 8
max_replication_slots = 8
autovacuum = off
log_min_messages = warning
"""


def programs() -> Path | None:
    """The folder of the server's programs, the newest one."""
    given = os.environ.get("MAINSTEM_POSTGRES")
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), key=lambda p: int(p.split("/")[4]))
    plain = shutil.which("initdb")
    at = f"{given}/initdb" if given else found[-1] if found else plain
    return Path(at).resolve().parent if at else None


def missing() -> str | None:
    """Why no server can run here, if so."""
    if programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql, or MAINSTEM_POSTGRES=its bin folder"
    if os.getuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


class PostgresDatabase:
    """One server; a context manager. ``settings``: further lines of its configuration."""

    def __init__(self, settings: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, Any] = {}
        self.port = 0

    @property
    def dsn(self) -> str:
        """As clients take it."""
        return f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"

    def __enter__(self) -> PostgresDatabase:
        self.port = free_port()
        if os.getuid() == 0:
            user = _user()
            assert user is not None
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        made = subprocess.run(
            [f"{programs()}/initdb", "-D", f"{self.folder}/data", "-U", "postgres", "-A", "trust",
             "-E", "UTF8", "--locale=C", "--no-sync"],
            capture_output=True, text=True, timeout=_START_S, cwd=self.folder, **self._as,
        )  # fmt: skip
        if made.returncode:
            raise RuntimeError(f"PostgreSQL's data cannot be made: {made.stdout}\n{made.stderr}")
        with open(self.folder / "data/postgresql.conf", "a") as config:
            config.write(f"{_CONFIG}port = {self.port}\n{self._settings}\n")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it; comes back when it answers."""
        import psycopg

        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [f"{programs()}/postgres", "-D", f"{self.folder}/data"],
                stdout=log, stderr=log, cwd=self.folder, start_new_session=True, **self._as,
            )  # fmt: skip
        until = time.monotonic() + _START_S
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=2).close()
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(
                        f"PostgreSQL did not start; its log ends:\n{self.log()[-3000:]}"
                    ) from error
                time.sleep(0.05)

    def kill(self) -> None:
        """kill -9 of all its processes at once."""
        if self._process is not None:
            pids = _children(self._process.pid)
            for pid in (self._process.pid, *pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            (self.folder / "data/postmaster.pid").unlink(missing_ok=True)

    def log(self) -> str:
        """What it said."""
        return (self.folder / "log").read_text(errors="replace")

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)


def _children(pid: int) -> list[int]:
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path) as opened:
            found += [int(one) for one in opened.read().split()]
    return found
