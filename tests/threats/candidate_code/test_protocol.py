"""F3: what candidate code writes to the socket is bounded, and nothing of it is unpickled."""

from __future__ import annotations

import pickle

import pytest

from support.code_pair import judge, runs_first
from threats.honest import RIGHT_CODE
from threats.kit.local_judging import (
    ANSWER,
    CHANNEL,
    cases,
)

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
def test_a_056_attack(name):
    with runs_first(MEASURED):
        judged = judge(hostile(name), ANSWER)
    assert judged.code == 1
    assert peak_of(judged.stderr) < PEAK_BYTES


@pytest.mark.parametrize("name", ["a long text", "a long frame"])
def test_a_056_twin(name):
    unbounded = "import securebench_code.frames as f; f.MESSAGE_BYTES = 1 << 31\n"
    with runs_first(unbounded + MEASURED):
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
