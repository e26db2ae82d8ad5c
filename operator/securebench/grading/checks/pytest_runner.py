"""Runs tests with pytest beside a candidate, and judges by what became of each test.

The ``python3`` of a task image gets this text by ``-c``, in isolated mode and without ``site``:
standard library of Python 3.8 only, and nothing else of ours.

``check WORKSPACE BUNDLE ROOT PATH KNOWN``, before the candidate is there: PATH exists, there is a
pytest, the Python files that pytest loads compile, they hold a test. What the tests do without the
candidate is written to KNOWN, a control run. ``run`` with the same words runs the tests. ``patch
KNOWN ARGUMENT…`` runs ``pytest ARGUMENT…`` as the repository's own interpreter does it, ``script
KNOWN NAME ARGUMENT…`` as the script NAME does; ``base`` and ``base-script`` are their control
runs.

Who raised a skip is not asked: names of files and functions are the candidate's to choose. One
counts only where the row names the test, or where the control run skipped the same test.

The parent never runs candidate code. Its child writes down what pytest collects and what becomes of
each test; candidate code that the tests import can reach that child, and nothing else.

Source: contract 21.13 to 21.15, docs/reference/checks.md, decision 0020.
"""

from __future__ import annotations

import ast
import contextlib
import fnmatch
import importlib.metadata
import importlib.util
import inspect
import json
import os
import shlex
import shutil
import site
import sys
import tempfile
import unittest  # noqa: F401  # of TOOLS, loaded before any test
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

OK = 0
LAST_CODE = 5
"""The last exit code that pytest itself has."""
PHASES = {"setup", "call", "teardown"}
"""Of each test; pytest reports them one by one, some plugins the same one several times.

An event is ``collected``, the tests' ids, those without a parameter and the asynchronous ones;
``declared`` and ids, of a control run; ``uncollected``, id, outcome; ``test``, id, phase, result;
``changed`` and an id; ``end`` and the exit status of pytest."""

PASSED, SKIPPED, XFAILED, XPASSED = "passed", "skipped", "xfailed", "xpassed"
NEITHER = {SKIPPED, XFAILED}
REMEDY = "it is asynchronous, which takes a plugin that the row names (plugins)"

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
UNCONDITIONAL = {
    ("mark", "skip"),
    ("unittest", "skip"),
    ("", "skip"),
    ("unittest", "expectedFailure"),
    ("", "expectedFailure"),
}
"""Owner and name of marks and decorators that ask for nothing."""

