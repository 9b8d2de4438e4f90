"""Real object stores for tests, each one process on a free port of 127.0.0.1 (or of a ``Host``).

``with Minio() as server`` starts it; ``server.location("bucket", "path")`` is a table's place there, with the
options that reach it. Servers can be killed, stopped and started again on their data.

``make stores`` installs the programs (``scripts/stores.py``) into ``.venv-stores``, or where the variable
``MAINSTEM_STORES`` points.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import obstore

from mainstem.storage.backends import location_of
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store, serves_suffixes
from tests.servers.gcs_shim import GcsShim
from tests.servers.hosts import HERE, Host
from tests.servers.zookeeper import free_port

PROGRAMS = Path(os.environ.get("MAINSTEM_STORES", Path(__file__).parents[2] / ".venv-stores"))
_START_S = 60.0
_STARTS_MAX = 5
_USER, _PASSWORD = "mainstem", "mainstem-12345"


class NoServer(RuntimeError):
    """The program is not installed."""


class StoreServer:
    """One server; a context manager. A subclass says how it is started and reached."""

    name: ClassVar[str]
    #: the program, below ``PROGRAMS``
    program: ClassVar[str]

    def __init__(self, host: Host = HERE) -> None:
        if not (PROGRAMS / self.program).exists():
            raise NoServer(f"{PROGRAMS / self.program} is missing: make stores installs it")
        self.host = host
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.data = self.folder / "data"
        self.data.mkdir()
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """Arguments behind the program's name."""
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        """Variables that the program reads."""
        return {}

    def options(self) -> dict[str, str]:
        """Options that reach it."""
        raise NotImplementedError

    def url(self, bucket: str, path: str) -> str:
        """A table's URL."""
        return f"s3://{bucket}/{path}"

    def make_bucket(self, bucket: str) -> None:
        """Make a bucket that is not there."""
        store = open_store(self.location(bucket, ""))
        url = obstore.sign(store, "PUT", "", timedelta(minutes=1))
        urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30).close()

    # -- the same for all --------------------------------------------------------------------------

    def location(self, bucket: str, path: str) -> Location:
        """A place in the server, which ``open_table`` takes."""
        return location_of(self.url(bucket, path), options=self.options())

    def storage(self, bucket: str, path: str) -> ObjectStorage:
        """Storage that writes, below a prefix."""
        location = self.location(bucket, path)
        return ObjectStorage(open_store(location), location, suffix=serves_suffixes(location))

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://{self.host.address}:{self.port}"

    @property
    def pid(self) -> int:
        """The process of the running server."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> StoreServer:
        for _ in range(_STARTS_MAX):
            self.port = free_port()
            self.launch()
            if self.answers():
                return self
        raise RuntimeError(f"{self.name} did not start; its log ends:\n{self.log()[-3000:]}")

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def launch(self) -> None:
        """Start its process on ``port``, and do not wait."""
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self.host.command([str(PROGRAMS / self.program), *self.command()]),
                stdout=log, stderr=log, cwd=self.folder, env={**os.environ, **self.environment()},
            )  # fmt: skip

    def answers(self) -> bool:
        """Wait until it serves; False, and it is killed, if that takes too long."""
        end = time.monotonic() + _START_S
        while self._process is not None and self._process.poll() is None and time.monotonic() < end:
            try:
                urllib.request.urlopen(self.endpoint, timeout=5).close()
                return True
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500:  # MinIO listens first, and answers 503 while it starts
                    return True
            except OSError:
                pass
            time.sleep(0.05)
        self.kill()
        return False

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill it, and start it again on the same data and port."""
        self.kill()
        self.launch()
        if not self.answers():
            raise RuntimeError(f"{self.name} did not start again; its log ends:\n{self.log()[-3000:]}")

    def stop(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What the server printed."""
        return (self.folder / "log").read_text(errors="replace")


class _S3Server(StoreServer):
    def options(self) -> dict[str, str]:
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": _USER,
            "fs.s3a.secret.key": _PASSWORD,
        }

    def variables(self) -> dict[str, str]:
        """Variables by which all clients of S3 reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": _USER,
            "AWS_SECRET_ACCESS_KEY": _PASSWORD,
            "AWS_ALLOW_HTTP": "true",
        }


