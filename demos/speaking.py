"""How the demos' writer processes speak to the process that started them: a JSON object per line."""

from __future__ import annotations

import json
import os
import sys
import threading


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def end_with_parent() -> None:
    """End this process when the one that started it is gone and its pipe is closed."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
