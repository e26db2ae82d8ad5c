"""Calls that are made again: what is compared, and that no worker finds anything of another."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import math
import os
import subprocess
from functools import partial

import pytest

from securebench.grading.code import samples
from securebench.grading.code.samples import NotPlainError, Sample, form_of, outcome_of
from support.code_pair import BOOT, FOLDER, PYTHON, SECONDS, judge

ALL_CALLS = 8
TWO_CALLS = "assert remember('six') is None\nassert recall() == 'six'\n"
POINTS = [collections.namedtuple("Point", "x y")(1, 2) for _ in range(2)]  # noqa: PYI024
"""Of two classes, as always where they cross."""

ATTRIBUTE = "an attribute of the folder"
LEFT = {
    "a file": """\
        def remember(text):
            with open("kept", "w") as file: file.write(text)
        def recall(): return open("kept").read()
    """,
    "a file in a closed folder": """\
        import os
        def remember(text):
            os.makedirs("a/b")
            with open("a/b/kept", "w") as file: file.write(text)
            os.chmod("a/b", 0)
            os.chmod("a", 0)
        def recall():
            os.chmod("a", 0o700)
            os.chmod("a/b", 0o700)
            return open("a/b/kept").read()
    """,
    "the name of a link": """\
        import os
        def remember(text): os.symlink("nowhere", text)
        def recall(): return next(name for name in os.listdir() if len(name) == 3)
    """,
    ATTRIBUTE: """\
        import os
        def remember(text): os.setxattr(".", "user.kept", text.encode())
        def recall(): return os.getxattr(".", "user.kept").decode()
    """,
    "a process of its own": """\
        import os, socket
        def remember(text):
            server = socket.socket(socket.AF_UNIX)
            server.bind("\\0securebench-test-" + str(os.getppid()))
            server.listen(8)
            if os.fork() == 0:
                os.setsid()
                try:
                    if os.fork() == 0:
                        server.settimeout(5)
                        while True: server.accept()[0].sendall(text.encode())
                finally: os._exit(0)
            server.close()
        def recall():
            client = socket.socket(socket.AF_UNIX)
            client.connect("\\0securebench-test-" + str(os.getppid()))
            return client.recv(99).decode()
    """,
}
"""What a candidate may try to leave for later workers."""


def has_attributes(folder):
    try:
        os.setxattr(folder, "user.some", b"")
    except OSError:
        return False
    return True


@pytest.mark.parametrize("name", LEFT)
def test_nothing_is_left_for_later_workers(name, tmp_path):
    if name == ATTRIBUTE and not has_attributes(tmp_path):
        pytest.skip("the file system has no attributes")
    # Many times, because the two calls are made again in either order.
    tests = TWO_CALLS + "assert recall() == 'six'\n" * 6

    assert judge(LEFT[name], tests).code == 0
    judged = judge(LEFT[name], tests, repeat=ALL_CALLS)
    assert judged.code == 1
    assert "a repeated call disagrees: recall()" in judged.stderr


IMPOSTOR = """\
    import os, socket, threading
    def remember(text):
        # The first worker stays, and takes the path where workers answer.
        global kept
        kept = text
        path = os.path.join(os.path.dirname(os.getcwd()), "s")
        os.unlink(path)
        server = socket.socket(socket.AF_UNIX)
        server.bind(path)
        server.listen(9)
        threading.Thread(target=server.accept).start()
    def recall(): return kept
