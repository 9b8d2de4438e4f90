"""Repairs for Spark's Python worker processes."""

from __future__ import annotations

import os
import sys

from mainstem.errors import Invalid


def speed_up_workers() -> bool:
    """Stop Spark 4.1 from reading its own zip files again at every call; True if it was needed.

    4.1's workers call ``importlib.invalidate_caches()`` for every task and every planner or commit
    call, which reads pyspark.zip's directory again (36 to 40 ms, several times per micro-batch).
    The files of Spark itself do not change under a running worker; other archives keep the call.
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

    invalidate_caches.keeps_spark = True  # type: ignore[attr-defined]
    zipimport.zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]
    return True


def check_python(session_python: str | None) -> None:
    """Refuse a session whose workers would start another interpreter than this one.

    Spark starts ``python3`` of the PATH unless told otherwise; the tasks then fail with "No module
    named pyarrow" (or mainstem). ``session_python`` is what the session will start.
    """
    found = session_python or "python3"
    if os.path.isabs(found) and os.path.exists(found):
        return  # chosen on purpose; on a cluster the workers' path may differ from the driver's
    import shutil

    resolved = shutil.which(found)
    if resolved and os.path.realpath(resolved) == os.path.realpath(sys.executable):
        return
    if resolved and _same_environment(resolved):
        return
    raise Invalid(
        f"Spark's workers would run {found!r} ({resolved or 'not found on the PATH'}), this driver"
        " runs"
        f" {sys.executable}: tasks would not find mainstem. Set it before the session starts:"
        ' os.environ["PYSPARK_PYTHON"] = sys.executable (or spark.pyspark.python on a cluster)'
    )


def _same_environment(executable: str) -> bool:
    here = os.path.dirname(os.path.abspath(sys.executable))
    return os.path.dirname(os.path.abspath(executable)) == here
