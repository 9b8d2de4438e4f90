"""``python -m mainstem`` is the command ``mainstem``."""

from __future__ import annotations

import sys

from mainstem.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