class Minio(_S3Server):
    """MinIO."""

    name, program = "minio", "bin/minio"

    def command(self) -> list[str]:
        return ["server", "--quiet", "--address", f"{self.host.address}:{self.port}", str(self.data)]

    def environment(self) -> dict[str, str]:
        return {"MINIO_ROOT_USER": _USER, "MINIO_ROOT_PASSWORD": _PASSWORD, "MINIO_BROWSER": "off"}

    def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", *, service: str = "s3",
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> str:  # fmt: skip
        """The reply to a request of the root user's (Signature Version 4): what obstore does not know."""
        now, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body).hexdigest()
        told = {"x-amz-content-sha256": digest, "x-amz-date": now, **headers}
        lines = {"host": self.endpoint.removeprefix("http://"), **told}
        names = ";".join(sorted(lines))
        signed = [f"{name}:{lines[name]}" for name in sorted(lines)]
        canonical = [method, path, query, *signed, "", names, digest]
        scope = f"{now[:8]}/us-east-1/{service}/aws4_request"
        hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        key = f"AWS4{_PASSWORD}".encode()
        for part in (*scope.split("/"), f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashed}"):
            key = hmac.digest(key, part.encode(), "sha256")
        told["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={_USER}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
        )
        url = f"{self.endpoint}{path}{f'?{query}' if query else ''}"
        request = urllib.request.Request(url, body or None, told, method=method)
        with urllib.request.urlopen(request, timeout=30) as reply:
            return str(reply.read().decode())


class Versitygw(_S3Server):
    """versitygw, which keeps objects as files of a folder."""

    name, program = "versitygw", "bin/versitygw"

    def command(self) -> list[str]:
        return ["--port", f"127.0.0.1:{self.port}", "posix", str(self.data)]

    def environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": _USER, "ROOT_SECRET_KEY": _PASSWORD}


class S3rver(_S3Server):
    """s3rver, which ignores the conditions of requests."""

    name, program = "s3rver", "node/node_modules/.bin/s3rver"

    def command(self) -> list[str]:
        return ["-d", str(self.data), "-a", "127.0.0.1", "-p", str(self.port), "--configure-bucket", "bucket"]

    def options(self) -> dict[str, str]:
        return {**super().options(), "fs.s3a.access.key": "S3RVER", "fs.s3a.secret.key": "S3RVER"}

    def make_bucket(self, bucket: str) -> None:
        """It is there."""


class Azurite(StoreServer):
    """Azurite, an Azure Blob store; its account is the one that it is known for."""

    name, program = "azurite", "node/node_modules/.bin/azurite-blob"
    account = "devstoreaccount1"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def command(self) -> list[str]:
        return ["--silent", "--skipApiVersionCheck", "--location", str(self.data),
                "--blobHost", "127.0.0.1", "--blobPort", str(self.port)]  # fmt: skip

    def options(self) -> dict[str, str]:
        endpoint = f"{self.endpoint}/{self.account}"
        return {"hoodie.mainstem.storage.endpoint": endpoint, "fs.azure.account.key": self.key}

    def url(self, bucket: str, path: str) -> str:
        return f"abfs://{bucket}@{self.account}.dfs.core.windows.net/{path}"

    def make_bucket(self, bucket: str) -> None:
        # obstore makes no containers, and what it signs is for objects: "shared key", by hand.
        told = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        path = f"/{self.account}/{bucket}"
        headers = "".join(f"{name}:{value}\n" for name, value in sorted(told.items()))
        text = "PUT" + 12 * "\n" + f"{headers}/{self.account}{path}\nrestype:container"
        digest = hmac.digest(base64.b64decode(self.key), text.encode(), "sha256")
        told["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        request = urllib.request.Request(
            f"{self.endpoint}{path}?restype=container", method="PUT", headers=told
        )
        urllib.request.urlopen(request, timeout=30).close()


class FakeGcs(StoreServer):
    """fake-gcs-server in memory, behind the shim that obstore needs."""

    name, program = "fake-gcs", "bin/fake-gcs-server"
    _shim: GcsShim | None = None

    def command(self) -> list[str]:
        here = f"127.0.0.1:{self.port}"
        return ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port), "-backend", "memory",
                "-public-host", here, "-external-url", f"http://{here}"]  # fmt: skip

    def __enter__(self) -> StoreServer:
        super().__enter__()
        self._shim = GcsShim(self.port)
        return self

    def __exit__(self, *more: object) -> None:
        if self._shim is not None:
            self._shim.close()
        super().__exit__(*more)

    def options(self) -> dict[str, str]:
        assert self._shim is not None
        endpoint = f"http://127.0.0.1:{self._shim.port}"
        # Unsigned writes are not known to obstore: it asks for a token, but for the account of an emulator.
        account = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": "", "private_key": "",
                   "private_key_id": ""}  # fmt: skip
        file = self.folder / "account.json"
        file.write_text(json.dumps(account))
        return {"fs.gs.storage.root.url": endpoint, "fs.gs.auth.service.account.json.keyfile": str(file)}

    def url(self, bucket: str, path: str) -> str:
        return f"gs://{bucket}/{path}"

    def make_bucket(self, bucket: str) -> None:
        body = json.dumps({"name": bucket}).encode()
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=p", body, {"Content-Type": "application/json"}
        )
        urllib.request.urlopen(request, timeout=30).close()


#: servers that keep what they are asked
SERVERS: tuple[type[StoreServer], ...] = (Minio, Versitygw, Azurite, FakeGcs)
