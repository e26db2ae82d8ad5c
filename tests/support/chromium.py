"""Debian's Chromium, headless; every page is a file, and nothing may be loaded beside it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = os.environ.get("SECUREBENCH_CHROMIUM", "/usr/bin/chromium")
# No sandbox: tests run as root. The others keep Chromium from calling home.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Opened(NamedTuple):
    """A page, and what happened while it was open: dialogs, messages, errors, requests."""

    page: Page
    events: list[str]


# Of the module: while it is open, its event loop runs in this thread.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[object]:
    contexts = []

    def opened(path: Path, **options: object) -> Opened:
        context = browser.new_context(**options)
        contexts.append(context)
        page, events = context.new_page(), []

        def dismiss(dialog: object) -> None:
            events.append(f"dialog: {dialog.message}")
            dialog.dismiss()

        page.on("dialog", dismiss)
        page.on("console", lambda message: events.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: events.append(f"error: {error}"))
        page.on("request", lambda request: events.append(f"request: {request.url}"))
        page.goto(path.as_uri())
        assert events.pop(0) == f"request: {path.as_uri()}"
        return Opened(page, events)

    yield opened
    for context in contexts:
        context.close()
