"""Java Hudi 1.3.0-SNAPSHOT, which writes tables of version 10 and is in no registry.

`scripts/hudi_snapshot.py` builds its bundle from a tree of Hudi's sources.
"""

from __future__ import annotations

import os
from pathlib import Path

#: the commit of Hudi whose bundle the cells in docs/interop.md were seen with
COMMIT = "65cf7e8ede"
FOLDER = Path.home() / ".cache" / "hudi-snapshot"
VARIABLE = "MAINSTEM_HUDI_SNAPSHOT_JAR"
WHY_NOT = (
    f"no bundle of Hudi 1.3.0-SNAPSHOT: neither {VARIABLE} nor {FOLDER} names one"
    " (scripts/hudi_snapshot.py builds it from a tree of Hudi's sources)"
)


def bundle() -> Path | None:
    """The bundle to judge by; None if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return max(FOLDER.glob("hudi-spark3.5-bundle_2.12-*.jar"), default=None)
