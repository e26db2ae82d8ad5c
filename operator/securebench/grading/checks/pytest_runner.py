"""Runs tests with pytest beside a candidate, and judges by what became of each test.

The ``python3`` of a task image gets this text by ``-c``, in isolated mode and without ``site``:
standard library of Python 3.8 only, and nothing else of ours.

``check WORKSPACE BUNDLE ROOT PATH KNOWN``, before the candidate is there: PATH exists, there is a
pytest, the Python files that pytest loads compile, they hold a test. What can be collected without
the candidate is written to KNOWN. ``run`` with the same words runs the tests. ``patch DECLARED
ARGUMENT…`` runs ``pytest ARGUMENT…`` as the repository's own interpreter does it.

The parent never runs candidate code. Its child writes down what pytest collects and what becomes of
each test; candidate code that the tests import can reach that child, and nothing else.

Source: contract 21.13 to 21.15, docs/reference/checks.md, decision 0020.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import site
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from securebench.grading.checks.pytest_report import LAST_CODE, OK, PytestReport, events_of, judged

FAILED = 1
NO_TESTS = 5
AUTHORS_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")
SOURCE_VARIABLE = "SECUREBENCH_PYTEST"
"""Has this text where a shell puts it on the command line."""
INSIDE = "inside"
SECRET, ANSWER = 3, 4
"""Descriptors of the proof that supervise asks for (docs/reference/protocol.md)."""
PROOF_BYTES = 32
NO_WORKERS = {"no:xdist", "-pno:xdist", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"}
"""Arguments and variables with which pytest-xdist knows no option."""
PR_SET_DUMPABLE = 4
WRITES_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr"}


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
    events, code = observed([workspace, bundle, root, path], "--collect-only")
    told = [event for event in events if event[0] == "collected"]
    if code == NO_TESTS and told and not any(event[0] == "uncollected" for event in events):
        return f"{path} holds no test: pytest collects none"
    if code == OK and told:
        Path(known).write_text(json.dumps(told[-1][1]), encoding="utf-8")
    return ""


def observed(words: list[str], *options: str) -> tuple[list[list[Any]], int]:
    """Run pytest on a pack's tests in a child, and return what it wrote and its exit code."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            code = FAILED
            try:
                code = run_pack(file, words, options)
            finally:
                flush()
                os._exit(code)
        return events_of(file, child)


def run_pack(file: IO[bytes], words: list[str], options: tuple[str, ...]) -> int:
    """Run pytest with nothing but what the pack gives it, and return its exit code."""
    workspace, bundle, root, path = words
    if not find_pytest(workspace, bundle):
        sys.stderr.write("there is no pytest for this python3\n")
        return FAILED
    for name in AUTHORS_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest  # noqa: PLC0415 - found only now

    site.setquit()
    add_installed(workspace)
    given = ["-c", os.devnull, "--rootdir", root, "--confcutdir", root]
    given += ["-p", "no:cacheprovider", "--color=no", "-ra", *options]
    return int(pytest.main([*given, path], plugins=[PytestReport.of(pytest, file, None)]))


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
    before = Path(known)
    names = json.loads(before.read_text(encoding="utf-8")) if before.is_file() else []
    events, code = observed(words)
    return ended(judged(events, code, names), code)


def run_patched(declared: str, arguments: list[str]) -> int:
    """Run pytest on a repository, and give supervise its proof when the tests pass."""
    secret = b""
    with contextlib.suppress(OSError):
        secret = os.read(SECRET, PROOF_BYTES)
        os.close(SECRET)
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(OSError):
                os.close(ANSWER)
            os.set_inheritable(file.fileno(), True)  # noqa: FBT003  # it takes no name
            own = ["-c", own_text(), INSIDE, str(file.fileno()), declared]
            try:
                os.execv(sys.executable, [sys.executable, *own, *arguments])  # noqa: S606
            finally:
                os._exit(FAILED)
        events, code = events_of(file, child)
    why = judged(events, code, [])
    if not why:
        with contextlib.suppress(OSError):
            os.write(ANSWER, secret)
    return ended(why, code)


def own_text() -> str:
    """Return this text, as it stands behind ``-c``."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return words[words.index(b"-c") + 1].decode()


def run_inside(descriptor: str, declared: str, arguments: list[str]) -> int:
    """Run pytest as ``python3 -m pytest`` does, but take it from outside of the repository."""
    os.environ.pop(SOURCE_VARIABLE, None)
    folder = Path.cwd()
    root = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
    search = [str(folder), *sys.path[1:]]
    sys.path[:] = [entry for entry in search if not is_below(entry, str(root))]
    try:
        import pytest  # noqa: PLC0415 - found only now
    except ImportError:
        # The repository is pytest's own, or that of a part of it.
        sys.path[:] = search
        import pytest  # noqa: PLC0415
    sys.path[:] = search
    changed = json.loads(Path(declared).read_text(encoding="utf-8"))["changed"]
    files = {os.path.realpath(root / name) for name in changed}
    if importlib.util.find_spec("xdist") and not NO_WORKERS & {*arguments, *os.environ}:
        # Tests in processes of their own would report to nobody.
        arguments = [*arguments, "-n0"]
    sys.argv[:] = [str(Path(pytest.__file__).parent / "__main__.py"), *arguments]
    os.set_inheritable(int(descriptor), False)  # noqa: FBT003  # it takes no name
    with open(int(descriptor), "wb", buffering=0) as file:  # noqa: PTH123
        return int(pytest.main(arguments, plugins=[PytestReport.of(pytest, file, files)]))


def main(words: list[str]) -> int:
    """Do what the arguments say."""
    verb, *rest = words
    if verb == INSIDE:
        return run_inside(rest[0], rest[1], rest[2:])
    hide_memory()
    if verb == "patch":
        return run_patched(rest[0], rest[1:])
    if verb == "check":
        return ended(checked(*rest), FAILED)
    return run(rest[:-1], rest[-1])


def hide_memory() -> None:
    """Keep processes of the same user from reading or changing this one, its child included."""
    with contextlib.suppress(Exception):
        import ctypes  # noqa: PLC0415  # not every Python has it

        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