FAILED = 1
NO_TESTS = 5
AUTHORS_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
SOURCE_VARIABLE = "SECUREBENCH_PYTEST"
"""Has this text where a shell puts it on the command line."""
ROW_VARIABLE = "SECUREBENCH_TESTS"
"""Has what the row says of its tests, as JSON: ``skips``, ``plugins``, and how many ``calls`` of
pytest share the secret."""
INSIDE, CONTROL = "inside", "inside-control"
SECRET, ANSWER = 3, 4
"""Descriptors of the proof that supervise asks for (docs/reference/protocol.md)."""
PROOF_BYTES = 32
NO_WORKERS = {"no:xdist", "-pno:xdist", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"}
"""Arguments and variables with which pytest-xdist knows no option."""
PR_SET_DUMPABLE = 4
WRITES_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr"}


class PytestReport:
    """The plugin that writes down what pytest collects and what becomes of each test."""

    def __init__(self, descriptor: int, is_control: bool) -> None:  # noqa: FBT001
        self.descriptor = descriptor
        # Tests may replace what modules hold while they run.
        self.emit, self.encode, self.own_id = os.write, json.dumps, os.getpid
        self.owner = os.getpid()
        self.tools: list[Any] = []
        self.is_control = is_control
        self.read: set[str] = set()
        self.is_partial = False

    @classmethod
    def of(cls, pytest: Any, file: IO[bytes], *, is_control: bool = False) -> PytestReport:
        """Return the plugin.

        Args:
            pytest: The module.
            file: Where the events go, one JSON array a line.
            is_control: Whether only tests of files that may skip one are run.
        """
        kinds = {
            "pytest_load_initial_conftests": {"tryfirst": True},
            "pytest_make_collect_report": {"hookwrapper": True},
            "pytest_collection_modifyitems": {"trylast": True},
            "pytest_sessionfinish": {"trylast": True},
        }
        for name, kind in kinds.items():
            setattr(cls, name, pytest.hookimpl(**kind)(getattr(cls, name)))
        return cls(file.fileno(), is_control)

    def write(self, *event: Any) -> None:
        """Write one event, but not in a process that a test has forked."""
        if self.own_id() == self.owner:
            self.emit(self.descriptor, self.encode(event).encode() + b"\n")

    def pytest_load_initial_conftests(self) -> None:
        """Remember what runs tests when all plugins are loaded, and no test is."""
        self.tools = tools()

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Write down what is collected; leave out of a control run what cannot skip."""
        ids = [item.nodeid for item in items]
        empty = [item.nodeid for item in items if has_no_parameter(item)]
        idle = [item.nodeid for item in items if is_async(item)]
        for item in items:
            self.write_declared(item)
        self.write("collected", ids, empty, idle)
        is_plain = not idle and not empty and not self.is_partial
        if self.is_control and is_plain and not may_skip(str(config.rootdir), items):
            items[:] = []

    def write_declared(self, node: Any) -> None:
        """Write down what the file of a test or module says of its tests, in a control run."""
        module = node.nodeid.partition("::")[0]
        if self.is_control and module not in self.read and str(node.fspath).endswith(".py"):
            self.read.add(module)
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                tree = ast.parse(Path(str(node.fspath)).read_bytes())
                self.write("declared", list(declared_in(tree, module)))

    def pytest_runtest_setup(self, item: Any) -> None:
        """Note whether what runs tests is still the same."""
        if tools() != self.tools:
            self.write("changed", item.nodeid)

    def pytest_make_collect_report(self, collector: Any) -> Iterator[None]:
        """Note what cannot be collected, and modules that skip themselves."""
        outcome: Any = yield
        result = outcome.get_result()
        if result.outcome != PASSED:
            self.is_partial = True
            self.write("uncollected", collector.nodeid, result.outcome)
            self.write_declared(collector)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Write down how a phase of a test, or a part of it, ended."""
        result = report.outcome
        if hasattr(report, "wasxfail"):
            result = {SKIPPED: XFAILED, PASSED: XPASSED}.get(result, result)
        self.write("test", report.nodeid, report.when, result)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write down that pytest came to its end."""
        self.write("end", int(exitstatus))


def declared_in(node: Any, name: str) -> Iterator[str]:
    """Yield the ids of what a file skips or expects to fail by a mark without a condition.

    Args:
        node: A module, a class, or a statement with others in it.
        name: Id of the module or class.
    """
    for each in ast.iter_child_nodes(node):
        if isinstance(each, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            own = f"{name}::{each.name}"
            if any(map(is_unconditional, each.decorator_list)):
                yield own
            if isinstance(each, ast.ClassDef):
                yield from declared_in(each, own)
        elif isinstance(each, ast.Assign) and getattr(each.targets[0], "id", "") == "pytestmark":
            marks = (
                each.value.elts if isinstance(each.value, (ast.List, ast.Tuple)) else [each.value]
            )
            if any(map(is_unconditional, marks)):
                yield name
        elif isinstance(each, (ast.If, ast.Try, ast.With)):
            yield from declared_in(each, name)


def is_unconditional(mark: Any) -> bool:
    """Return whether an expression is a mark or decorator by which a test never has to pass."""
    arguments = mark.args if isinstance(mark, ast.Call) else []
    keywords = [each.arg for each in mark.keywords] if isinstance(mark, ast.Call) else []
    mark = mark.func if isinstance(mark, ast.Call) else mark
    holder = getattr(mark, "value", None)
    owner = getattr(holder, "attr", getattr(holder, "id", ""))
    known = (owner, getattr(mark, "attr", getattr(mark, "id", "")))
    if known == ("mark", "xfail"):
        return not arguments and "condition" not in keywords
    return known in UNCONDITIONAL


def has_no_parameter(item: Any) -> bool:
    """Return whether a test stands for an empty set of parameters."""
    spec = getattr(item, "callspec", None)
    values = [*getattr(spec, "params", {}).values(), *getattr(spec, "funcargs", {}).values()]
    return any(type(value).__name__ == "NotSetType" for value in values)


def is_async(item: Any) -> bool:
    """Return whether a test is a coroutine, which pytest alone does not run."""
    function = getattr(item, "obj", None)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def may_skip(root: str, items: list[Any]) -> bool:
    """Return whether any file of the tests has a word by which one is skipped.

    Args:
        root: Folder of the tests; modules that are loaded from it count.
        items: Tests; their own files count.
    """
    folder = os.path.realpath(root) + os.sep
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    names = {os.path.realpath(str(name)) for name in [*loaded, *(item.fspath for item in items)]}
    for name in names:
        if name.startswith(folder) and name.endswith(".py"):
            with open(name, "rb") as file:  # noqa: PTH123
                text = file.read().lower()
            if b"skip" in text or b"xfail" in text:
                return True
    return False


def tools() -> list[Any]:
    """Return the functions by which a test runs and its result comes to be."""
    found = []
    for place, *names in TOOLS:
        holder = sys.modules.get(place)
        for name in names:
            holder = getattr(holder, name, None)
        found += [holder, getattr(holder, "__code__", None)]
    return found


def events_in(text: bytes) -> tuple[list[list[Any]], bool]:
    """Return events up to the first line that is none, and whether that is all."""
    events: list[list[Any]] = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            return events, False
        if not isinstance(event, list) or not event:
            return events, False
        events.append(event)
    return events, True


def events_of(file: IO[bytes], child: int) -> tuple[list[list[Any]], int]:
    """Wait for the child and return what it wrote, as a whole or not at all, and its exit code."""
    _, status = os.waitpid(child, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    file.seek(0)
    events, is_whole = events_in(file.read())
    return events if is_whole else [], code


class Control(NamedTuple):
    """What is known of the tests without the candidate.

    Attributes:
        functions: Tests that were collected, without their parameters.
        skipped: Ids of tests and modules that were skipped or failed as expected.
        passed: Ids of tests that passed.
        declared: Ids of tests, classes and modules that their file skips whatever happens.
        is_whole: Whether pytest came to its end.
    """

    functions: set[str]
    skipped: set[str]
    passed: set[str]
    declared: set[str]
    is_whole: bool


def control_of(events: list[list[Any]]) -> Control:
    """Return what the events of a control run, whole or not, tell."""
    results = results_of(events)
    collected = [event for event in events if event[0] == "collected"]
    skipped = {event[1] for event in events if event[0] == "uncollected" and event[2] == SKIPPED}
    skipped.update(name for event in collected for name in event[2])
    return Control(
        {function_of(name) for event in collected for name in event[1]},
        skipped | {name for name, phases in results.items() if NEITHER & told_in(phases)},
        {name for name, phases in results.items() if has_passed(phases)},
        {name for event in events if event[0] == "declared" for name in event[1]},
        bool(events) and events[-1][0] == "end",
    )


def function_of(test: str) -> str:
    """Return a test's id without its parameters."""
    head, separator, name = test.rpartition("::")
    return head + separator + name.partition("[")[0]


def is_excused(test: str, control: Control, skips: list[str]) -> bool:
    """Return whether a test may be skipped: its row, or its file without a condition, says so."""
    name = function_of(test)
    return any(each in (test, name) or fnmatch.fnmatchcase(test, each) for each in skips) or any(
        name == each or name.startswith(each + "::") for each in control.declared
    )


def collected_in(events: list[list[Any]]) -> tuple[list[str], list[str], list[str]]:
    """Return the ids of all tests, of those without a parameter and of the asynchronous ones."""
    found = [event for event in events if event[0] == "collected"]
    return (found[-1][1], found[-1][2], found[-1][3]) if found else ([], [], [])


def results_of(events: Iterable[list[Any]]) -> dict[str, dict[str, set[str]]]:
    """Return everything that was said of each phase of each test."""
    results: dict[str, dict[str, set[str]]] = {}
    for event in events:
        if event[0] == "test":
            results.setdefault(event[1], {}).setdefault(event[2], set()).add(event[3])
    return results


def told_in(phases: dict[str, set[str]]) -> set[str]:
    """Return everything that was said of a test."""
    return {result for results in phases.values() for result in results}


def has_passed(phases: dict[str, set[str]]) -> bool:
    """Return whether a test passed in all its phases, and nothing else was said of it."""
    return set(phases) == PHASES and told_in(phases) == {PASSED}


def judged(
    events: list[list[Any]],
    code: int,
    control: Control,
    skips: list[str],
    *,
    is_workspace: bool = False,
) -> str:
    """Return why the tests do not pass, or an empty text.

    Args:
        events: What the plugin wrote.
        code: Exit code of the child.
        control: What is known of the tests without the candidate.
        skips: Tests that the row lets be skipped.
        is_workspace: Whether the candidate is all that the tests work on, so that without it a
            test may lack what it tests.
    """
    if code > LAST_CODE or not events or events[-1] != ["end", code]:
        return "the tests ended before they were complete"
    found = _lacking(events, control, skips) if is_workspace else iter(())
    found = chain(found, _failing(events, code), _skipping(events, control, skips, is_workspace))
    return next(found, "")


def _lacking(events: list[list[Any]], control: Control, skips: list[str]) -> Iterator[str]:
    names, _, is_async = collected_in(events)
    results = results_of(events)
    for name in is_async:
        if not has_passed(results.get(name, {})) and not is_excused(name, control, skips):
            yield f"{name} did not pass; {REMEDY}"
    for name in sorted(control.functions - set(map(function_of, names))):
        yield f"{name} was there before the candidate, and was not collected with it"


def _failing(events: list[list[Any]], code: int) -> Iterator[str]:
    if code != OK:
        yield f"pytest ended with exit code {code}"
    for event in events:
        if event[0] == "changed":
            yield f"what runs tests was changed before {event[1]}"
        if event[0] == "uncollected" and event[2] != SKIPPED:
            yield f"{event[1]} was not collected: {event[2]}"
    results = results_of(events)
    for name in collected_in(events)[0]:
        phases = results.get(name, {})
        told = told_in(phases)
        if told - NEITHER - {PASSED, XPASSED}:
            yield f"{name} failed, or failed before it was run again"
        if not told & NEITHER and set(phases) != PHASES:
            yield f"{name} has no complete result"


def _skipping(
    events: list[list[Any]],
    control: Control,
    skips: list[str],
    is_workspace: bool,  # noqa: FBT001
) -> Iterator[str]:
    report = control_of(events)
    unnamed = sorted(name for name in report.skipped if not is_excused(name, control, skips))
    for name in unnamed:
        if is_workspace and name in collected_in(events)[1]:
            yield f"{name} has no parameters: what it tests is not there"
        if name not in control.skipped:
            yield f"{name} was skipped or expected to fail, which the row does not name (skips)"
    is_known = control.is_whole or not is_workspace
    if unnamed and not (is_known and report.passed - control.passed):
        yield f"{unnamed[0]} was skipped, and no test passes that did not without the candidate"
    if not report.passed:
        yield "no test passed"


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it, links resolved."""
    real, parent = os.path.realpath(path), os.path.realpath(folder)
    return real == parent or real.startswith(parent.rstrip("/") + "/")


def package_folders(workspace: str) -> list[str]:
    """Return the interpreter's folders of packages; nothing in them runs, as ``site`` would do."""
    programs = Path(sys.executable).absolute().parent
    prefixes = [sys.prefix]
    for config in (programs / "pyvenv.cfg", programs.parent / "pyvenv.cfg"):
        if config.is_file():
            words = config.read_text(encoding="utf-8", errors="replace").lower().replace(" ", "")
            inherited = [sys.base_prefix] if "include-system-site-packages=true" in words else []
            sys.prefix = sys.exec_prefix = str(programs.parent)
            prefixes = [sys.prefix, *inherited]
            break
    found = site.getsitepackages(prefixes)
    return [folder for folder in found if Path(folder).is_dir() and not is_below(folder, workspace)]


def find_pytest(workspace: str, bundle: str) -> bool:
    """Make sure that pytest comes from the image, or else from the bundle."""
    sys.path[:] = [entry for entry in sys.path if entry and not is_below(entry, workspace)]
    sys.path += [entry for entry in package_folders(workspace) if entry not in sys.path]
    if importlib.util.find_spec("pytest") is None and Path(bundle).is_dir():
        sys.path.insert(0, bundle)
    return importlib.util.find_spec("pytest") is not None


def add_installed(workspace: str) -> None:
    """Do what path files say, after pytest is loaded: first imports, then folders."""
    folders = []
    for packages in package_folders(workspace):
        for file in sorted(Path(packages).glob("*.pth")):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(("import ", "import\t")):
                    with contextlib.suppress(Exception):
                        exec(line)  # noqa: S102  # of the image; no folder of a candidate is in the path
                elif line.strip() and not line.startswith("#"):
                    folders.append(os.path.join(packages, line.rstrip()))  # noqa: PTH118
    sys.path += [each for each in folders if Path(each).exists() and each not in sys.path]


def loaded_files(path: str) -> list[Path]:
    """Return the Python files that pytest loads by their names."""
    start = Path(path)
    if start.is_file():
        beside = start.parent / "conftest.py"
        return [start, *([beside] if beside.is_file() else [])]
    names = ("test_*.py", "*_test.py", "conftest.py")
    return sorted({file for name in names for file in start.rglob(name)})


def uncompiled(files: list[Path]) -> Iterator[str]:
    """Yield the compiler's words for each file that it refuses."""
    for file in files:
        try:
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            place = f"{file}:{getattr(error, 'lineno', None) or 1}"
            yield f"{place}: {type(error).__name__}: {getattr(error, 'msg', None) or error}"


def may_hold_tests(file: Path) -> bool:
    """Return whether a module binds any name that pytest may take for a test."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ClassDef):
            return True
        names = [getattr(node, "name", None), getattr(node, "id", None)]
        names += [getattr(node, "asname", None), getattr(node, "attr", None)]
        for name in names:
            if isinstance(name, str) and (
                name == "*" or name in WRITES_NAMES or name[:4] == "test"
            ):
                return True
    return False


def checked(workspace: str, bundle: str, root: str, path: str, known: str) -> str:
    """Return why the tests cannot judge any candidate, or an empty text."""
    if not Path(path).exists():
        return f"{path} is not there"
    files = loaded_files(path)
    refused = list(uncompiled(files))
    if refused:
        return "\n".join(refused)
    if not any(may_hold_tests(file) for file in files if file.name != "conftest.py"):
        return f"{path} holds no test"
    if not find_pytest(workspace, bundle):
        return "there is no pytest for this python3"
    for name in row_says("plugins", []):
        if plugin_of(name) is None:
            return f"plugins: there is no pytest plugin {name} for this python3"
    with open(known, "w+b") as file, other_workspace(workspace):  # noqa: PTH123
        events, code = observed(file, [workspace, bundle, root, path], is_control=True)
    told = [event for event in events if event[0] == "collected"]
    is_whole = told and not any(event[0] == "uncollected" for event in events)
    if code == NO_TESTS and is_whole and not any(event[1] for event in told):
        return f"{path} holds no test: pytest collects none"
    return ""


@contextlib.contextmanager
def other_workspace(workspace: str) -> Iterator[None]:
    """Give tests an empty folder for the agent's, and take away what they leave in the agent's."""
    before = set(os.listdir(workspace))  # noqa: PTH208
    with tempfile.TemporaryDirectory() as empty:
        os.environ["SECUREBENCH_WORKSPACE"] = empty
        os.chdir(empty)
        try:
            yield
        finally:
            os.chdir(workspace)
            for name in set(os.listdir(workspace)) - before:  # noqa: PTH208
                place = Path(workspace, name)
                if place.is_dir() and not place.is_symlink():
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    place.unlink()


def observed(
    file: IO[bytes], words: list[str], *, is_control: bool = False
) -> tuple[list[list[Any]], int]:
    """Run pytest on a pack's tests in a child, and return what it wrote and its exit code."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            code = run_pack(file, words, is_control=is_control)
        finally:
            flush()
            os._exit(code)
    return events_of(file, child)


def run_pack(file: IO[bytes], words: list[str], *, is_control: bool) -> int:
    """Run pytest with nothing but what the pack gives it, and return its exit code."""
    workspace, bundle, root, path = words
    if not find_pytest(workspace, bundle):
        sys.stderr.write("there is no pytest for this python3\n")
        return FAILED
    plugins = row_says("plugins", [])
    for name in (*AUTHORS_VARIABLES, ROW_VARIABLE):
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest  # noqa: PLC0415 - found only now

    site.setquit()
    add_installed(workspace)
    given = ["-c", os.devnull, "--rootdir", root, "--confcutdir", root]
    given += ["-p", "no:cacheprovider", "--color=no", "-ra"]
    for name in plugins:
        given += ["-p", plugin_of(name) or name]
    own = PytestReport.of(pytest, file, is_control=is_control)
    return int(pytest.main([*given, path], plugins=[own]))


def plugin_of(name: str) -> str | None:
    """Return by which name pytest loads an installed plugin, or None.

    Args:
        name: Of the plugin, its distribution or its package.
    """

    def plain(text: str) -> str:
        return text.lower().replace("-", "_")

    for installed in importlib.metadata.distributions():
        for entry in installed.entry_points:
            module = entry.value.partition(":")[0]
            known = (entry.name, installed.metadata["Name"], module, module.partition(".")[0])
            if entry.group == "pytest11" and plain(name) in map(plain, known):
                return entry.name
    return None


def row_says(name: str, default: Any) -> Any:
    """Return what the row says of its tests under a name."""
    return json.loads(os.environ.get(ROW_VARIABLE) or "{}").get(name, default)


def control_in(known: str) -> Control:
    """Return what a control run left in a file."""
    with contextlib.suppress(OSError):
        return control_of(events_in(Path(known).read_bytes())[0])
    return control_of([])


def flush() -> None:
    """Write out what was printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def ended(why: str, code: int) -> int:
    """Return the exit code of a run, and say why it is no pass."""
    if not why:
        return OK
    flush()
    sys.stderr.write(f"securebench: {why}\n")
    return code if OK < code <= LAST_CODE else FAILED


def run(words: list[str], known: str) -> int:
    """Run a pack's tests and return 0 when they pass."""
    control, skips = control_in(known), row_says("skips", [])
    with tempfile.TemporaryFile() as file:
        events, code = observed(file, words)
    return ended(judged(events, code, control, skips, is_workspace=True), code)


def run_patched(known: str, script: str, arguments: list[str]) -> int:
    """Run pytest on a repository, and give supervise this call's part of the proof on a pass."""
    control, skips = control_in(known), row_says("skips", [])
    share = b""
    with contextlib.suppress(OSError):
        share = os.read(SECRET, -(-PROOF_BYTES // row_says("calls", 1)))
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            for descriptor in (SECRET, ANSWER):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            run_own_python(file, INSIDE, script, arguments)
        events, code = events_of(file, child)
    why = judged(events, code, control, skips)
    with contextlib.suppress(OSError):
        # No proof holds with anything beside it, whatever other calls of the command give.
        os.write(ANSWER, b"\0" if why else share)
    return ended(why, code)


def run_base(known: str, script: str, arguments: list[str]) -> None:
    """Run pytest on a repository before the candidate is there; a part of the report will do."""
    with open(known, "ab") as file:  # noqa: PTH123
        run_own_python(file, CONTROL, script, arguments)


def run_own_python(file: IO[bytes], verb: str, script: str, arguments: list[str]) -> None:
    """Become the interpreter that the command would have started."""
    os.set_inheritable(file.fileno(), True)  # noqa: FBT003  # it takes no name
    options, text = own_words()
    python = interpreter_of(script) if script else [sys.executable, *options]
    try:
        os.execvp(  # noqa: S606
            python[0], [*python, "-c", text, verb, str(file.fileno()), script, *arguments]
        )
    finally:
        os._exit(FAILED)


def own_words() -> tuple[list[str], str]:
    """Return the interpreter's options before ours, and this text, as it stands behind ``-c``."""
    words = [os.fsdecode(word) for word in Path("/proc/self/cmdline").read_bytes().split(b"\0")]
    return words[1 : words.index("-I")], words[words.index("-c") + 1]


def interpreter_of(script: str) -> list[str]:
    """Return the interpreter that the first line of an installed script names, or this one."""
    with contextlib.suppress(OSError, ValueError):
        with open(shutil.which(script) or script, "rb") as file:  # noqa: PTH123
            first, second = (os.fsdecode(file.readline()) for _ in range(2))
        if first.startswith("#!"):
            # A path that is too long for a first line stands in the second, behind exec.
            words = first[2:].split()
            return shlex.split(second[len("'''exec'") :])[:1] if words[0][-3:] == "/sh" else words
    return [sys.executable]


def run_inside(descriptor: str, script: str, arguments: list[str], *, is_control: bool) -> int:
    """Run pytest as its command does, but take it from outside of the repository."""
    for name in (SOURCE_VARIABLE, ROW_VARIABLE):
        os.environ.pop(name, None)
    folder = Path.cwd()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    search = [*([] if script else [str(folder)]), *sys.path[1:]]
    sys.path[:] = [entry for entry in search if not is_below(entry, str(root))]
    try:
        import pytest  # noqa: PLC0415 - found only now
    except ImportError:
        # The repository is pytest's own, or that of a part of it.
        sys.path[:] = search
        import pytest  # noqa: PLC0415
    sys.path[:] = search
    if importlib.util.find_spec("xdist") and not NO_WORKERS & {*arguments, *os.environ}:
        # Tests in processes of their own would report to nobody.
        arguments = [*arguments, "-n0"]
    if is_control:
        # Nothing may stay behind, and no failure ends the run.
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
        arguments = [*arguments, "-p", "no:cacheprovider", "--maxfail=0"]
    sys.argv[:] = [script or str(Path(pytest.__file__).parent / "__main__.py"), *arguments]
    os.set_inheritable(int(descriptor), False)  # noqa: FBT003  # it takes no name
    with open(int(descriptor), "wb", buffering=0) as file:  # noqa: PTH123
        own = PytestReport.of(pytest, file, is_control=is_control)
        return int(pytest.main(arguments, plugins=[own]))


def main(words: list[str]) -> int:
    """Do what the arguments say."""
    verb, *rest = words
    if verb in (INSIDE, CONTROL):
        return run_inside(rest[0], rest[1], rest[2:], is_control=verb == CONTROL)
    if verb in ("base", "base-script"):
        run_base(rest[0], *called(rest[1:], is_script=verb == "base-script"))
    hide_memory()
    if verb in ("patch", "script"):
        return run_patched(rest[0], *called(rest[1:], is_script=verb == "script"))
    if verb == "check":
        return ended(checked(*rest), FAILED)
    return run(rest[:-1], rest[-1])


def called(words: list[str], *, is_script: bool) -> tuple[str, list[str]]:
    """Return the name of pytest's script, empty for the module, and its arguments."""
    return (words[0], words[1:]) if is_script else ("", words)


def hide_memory() -> None:
    """Keep processes of the same user from reading or changing this one, its child included."""
    with contextlib.suppress(Exception):
        import ctypes  # noqa: PLC0415  # not every Python has it

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
