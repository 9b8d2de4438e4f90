"""Repairs for Spark's Python worker processes."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from mainstem.errors import Invalid

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def speed_up_workers() -> bool:
    """Stops Spark 4.1 from rereading its own zip files at every call; returns whether this was needed.

    4.1's workers call ``importlib.invalidate_caches()`` for every task and every planner or commit
    call, which rereads pyspark.zip's directory (36 to 40 ms, several times per micro-batch).
    Spark's own files do not change under a running worker; other archives are still invalidated.
    """
    if "pyspark.worker" not in sys.modules and "pyspark.daemon" not in sys.modules:
        main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
        if "pyspark" not in main:
            return False
    pyspark = sys.modules.get("pyspark")
    version = getattr(pyspark, "__version__", "")
    if not version.startswith(("4.0", "4.1")):
        return False
    import zipimport

    original = zipimport.zipimporter.invalidate_caches
    if getattr(original, "keeps_spark", False):
        return True

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        name = os.path.basename(self.archive)
        if name != "pyspark.zip" and not name.startswith("py4j-"):
            original(self)

    invalidate_caches.keeps_spark = True  # type: ignore[attr-defined]  # a mark
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]  # the repair
    return True


def ensure_python(session: SparkSession) -> None:
    """Ensures that a session's Python workers can import what this driver imports.

    By default Spark starts ``python3`` from the PATH; tasks may then fail with "No module named pyarrow"
    (or mainstem). On a local master, this sets the session to use this interpreter. On a cluster the paths
    may differ, so it raises ``Invalid``, which says what to set.
    """
    try:
        context = session.sparkContext
        master, python = context.master, context.pythonExec
    except Exception:  # Spark Connect: the server configures its workers
        return
    if not _wrong_python(python):
        return
    if master.startswith("local"):
        context.pythonExec = sys.executable
        return
    raise Invalid(
        f"Spark's workers would run {python!r}, this driver runs {sys.executable}: tasks would not find"
        ' mainstem. Set it before the session starts: os.environ["PYSPARK_PYTHON"] = the'
        " interpreter on the workers (or spark.pyspark.python)"
    )


def _wrong_python(found: str) -> bool:
    if os.path.isabs(found):
        return False  # chosen on purpose; a worker's path may differ from the driver's
    import shutil

    resolved = shutil.which(found)
    if not resolved:
        return True
    same_file = os.path.realpath(resolved) == os.path.realpath(sys.executable)
    return not (same_file and _same_environment(resolved))


def _same_environment(executable: str) -> bool:
    here = os.path.dirname(os.path.abspath(sys.executable))
    return os.path.dirname(os.path.abspath(executable)) == here
