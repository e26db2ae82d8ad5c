"""Candidate and tests in one interpreter, as supervise starts it."""

import textwrap

import pytest

from support.code_pair import SECRET, judge_shared

WRONG = "def f(): return 7\n"
RIGHT = "def f(): return 42\n"
TEST = "assert f() == 42\n"
INCOMPLETE = "hidden tests did not complete"
EXITED = "candidate attempted to exit during import"


def shared(candidate, tests=TEST, declared=""):
    """Return exit code, whether the secret came back, and what was printed."""
    code, answer, stdout, stderr = ended(candidate, tests, declared)
    return code, answer == SECRET, stdout, stderr


def ended(candidate, tests=TEST, declared=""):
    """Return exit code, what came back for the secret, and what was printed."""
    judged = judge_shared(candidate, tests, declared=declared)
    return judged.code, judged.answer, judged.stdout, judged.stderr


ACCOUNT = """
class Account:
    def __init__(self, owner): self.owner = owner
    def __eq__(self, other): return isinstance(other, Account) and self.owner == other.owner
    def fee(self): return 1
def rate(): return 3
def interest(): return rate()
"""
LIVE = {
    "the tests derive from its class": """
        class Costly(Account):
            def fee(self): return 5
        assert isinstance(Costly("a"), Account) and Costly("a").fee() == 5
    """,
    "its objects are pickled": """
        import pickle
        assert pickle.loads(pickle.dumps(Account("a"))) == Account("a")
    """,
    "its module is patched": """
        import securebench_candidate
        from unittest import mock
        with mock.patch.object(securebench_candidate, "rate", lambda: 7):
            assert interest() == 7
        assert interest() == 3
    """,
    "an object of the tests is passed": """
        class Own: owner = "x"
        assert Account(Own).owner is Own
    """,
    "the module has the tests' name": "assert __name__ == '__securebench_tests__'",
}


@pytest.mark.parametrize("name", LIVE)
def test_live_objects(name):
    assert shared(ACCOUNT, LIVE[name]) == (0, True, "", "")


def test_output_is_kept():
    code, _, stdout, _ = shared("def f(): print('in f'); return 42", TEST + "print('end')")
    assert (code, stdout) == (0, "in f\nend\n")


FAILURES = {
    "wrong": (WRONG, TEST, "AssertionError"),
    "raises": ("def f(): raise KeyError('k')", TEST, "KeyError: 'k'"),
    "no such name": ("g = 1", TEST, "NameError"),
    "raises at import": ("1 / 0", TEST, "ZeroDivisionError"),
    "is no Python": ("def", TEST, "SyntaxError"),
    "exits at import": ("import sys; sys.exit(0)", TEST, EXITED),
    "exits": ("import sys\ndef f(): sys.exit(0)", TEST, INCOMPLETE),
    "exits by an exception of its own": (
        "class Own(SystemExit): pass\ndef f(): raise Own(0)", TEST, INCOMPLETE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_failure(name):
    candidate, tests, want = FAILURES[name]
    code, is_complete, _, stderr = shared(candidate, tests)
    assert (code, is_complete) == (1, True)
    assert want in stderr


EARLY = {
    "hard exit at import": "import os; os._exit(0)",
    "hard exit": "import os\ndef f(): os._exit(0)",
    "hard exit in a thread": """
        import os, threading
        def f():
            threading.Thread(target=os._exit, args=(0,)).start()
            threading.Event().wait()
    """,
    "killed": "import os\ndef f(): os.kill(os.getpid(), 9)",
    "replaced": "import os\ndef f(): os.execv('/bin/true', ['true'])",
    "the secret is not known": "import os\nos.write(4, b'0' * 32)\ndef f(): os._exit(0)",
}


@pytest.mark.parametrize("name", EARLY)
def test_who_ends_early_gives_no_secret_back(name):
    assert shared(EARLY[name])[1] is False


TAMPERING = {
    "exec": "import builtins\nbuiltins.exec = lambda *_: None",
    "compile": "import builtins\nbuiltins.compile = lambda *_: (lambda: 0).__code__",
    "AssertionError": "import builtins\nbuiltins.AssertionError = type('No', (Exception,), {})",
    "abs": "import builtins\nbuiltins.abs = lambda _: 0",
    "abs of its own": "abs = lambda _: 0",
    "isinstance": "import builtins\nbuiltins.isinstance = lambda *_: True",
    "trace": """
        import sys
        def skip(frame, *_):
            if frame.f_code.co_filename == "solution_test.py":
                frame.f_lineno = 2
            return skip
        sys.settrace(skip)
    """,
}


@pytest.mark.parametrize("name", TAMPERING)
def test_replaced_parts_of_python(name):
    tests = "assert abs(f() - 42) < 1 and isinstance(f(), int)\n0\n"
    code, _, _, stderr = shared(textwrap.dedent(TAMPERING[name]) + "\n" + WRONG, tests)
    assert code == 1
    assert "AssertionError" in stderr
    assert shared(RIGHT, tests)[:2] == (0, True)


def test_assertions_that_hold_no_more():
    """The tests' own code is changed: what must fail does not fail any more."""
    candidate = """
        import gc, sys
        def f():
            shared = sys.modules["securebench_code.shared"]
            shared.MUST_FAIL = shared.MUST_HOLD
            return 42
    """
    code, is_complete, _, stderr = shared(candidate)
    assert (code, is_complete) == (1, True)
    assert "an assertion that must fail does not" in stderr


def test_declared_name_is_the_candidates():
    assert shared("def sum(a, b): return 42", "assert sum(1, 2) == 42", "sum")[0] == 0
    assert shared("def sum(a, b): return 42", "assert sum(1, 2) == 42")[0] == 1


def test_children_have_no_way_to_answer():
    candidate = """
        import subprocess, sys
        def f():
            code = "import os; os.write(4, b'0')"
            call = [sys.executable, "-c", code]
            done = subprocess.run(call, capture_output=True, close_fds=False)
            return 42 if done.returncode else 7
    """
    assert shared(candidate)[:2] == (0, True)


def test_threads_and_exit_functions_have_no_say():
    candidate = """
        import atexit, os, threading
        atexit.register(os._exit, 1)
        threading.Thread(target=threading.Event().wait).start()
        def f(): return 42
    """
    assert shared(candidate)[:2] == (0, True)
