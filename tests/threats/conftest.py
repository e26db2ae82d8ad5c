"""Threat cases: an arena for their trials, and the table of their outcomes.

A case ``A-040`` is done when ``test_a_040_attack``, ``test_a_040_twin`` and ``test_a_040_honest``
are. ``THREATS_REPORT`` names a file for the table as JSON; two runs that agree write equal files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer

from support.lanes import ArenaScheduling
from threats.kit.arena import Arena, open_arena
from threats.kit.outcomes import Outcomes, is_explained, wants_all

OUTCOMES = Outcomes()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ArenaScheduling:
    """Let the arena be in one process; its tests mostly wait for Pods."""
    return ArenaScheduling(config, log)


@pytest.fixture(scope="session")
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """The arena, which runs the trials of all chosen tests (``@pytest.mark.trials``)."""
    with open_arena() as opened:
        opened.queue(
            trial
            for item in request.session.items
            for mark in item.iter_markers("trials")
            for trial in mark.args
        )
        yield opened


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test ended; a failed set-up counts as a failed test."""
    if report.when == "call" or report.outcome != "passed":
        test = report.nodeid.rpartition("::")[2]
        if report.skipped and isinstance(report.longrepr, tuple):
            OUTCOMES.add(test, report.longrepr[2].removeprefix("Skipped: "))
        else:
            OUTCOMES.add(test, report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that ran the whole suite and left a gap."""
    if _is_whole(session.config) and not session.config.option.collectonly:
        gaps = [row for row in OUTCOMES.table(is_whole=True).values() if not is_explained(row)]
        if gaps and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table, and write it where ``THREATS_REPORT`` says."""
    table = OUTCOMES.table(is_whole=_is_whole(config))
    if table:
        terminalreporter.section("threats")
    for case, row in table.items():
        line = f"{case}  {row['group']:4} {row['outcome']:14} {row['reason']}".rstrip()
        terminalreporter.write_line(line, red=not is_explained(row))
    if "THREATS_REPORT" in os.environ:
        text = json.dumps(table, indent=1) + "\n"
        Path(os.environ["THREATS_REPORT"]).write_text(text, encoding="utf-8")


def _is_whole(config: pytest.Config) -> bool:
    return wants_all() and not config.option.keyword
