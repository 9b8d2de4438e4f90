"""Where the main job has its tables, events, checkpoints and states: a folder, or a prefix of a bucket.

Whoever works in a bucket finds the server and its credentials in the environment (``AWS_ENDPOINT_URL``,
``AWS_REGION``, ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``): mainstem, Spark and Arrow, on every host.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.fs as fs

_SCHEME = "s3://"
_ROOT = Path(__file__).resolve().parents[1]


class Place:
    """``base``: a folder, or ``s3://BUCKET/PREFIX``."""

    def __init__(self, base: str | Path) -> None:
        self.base = str(base).rstrip("/")
        self.in_store = self.base.startswith(_SCHEME)

    def path(self, *names: str) -> str:
        """What mainstem takes."""
        return "/".join([self.base, *names])

    def for_spark(self, *names: str) -> str:
        """What Spark takes, which knows S3 as s3a."""
        path = self.path(*names)
        return path.replace(_SCHEME, "s3a://", 1) if self.in_store else path

    def files(self, *names: str) -> fs.FileSystem:
        """The files below ``names``, by Arrow."""
        path = self.path(*names)
        if self.in_store:
            return fs.SubTreeFileSystem(path.removeprefix(_SCHEME), _s3())
        os.makedirs(path, exist_ok=True)
        return fs.SubTreeFileSystem(path, fs.LocalFileSystem())

    def upload(self, folder: Path, *names: str) -> None:
        """Copy a folder's files there, in the order of their names: Spark takes them by their times."""
        target = self.files(*names)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            with target.open_output_stream(file.relative_to(folder).as_posix()) as copy:
                copy.write(file.read_bytes())

    def spark_settings(self) -> dict[str, str]:
        """What a Spark session needs to reach it."""
        if not self.in_store:
            return {}
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        settings = {
            "endpoint": endpoint,
            "endpoint.region": _region(),
            "path.style.access": str(bool(endpoint)).lower(),
            "connection.ssl.enabled": str(not endpoint.startswith("http:")).lower(),
        }
        found = {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items() if value}
        classes = {f"spark.{side}.extraClassPath": f"{_jars()}/*" for side in ("driver", "executor")}
        return {**classes, **found}


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def _s3() -> fs.FileSystem:
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    scheme, _, address = endpoint.rpartition("://")
    return fs.S3FileSystem(region=_region(), scheme=scheme or "https", endpoint_override=address or None)


def _jars() -> Path:
    """S3 for Spark, which `make demo` and `make stores` fetch."""
    folder = Path(os.environ.get("MAINSTEM_STORES", _ROOT / ".venv-stores")) / "spark-s3a"
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing: python scripts/stores.py spark-s3a")
    return folder
