"""What pytest reports of each test, and what follows from all of it.

Part of the text that a task image's ``python3`` gets (``pytest_runner``): standard library of
Python 3.8 only.
"""

from __future__ import annotations

import json
import os
import sys
import unittest
from collections.abc import Iterator
from typing import IO, Any

OK = 0
LAST_CODE = 5
"""The last exit code that pytest itself has."""
PHASES = {"setup", "call", "teardown"}
"""Of each test; pytest reports them one by one.

An event is ``collected`` and the tests' ids; ``uncollected``, id, outcome; ``test``, id, phase,
result; ``changed`` and an id; ``end`` and pytest's exit status."""

TOOLS = (
    ("unittest.case", "TestCase", "run"),
    ("unittest.case", "TestCase", "__call__"),
    ("unittest.case", "TestCase", "fail"),
    ("_pytest.python", "Function", "runtest"),
    ("_pytest.python", "pytest_pyfunc_call"),
    ("_pytest.unittest", "TestCaseFunction", "runtest"),
    ("_pytest.runner", "call_runtest_hook"),
    ("_pytest.runner", "call_and_report"),
    ("_pytest.runner", "pytest_runtest_call"),
    ("_pytest.runner", "pytest_runtest_makereport"),
    ("_pytest.runner", "CallInfo", "from_call"),
    ("_pytest.reports", "TestReport", "from_item_and_call"),
)
"""Module, then names: replaced by candidate code, every test passes."""


class PytestReport:
    """The plugin that writes down what pytest collects and what becomes of each test."""

    def __init__(self, pytest: Any, descriptor: int, changed: set[str] | None) -> None:
        self.pytest = pytest
        self.descriptor = descriptor
        # Tests may replace what modules hold while they run.
        self.emit, self.encode, self.own_id = os.write, json.dumps, os.getpid
        self.owner = os.getpid()
        self.tools: list[Any] = []
        self.changed = changed
        self.declared: dict[str, set[str]] = {}
        self.reached: set[str] = set()

    @classmethod
    def of(cls, pytest: Any, file: IO[bytes], changed: set[str] | None) -> PytestReport:
        """Return the plugin.

        Args:
            pytest: The module.
            file: Where the events go, one JSON array a line.
            changed: Files of the candidate: a skip counts as declared where none of them is among
                its callers. None: only decorators and marks declare one.
        """
        kinds = {
            "pytest_load_initial_conftests": {"tryfirst": True},
            "pytest_make_collect_report": {"hookwrapper": True},
            "pytest_runtest_makereport": {"hookwrapper": True},
            "pytest_sessionfinish": {"trylast": True},
        }
        for name, kind in kinds.items():
            setattr(cls, name, pytest.hookimpl(**kind)(getattr(cls, name)))
        return cls(pytest, file.fileno(), changed)

    def write(self, *event: Any) -> None:
        """Write one event, but not in a process that a test has forked."""
        if self.own_id() == self.owner:
            self.emit(self.descriptor, self.encode(event).encode() + b"\n")

    def is_own(self, excinfo: Any) -> bool:
        """Return whether no file of the candidate is among the callers, where these are known."""
        if self.changed is None:
            return False
        files = {os.path.realpath(name) for name in raisers(excinfo.value)}
        return not self.changed & files

    def cause(self, item: Any, excinfo: Any) -> str:
        """Return whether the tests declare that this one is skipped or fails."""
        names = self.declared.get(item.nodeid, set())
        is_early = item.nodeid not in self.reached
        if isinstance(excinfo.value, (self.pytest.skip.Exception, unittest.SkipTest)):
            known = (bool(names & {"skip", "skipif"}) and is_early) or "unittest-skip" in names
        elif isinstance(excinfo.value, self.pytest.xfail.Exception):
            known = ("xfail" in names and is_early) or "unittest-xfail" in names
        else:
            known = bool(names & {"xfail", "unittest-xfail"})
        return "declared" if known or self.is_own(excinfo) else "raised"

    def pytest_load_initial_conftests(self) -> None:
        """Remember what runs tests when all plugins are loaded, and no test is."""
        self.tools = tools()

    def pytest_collection_finish(self, session: Any) -> None:
        """Remember what the tests declare before any of them runs."""
        self.declared = {item.nodeid: declarations(item) for item in session.items}
        self.write("collected", [item.nodeid for item in session.items])

    def pytest_runtest_setup(self, item: Any) -> None:
        """Note that no mark has skipped the test, and that what runs tests is still the same.

        pytest looks at marks before this hook and prepares fixtures after it.
        """
        self.reached.add(item.nodeid)
        if tools() != self.tools:
            self.write("changed", item.nodeid)

    def pytest_make_collect_report(self, collector: Any) -> Iterator[None]:
        """Note what cannot be collected, and modules that skip themselves."""
        outcome: Any = yield
        result = outcome.get_result()
        excinfo = getattr(getattr(result, "call", None), "excinfo", None)
        is_declared = excinfo is not None and self.is_own(excinfo)
        if result.outcome == "failed" or (result.outcome == "skipped" and not is_declared):
            self.write("uncollected", collector.nodeid, result.outcome)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> Iterator[None]:
        """Add to the report of a phase who skips it."""
        outcome: Any = yield
        cause = self.cause(item, call.excinfo) if call.excinfo is not None else ""
        outcome.get_result().securebench_cause = cause

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write down how a phase of a test ended."""
        result = report.outcome
        if result == "skipped":
            result = getattr(report, "securebench_cause", "") or "raised"
        elif result == "passed" and hasattr(report, "wasxfail"):
            result = "declared"
        self.write("test", report.nodeid, report.when, result)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write down that pytest came to its end."""
        self.write("end", int(exitstatus))


