"""Runs the pack's tests with pytest beside a candidate's workspace.

The ``python3`` of a task image gets this text by ``-c``, in isolated mode: standard library of
Python 3.8 only, and nothing else of ours.

``find WORKSPACE BUNDLE`` ends with 0 when there is a pytest. ``run WORKSPACE BUNDLE ROOT PATH``
runs the tests at PATH in a process of its own. That process hands over pytest's result as its last
act; code of the candidate that ends it earlier, with whatever exit code, makes the run fail.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

INCOMPLETE = 1
NOTHING = 1
NONCE_BYTES = 16
AUTHORS_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder or lies below it, links resolved."""
    real, parent = os.path.realpath(path), os.path.realpath(folder)
    return real == parent or real.startswith(parent.rstrip("/") + "/")


def find_pytest(workspace: str, bundle: str) -> bool:
    """Make sure that pytest comes from the image, or else from the bundle.

    An image may have installed its workspace in place; modules from there are never pytest.
    """
    sys.path[:] = [entry for entry in sys.path if entry and not is_below(entry, workspace)]
    if importlib.util.find_spec("pytest") is None and Path(bundle).is_dir():
        sys.path.insert(0, bundle)
    return importlib.util.find_spec("pytest") is not None


def run_tests(workspace: str, bundle: str, root: str, path: str) -> int:
    """Run pytest with nothing but what the pack gives it, and return its exit code."""
    search = list(sys.path)
    if not find_pytest(workspace, bundle):
        sys.stderr.write("there is no pytest for this python3\n")
        return NOTHING
    for name in AUTHORS_VARIABLES:
        os.environ.pop(name, None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest  # noqa: PLC0415 - found only now

    sys.path += [entry for entry in search if entry and entry not in sys.path]
    options: list[str] = ["-c", os.devnull, "--rootdir", root, "--confcutdir", root]
    options += ["-p", "no:cacheprovider", "--color=no", "-ra"]
    return int(pytest.main([*options, path]))


def guarded(arguments: list[str]) -> int:
    """Run the tests in a child and return its result, which must be complete."""
    nonce = os.urandom(NONCE_BYTES)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = run_tests(*arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(writer, nonce + bytes([code]))
        os._exit(code)
    os.waitpid(child, 0)
    os.set_blocking(reader, False)
    try:
        answer = os.read(reader, NONCE_BYTES + 2)
    except BlockingIOError:
        answer = b""
    if len(answer) == NONCE_BYTES + 1 and answer[:NONCE_BYTES] == nonce:
        return answer[NONCE_BYTES]
    sys.stderr.write("the tests ended before they were complete\n")
    return INCOMPLETE


def main(words: list[str]) -> int:
    """Do what the arguments say."""
    if words[0] == "find":
        return 0 if find_pytest(*words[1:]) else NOTHING
    return guarded(words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
