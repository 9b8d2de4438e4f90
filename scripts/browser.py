"""Find Chromium, with which `make ui` tests the page, or install it from Debian's packages.

    python scripts/browser.py        prints its path

`MAINSTEM_CHROMIUM` names one. It is installed only where apt-get is there and this process is root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
PACKAGES = ("chromium", "fonts-dejavu-core")
VARIABLE = "MAINSTEM_CHROMIUM"


def found() -> str | None:
    """Path of a Chromium or Chrome; None if there is none."""
    named = os.environ.get(VARIABLE)
    return named or next(filter(None, map(shutil.which, NAMES)), None)


def main() -> int:
    if found() is None and shutil.which("apt-get") and os.geteuid() == 0:
        print("installing chromium", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
            asked = ["apt-get", "-qq", *command]
            subprocess.run(asked, check=False, stdout=subprocess.DEVNULL, env=environment)
    path = found()
    if path is None:
        print(
            f"no Chromium: install the package chromium, or name one in {VARIABLE} (looked for"
            f" {', '.join(NAMES)})",
            file=sys.stderr,
        )
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