def raisers(error: BaseException) -> Iterator[str]:
    """Yield the files of the frames that an exception came through.

    pytest raises an exception of its own for a ``unittest.SkipTest``; the frames are in the one
    that it was handling.
    """
    skip = error.__context__
    for each in (error, skip if isinstance(skip, unittest.SkipTest) else None):
        trace = each.__traceback__ if each is not None else None
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename
            trace = trace.tb_next


def tools() -> list[Any]:
    """Return the functions by which a test runs and its result comes to be."""
    found = []
    for place, *names in TOOLS:
        holder = sys.modules.get(place)
        for name in names:
            holder = getattr(holder, name, None)
        found += [holder, getattr(holder, "__code__", None)]
    return found


def declarations(item: Any) -> set[str]:
    """Return what decorators and marks say of a test."""
    names = {mark.name for mark in item.iter_markers()} & {"skip", "skipif", "xfail"}
    owners = (getattr(item, "obj", None), getattr(item, "cls", None))
    if any(getattr(each, "__unittest_skip__", False) for each in owners):
        names.add("unittest-skip")
    if any(getattr(each, "__unittest_expecting_failure__", False) for each in owners):
        names.add("unittest-xfail")
    return names


def events_of(file: IO[bytes], child: int) -> tuple[list[list[Any]], int]:
    """Wait for the child and return what it wrote, as a whole or not at all, and its exit code."""
    _, status = os.waitpid(child, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    file.seek(0)
    try:
        events = [json.loads(line) for line in file.read().splitlines()]
    except ValueError:
        return [], code
    return [each for each in events if isinstance(each, list) and each], code


def judged(events: list[list[Any]], code: int, known: list[str]) -> str:
    """Return why the tests do not pass, or an empty text.

    Args:
        events: What the plugin wrote.
        code: Exit code of the child.
        known: Ids that were collected before the candidate was there.
    """
    if code > LAST_CODE or not events or events[-1] != ["end", code]:
        return "the tests ended before they were complete"
    if code != OK:
        return f"pytest ended with exit code {code}"
    names: list[str] = []
    results: dict[str, dict[str, str]] = {}
    for event in events:
        if event[0] == "changed":
            return f"what runs tests was changed before {event[1]}"
        if event[0] == "uncollected":
            return f"{event[1]} was not collected: {event[2]}"
        if event[0] == "collected":
            names = event[1]
        if event[0] == "test":
            results.setdefault(event[1], {})[event[2]] = event[3]
    for name in known:
        if name not in names:
            return f"{name} was there before the candidate, and was not collected with it"
    return _verdict(names, results)


def _verdict(names: list[str], results: dict[str, dict[str, str]]) -> str:
    passed = 0
    for name in names:
        phases = results.get(name, {})
        told = set(phases.values())
        if "raised" in told:
            return f"{name} was skipped or expected to fail while it ran"
        if "declared" in told and "failed" not in told:
            continue
        if set(phases) != PHASES or told != {"passed"}:
            return f"{name} has no complete result"
        passed += 1
    return "" if passed else "no test passed"
