"""F3: what candidate code writes to the socket is checked, bounded and never believed."""

from __future__ import annotations

import pickle
import re

import pytest

from support.code_pair import judge
from threats.candidate_code.local_judging import (
    ANSWER,
    BROKEN,
    CHANNEL,
    INCOMPLETE,
    cases,
    naive,
    weaken_runner,
)
from threats.honest import RIGHT_CODE

EARLY = {
    "exit at import": "import sys\nsys.exit(0)\n",
    "hard exit at import": "import os\nos._exit(0)\n",
    "exit in a call": "import sys\ndef answer(_): sys.exit(0)\n",
    "hard exit in a call": "import os\ndef answer(_): os._exit(0)\n",
    "exit in a thread": """\
        import os, threading, time
        def answer(_):
            threading.Thread(target=os._exit, args=(0,)).start()
            time.sleep(10)
        """,
    "another program": "import os\ndef answer(_): os.execv('/bin/true', ['true'])\n",
    "exit on the way out": "import atexit, os, sys\natexit.register(os._exit, 0)\nsys.exit()\n",
}
ENDED = re.compile(f"{INCOMPLETE}|attempted to exit during import")


@pytest.mark.parametrize("name", cases(EARLY, "hard exit in a call"))
def test_a_040_attack_by_its_own_end(name):
    judged = judge(EARLY[name], ANSWER)
    assert judged.code == 1
    assert ENDED.search(judged.stderr), judged.stderr


@pytest.mark.parametrize("name", EARLY)
def test_a_040_twin_by_its_own_end(name):
    assert naive(EARLY[name], ANSWER).code == 0


def test_a_040_honest_exit_that_the_tests_expect():
    candidate = "import sys\ndef stop(code): sys.exit(code)\n"
    tests = """\
        try: stop(3)
        except Exception as error: assert (type(error).__name__, error.code) == ("SystemExit", 3)
        else: raise AssertionError
    """
    assert judge(candidate, tests).code == 0


FRAMES = {
    "guessed": "def answer(_):\n    send(forged(42))\n    return 7\n",
    "doubled": "def answer(_):\n    send(forged(42, asked()))\n    return 7\n",
    "flood": "def answer(_):\n    for _ in range(5000): send(forged(42))\n    return 7\n",
    "early": "send(forged([]))\ndef answer(_): return 42\n",
    "late": """\
import threading, time
def answer(_):
    threading.Timer(0.1, send, [forged(42)]).start()
    return 42
""",
    "all passed": 'def answer(_): send(b\'["passed", {"passed": true, "code": 0}]\')\n',
    "no array": "def answer(_): send(b'{\"passed\": true}')\n",
    "a report": 'def answer(_): channel().sendall(b"\\n1 passed in 0.01s\\n" * 9)\n',
    "oversized": 'def answer(_): channel().sendall(b"\\xff" * 64)\n',
    "half": 'def answer(_):\n    channel().sendall(b"\\0\\0\\0\\x63[")\n    os._exit(0)\n',
    "no kind": "def answer(_): send(json.dumps([asked(), [], [], [], 42]).encode())\n",
    "another length": 'def answer(_): send(json.dumps([asked(), "return", 42, []]).encode())\n',
    "a value of no kind": 'def answer(_): send(forged(["system", "true"], asked()))\n',
}
LATER = "import time\ntime.sleep(0.5)\n"


@pytest.mark.parametrize("name", cases(FRAMES, "guessed"))
def test_a_048_attack(name):
    judged = judge(CHANNEL + FRAMES[name], ANSWER + (LATER if name == "late" else ""))
    assert judged.code == 1
    wanted = INCOMPLETE if name == "half" else BROKEN
    assert wanted in judged.stderr
    assert "Traceback" not in judged.stderr, "the runner crashed"


@pytest.mark.parametrize("name", ["guessed", "doubled", "flood"])
def test_a_048_twin(monkeypatch, name):
    weaken_runner(
        monkeypatch,
        "import securebench_code.session as s; s.new_identity = lambda: '0' * 32",
    )
    assert judge(CHANNEL + FRAMES[name], ANSWER).code == 0