"""


def test_a_worker_cannot_stand_in_for_the_next():
    assert judge(IMPOSTOR, TWO_CALLS).code == 0
    judged = judge(IMPOSTOR, TWO_CALLS, repeat=ALL_CALLS)
    assert judged.code == 1
    assert "a repeated call disagrees: " in judged.stderr


ENDS = {
    "the parent is killed": "os.kill(parent, signal.SIGKILL)",
    "a limit of the parent is changed": "resource.prlimit(parent, resource.RLIMIT_CORE, (6, 66))",
}


@pytest.mark.parametrize("name", ENDS)
def test_without_a_fresh_worker_nothing_passes(name):
    candidate = f"""\
        import os, resource, signal
        parent = os.getppid()
        # Not that of the whole test: it has another command line.
        assert open("/proc/self/cmdline").read() == open(f"/proc/{{parent}}/cmdline").read()
        def double(number):
            {ENDS[name]}
            return 2 * number
    """
    tests = "assert double(3) == 6\n"

    judged = judge(candidate, tests, repeat=1)
    assert judged.code == 1
    assert "a repeated call disagrees: double(3)" in judged.stderr


def test_memory_of_the_pod_does_not_last():
    candidate = """\
        import ctypes
        library, key = ctypes.CDLL(None), 0x5EC00000
        def remember(_): assert library.shmget(key, 64, 0o1600) >= 0
        def recall(): return "six" if library.shmget(key, 64, 0) >= 0 else None
    """
    tests = TWO_CALLS + "assert recall() == 'six'\n" * 6
    assert judge(candidate, tests).code == 0
    judged = judge(candidate, tests, repeat=ALL_CALLS)
    assert judged.code == 1
    assert "a repeated call disagrees: " in judged.stderr


AGREEING = {
    "order of a set": (
        "def words(text): return list(set(text.split()))\n",
        "assert sorted(words('a b c d e f g')) == list('abcdefg')\n",
    ),
    "not a number": ("def no(): return [float('nan')]\n", "assert no()[0] != no()[0]\n"),
    "an exception": (
        "class Odd(Exception): pass\ndef odd(): raise Odd(id(object()))\n",
        "for _ in range(2):\n    try: odd()\n    except Exception: pass\n",
    ),
    "changes in place": (
        "def order(data): data.sort()\n",
        "data = [2, 1]\norder(data)\nassert data == [1, 2]\n",
    ),
    "output": ("def tell(): print('told')\n", "tell()\ntell()\n"),
}


@pytest.mark.parametrize("name", AGREEING)
def test_honest_calls_agree(name):
    judged = judge(*AGREEING[name], repeat=ALL_CALLS)
    assert judged.code == 0
    assert " repeated calls agree" in judged.stderr
    assert "securebench: 0 " not in judged.stderr
    assert judged.stdout.count("told") == AGREEING[name][1].count("tell")


DISAGREEING = {
    "a value": "return 1 if calls > 1 else 0",
    "the type of a value": "return 1 if calls > 1 else 1.0",
    "an exception": "return None if calls > 1 else 1 / 0",
    "the class of an exception": "raise KeyError if calls > 1 else ValueError",
    "changes in place": "data.append(calls)",
}


@pytest.mark.parametrize("name", DISAGREEING)
def test_a_difference_fails(name):
    candidate = (
        f"calls = 0\ndef act(data):\n    global calls\n    calls += 1\n    {DISAGREEING[name]}\n"
    )
    tests = "for _ in range(2):\n    try: act([])\n    except Exception: pass\n"

    assert judge(candidate, tests).code == 0
    judged = judge(candidate, tests, repeat=2)
    assert judged.code == 1
    assert "a repeated call disagrees: act([])" in judged.stderr


PLAIN = "def double(number): return 2 * number\n", "assert double(2) == 4\n"
NOT_DRAWN = {
    "a function of the tests": ("def act(function): return function()\n", "act(lambda: 1)\n"),
    "an iterator of the tests": ("def act(items): return list(items)\n", "act(iter([1]))\n"),
    "an object of a class": ("class A: pass\n", "A()\n"),
    "a method": ("class A:\n    def act(self): return 1\n", "assert A().act() == 1\n"),
    "a call within a call": (
        "def inner(): return 1\ndef act(function): return function()\n",
        "assert act(lambda: inner()) == 1\n",
    ),
}


@pytest.mark.parametrize("name", NOT_DRAWN)
def test_what_the_tests_bring_keeps_a_call_from_being_made_again(name):
    candidate, tests = (one + other for one, other in zip(NOT_DRAWN[name], PLAIN, strict=True))
    judged = judge(candidate, tests, repeat=ALL_CALLS)
    assert judged.code == 0
    assert "securebench: 1 repeated calls agree" in judged.stderr


@pytest.mark.parametrize("name", NOT_DRAWN)
def test_nothing_drawn_is_no_agreement(name):
    judged = judge(*NOT_DRAWN[name], repeat=ALL_CALLS)
    assert judged.code == 1
    assert "no call could be made again" in judged.stderr


UNCOMPARED = {
    "a generator": ("def act():\n    yield 1\n", "assert list(act()) == [1]\n"),
    "an object": ("class A: pass\ndef act(): return A()\n", "act()\n"),
    "a changed argument": ("def act(data): data.append(act)\n", "act([])\n"),
    "too many items": ("def act(): return [0] * 100_001\n", "act()\n"),
    "an object as argument": (
        "class A: pass\ndef act(value): return 1\n",
        "assert act(A()) == 1\n",
    ),
    "a class in place of a function": (
        "class A: pass\nclass act:\n    def __new__(cls): return [A()]\n",
        "act()\n",
    ),
}


@pytest.mark.parametrize("name", UNCOMPARED)
def test_calls_that_cannot_be_compared_fail(name):
    candidate, tests = UNCOMPARED[name]
    assert judge(candidate, tests).code == 0
    judged = judge(candidate, tests, repeat=1)
    assert judged.code == 1
    assert "a repeated call cannot be compared: act(" in judged.stderr


def test_a_class_in_place_of_a_function_is_made_again():
    candidate = (
        "answers = iter([3, 7])\nclass total:\n    def __new__(cls, data): return next(answers)\n"
    )
    tests = "assert total([1, 2]) == 3 and total([3, 4]) == 7\n"
    assert judge(candidate, tests).code == 0
    assert "a repeated call disagrees" in judge(candidate, tests, repeat=2).stderr


def test_tests_that_fail_make_no_call_again():
    judged = judge("def act(): return 1\n", "assert act() == 2\n", repeat=1)
    assert judged.code == 1
    assert "repeated" not in judged.stderr


def test_the_sample_is_drawn_from_all_calls():
    function = object()
    drawn = collections.Counter()
    for _ in range(200):
        sample = Sample(2)
        sample.know({"act": function})
        for number in range(10):
            assert (
                sample.watch(partial(int, -number), function, [number], {}, in_place=False)
                == -number
            )
        calls = sample.calls()
        assert len(calls) == 2
        drawn.update(call.arguments[0] for call in calls)

    assert set(drawn) == set(range(10))
    assert max(drawn.values()) < 80  # 40 are expected


def test_arguments_are_those_before_the_call():
    function, data = object(), [1]
    sample = Sample(1)
    sample.know({"act": function})

    sample.watch(data.clear, function, [data], {"key": data}, in_place=False)

    (call,) = sample.calls()
    assert (call.arguments, call.names) == ([[1]], {"key": [1]})
    assert call.told() == "act([1], key=[1])"
    assert call.outcome == outcome_of(None, None, ([[]], {"key": []}))


def test_long_calls_are_told_in_one_line():
    call = samples.Call("act", ["x" * 10_000, "\n"], {}, "")
    assert len(call.told()) < 300
    assert "\n" not in samples.Call("act", ["\n"], {}, "").told()
    assert samples.Call("act", [10**5000], {}, "").told() == "act(...)"


SAME = {
    "nan": ([math.nan, {math.nan}], [float("nan"), {float("nan")}]),
    "sets": ({"a", "b", 3}, {3, "b", "a"}),
    "dictionaries": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "named tuples": POINTS,
    "large": (10**5000, 10**5000),
    "decimals": (decimal.Decimal("1.50"), decimal.Decimal("1.50")),
    "dates": (dt.date(2020, 1, 2), dt.date(2020, 1, 2)),
}
OTHER = {
    "types": (1, True),
    "numbers": (1, 1.0),
    "containers": ([1], (1,)),
    "order": ([1, 2], [2, 1]),
    "ordered": (
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(b=2, a=1),
    ),
    "text": (["a', 'b"], ["a", "b"]),
    "nesting": ([[1], 2], [[1, 2]]),
    "decimals": (decimal.Decimal("1.5"), decimal.Decimal("1.50")),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_values_have_the_same_form(name):
    one, two = SAME[name]
    assert form_of(one) == form_of(two)


@pytest.mark.parametrize("name", OTHER)
def test_other_values_have_another_form(name):
    one, two = OTHER[name]
    assert form_of(one) != form_of(two)


def cyclic() -> list[object]:
    result: list[object] = []
    result.append(result)
    return result


def wide() -> list[object]:
    result: list[object] = []
    for _ in range(60):
        result = [result, result]
    return result


@pytest.mark.parametrize(
    "value",
    [object(), iter([]), len, cyclic(), wide()],
    ids=["object", "iterator", "function", "cyclic", "wide"],
)
def test_what_is_not_plain_has_no_form(value):
    with pytest.raises(NotPlainError):
        form_of(value)


def test_a_worker_that_cannot_begin_makes_no_socket(tmp_path):
    """supervise waits for it in vain, and the launch is repeated: no candidate is to blame."""
    (tmp_path / "securebench_code").symlink_to(FOLDER / "code")
    lacking = f"import sys; sys.modules['ctypes'] = None; {BOOT}"
    words = [str(tmp_path), "worker", str(tmp_path / "s"), str(tmp_path), "2", str(tmp_path)]
    done = subprocess.run(
        [PYTHON, "-I", "-B", "-c", lacking, *words],
        stderr=subprocess.PIPE, check=False, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert (done.returncode, "ctypes" in done.stderr) == (1, True), done.stderr
    assert not (tmp_path / "s").exists()
