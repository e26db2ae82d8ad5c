"""The table of faults; ``CHAOS_REPORT`` names a file for it as JSON."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from chaos.kit.table import ROWS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, and write it where ``CHAOS_REPORT`` says."""
    if not ROWS.ordered():
        return
    terminalreporter.section("chaos")
    console = Console(width=180)
    with console.capture() as shown:
        ROWS.show(console)
    terminalreporter.write(shown.get())
    if "CHAOS_REPORT" in os.environ:
        ROWS.write(Path(os.environ["CHAOS_REPORT"]))