def test_a_048_honest():
    candidate = """\
        import os, threading
        def answer(number):
            print("1 passed in 0.01s", flush=True)
            os.write(2, b"all passed")
            done = []
            thread = threading.Thread(target=lambda: done.append(number * 7))
            thread.start(), thread.join()
            return done[0]
    """
    assert judge(candidate, ANSWER).code == 0


MEGABYTE = 1024 * 1024
PEAK_BYTES = 64 * MEGABYTE
"""What the tests' process may take when a hostile candidate answers."""
MEASURED = """\
import os, re, sys
def measured(code, end=os._exit):
    peak = re.search("VmHWM:\\\\s+([0-9]+)", open("/proc/self/status").read())
    sys.__stderr__.write("peak=%d\\n" % (int(peak[1]) * 1024))
    sys.__stderr__.flush()
    end(code)
os._exit = measured
"""


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self):
        return (open, (self._path, "w"))


VALUES = {
    "a long text": "def answer(_): return 'x' * 100_000_000\n",
    "a long frame": "def answer(_): send(b'x' * 100_000_000)\n",
    "a long header": "def answer(_): channel().sendall(b'\\xff' * 64)\n",
    "deep JSON": "def answer(_): send(b'[' * 1_000_000 + b']' * 1_000_000)\n",
    "a deep list": """\
def answer(_):
    deep = []
    for _ in range(50_000): deep = [deep]
    return deep
""",
    "a lone surrogate": "def answer(_): return '\\ud800'\n",
    "a number of a million digits": "def answer(_): return 10 ** 1_000_000\n",
    "many names": "globals().update((f'name{number}', number) for number in range(100_000))\n",
    "a long name": "globals()['x' * 50_000_000] = 1\n",
    "a long error": "def answer(_): raise ValueError('x' * 100_000_000)\n",
    "a long print": "def answer(_):\n    for _ in range(100): print('x' * 1_000_000)\n",
}


def peak_of(stderr: str) -> int:
    return int(stderr.rpartition("peak=")[2])


def hostile(name: str) -> str:
    return CHANNEL + VALUES[name]


@pytest.mark.parametrize("name", cases(VALUES, "a long text"))
def test_a_056_attack(monkeypatch, name):
    weaken_runner(monkeypatch, MEASURED)
    judged = judge(hostile(name), ANSWER)
    assert judged.code == 1
    assert peak_of(judged.stderr) < PEAK_BYTES


@pytest.mark.parametrize("name", ["a long text", "a long frame"])
def test_a_056_twin(monkeypatch, name):
    unbounded = "import securebench_code.frames as f; f.MESSAGE_BYTES = 1 << 31\n"
    weaken_runner(monkeypatch, unbounded + MEASURED)
    judged = judge(hostile(name), ANSWER)
    assert peak_of(judged.stderr) > PEAK_BYTES


PICKLED = {
    "a frame": "def answer(_): send(DATA)\n",
    "a value": "def answer(_): return DATA\n",
    "an argument": "def answer(_): raise ValueError(DATA)\n",
}


@pytest.mark.parametrize("name", PICKLED)
def test_a_056_attack_by_pickle(tmp_path, name):
    marker = tmp_path / "marker"
    data = f"DATA = {pickle.dumps(Touch(str(marker)), protocol=0)!r}\n"
    judged = judge(CHANNEL + data + PICKLED[name], ANSWER)
    assert judged.code == 1
    assert not marker.exists()


def test_a_056_twin_by_pickle(tmp_path):
    """A naive reader of the very bytes makes the marker."""
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(Touch(str(marker)), protocol=0)).close()  # noqa: S301
    assert marker.exists()


def test_a_056_honest():
    candidate = """\
        def long(size): return "x" * size
        def huge(digits): return 10 ** digits
        def deep(levels):
            value = []
            for _ in range(levels): value = [value]
            return value
        def odd(): return "\\ud800", b"\\x80\\x04N.", float("inf")
    """
    tests = """\
        assert len(long(5_000_000)) == 5_000_000
        assert huge(20_000) == 10 ** 20_000
        value = deep(100)
        for _ in range(100): (value,) = value
        assert value == []
        assert odd() == ("\\ud800", b"\\x80\\x04N.", float("inf"))
    """
    assert judge(candidate, tests).code == 0
    assert judge(RIGHT_CODE, ANSWER).code == 0
