"""How the demos' writer processes speak to the process that started them: a JSON object per line."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def wait_for_the_start(gate: Path) -> None:
    """Say that this writer could begin, and wait until the file ``gate`` says that all do."""
    say(ready=True)
    while not gate.exists():
        time.sleep(0.02)


def end_with_parent() -> None:
    """End this process when the one that started it is gone and its pipe is closed."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
