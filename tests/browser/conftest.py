"""A Chromium for all tests here, and a page that fails a test for what it complains of."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

PATIENCE_MS = 20_000  # a busy machine is no finding
expect.set_options(timeout=PATIENCE_MS)
ROOT = Path(__file__).resolve().parents[2]


def _chromium() -> str:
    spec = importlib.util.spec_from_file_location("browser", ROOT / "scripts" / "browser.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = module.found()
    if path is None:
        pytest.fail("no Chromium; run: make ui")
    return str(path)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Tests run as root, whom Chromium refuses a sandbox.
        made = playwright.chromium.launch(executable_path=_chromium(), args=["--no-sandbox"])
        yield made
        made.close()


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """Opens addresses; at the end no page may have complained, or asked another server."""
    complaints: list[str] = []
    contexts = []

    def open_page(url: str, *, width: int = 1280, allowed: tuple[str, ...] = (), **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        origin = "/".join(url.split("/")[:3])

        def told(text: str) -> None:
            if not any(one in text for one in allowed):
                complaints.append(text)

        page.on("pageerror", lambda error: told(str(error)))
        page.on("console", lambda message: told(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: complaints.append(f"a dialog: {dialog.message}"))
        page.on("request", lambda one: None if one.url.startswith(origin) else complaints.append(one.url))
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
