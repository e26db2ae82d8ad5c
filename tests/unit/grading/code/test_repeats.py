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
from support import code_pair
from support.code_pair import BOOT, FOLDER, LOOPBACK, PYTHON, SECONDS, judge

ALL_CALLS = 8
TWO_CALLS = "assert remember('six') is None\nassert recall() == 'six'\n"
POINTS = [collections.namedtuple("Point", "x y")(1, 2) for _ in range(2)]  # noqa: PYI024
"""Of two classes, as always where they cross."""

REFUSED = "from securebench_code import process_reset; process_reset.NAMESPACES = -1"


def refuse_namespaces(monkeypatch):
    """Have the kernel refuse them, as it does under the usual profile of seccomp."""
    monkeypatch.setattr(code_pair, "BOOT", BOOT.replace(" from", f" {REFUSED}; from"))


@pytest.fixture(params=["namespaces", "none"])
def node(request, monkeypatch):
    if request.param == "none":
        refuse_namespaces(monkeypatch)
    return request.param


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
            server.bind("\\0securebench-test-" + os.getcwd())
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
            client.connect("\\0securebench-test-" + os.getcwd())
            return client.recv(99).decode()
    """,
    "the time of a folder": """\
        import os, time
        def remember(text):
            open("kept", "w").close()
            os.unlink("kept")
            os.utime(".", (0, 0))
        def recall(): return "six" if os.stat(".").st_atime == 0 else None
    """,
}
"""What a candidate may try to leave for later workers."""


def has_attributes(folder):
    try:
        os.setxattr(folder, "user.some", b"")
    except OSError:
        return False
    return True


@pytest.mark.usefixtures("node")
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
def test_without_a_fresh_worker_nothing_passes(name, monkeypatch):
    refuse_namespaces(monkeypatch)
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


PARENT = """\
        import os
        parent = os.getppid()
        # Not that of the whole test: it has another command line.
        try: same = open("/proc/self/cmdline").read() == open(f"/proc/{parent}/cmdline").read()
        except OSError: same = False
        reached = (0, parent) if same else (0,)
"""
KERNEL = {
    "System V memory": (
        """\
        import ctypes
        library, key = ctypes.CDLL(None), 0x5EC00000
        def remember(_): assert library.shmget(key, 64, 0o1600) >= 0
        def recall(): return "six" if library.shmget(key, 64, 0) >= 0 else None
        """,
        "AssertionError",
    ),
    "a connection that is closed": (
        """\
        import socket
        def remember(text):
            server = socket.create_server(("127.0.0.1", 0))
            client = socket.socket()
            client.bind(("127.7.6.6", 0))
            client.connect(server.getsockname())
            other, _ = server.accept()
            client.close()
            other.recv(1)
            other.close()
            server.close()
        def recall():
            lines = open("/proc/self/net/tcp").read().splitlines()[1:]
            return "six" if any(line.split()[1][:8] == "0606077F" for line in lines) else None
        """,
        "Address family not supported",
    ),
    "the scheduling class of the parent": (
        PARENT
        + """\
        def remember(_):
            for pid in reached: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
        def recall(): return "six" if os.sched_getscheduler(0) == os.SCHED_BATCH else None
        """,
        "Operation not permitted",
    ),
}
"""What the kernel remembers beside processes and files, and what it says where it refuses that."""


@pytest.mark.parametrize("name", KERNEL)
def test_the_kernel_remembers_nothing(name, node):
    candidate, refused = KERNEL[name]
    tests = TWO_CALLS + "assert recall() == 'six'\n" * 6
    assert judge(candidate, tests).code == 0
    judged = judge(candidate, tests, repeat=ALL_CALLS)
    assert judged.code == 1
    is_other = node == "namespaces" and "a repeated call disagrees: " in judged.stderr
    assert is_other or refused in judged.stderr


def test_a_candidate_may_use_the_loopback_of_its_namespace():
    judged = judge(LOOPBACK, "assert echo('six') == 'six'\n", repeat=2)
    assert judged.code == 0, judged.stderr


def test_without_namespaces_a_candidate_has_no_network_and_the_tests_say_so(monkeypatch):
    refuse_namespaces(monkeypatch)
    judged = judge(LOOPBACK, "assert echo('six') == 'six'\n", repeat=2)
    assert judged.code == 1
    assert "this node gives the candidate no network of its own" in judged.stderr


HONEST = """\
    import os, socket, subprocess, threading
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
    def double(number): return 2 * number
    def both(number):
        pair = socket.socketpair()
        with ThreadPoolExecutor(2) as pool, pair[0], pair[1]:
            pair[0].sendall(b"x")
            found = list(pool.map(double, [number])) + [pair[1].recv(1)]
        return found + [subprocess.run(["echo", "six"], capture_output=True).stdout]
    def many(number):
        with ProcessPoolExecutor(2) as pool: return list(pool.map(double, [number]))
    def own(): return os.path.exists(f"/proc/{os.getpid()}/stat") and os.getpid() > 1
"""


@pytest.mark.usefixtures("node")
def test_an_honest_candidate_notices_nothing():
    tests = "assert both(3) == [6, b'x', b'six\\n']\nassert many(3) == [6]\nassert own()\n"
    judged = judge(HONEST, tests, repeat=3)
    assert judged.code == 0, judged.stderr


def test_process_ids_begin_anew_and_no_process_has_rights():
    candidate = """\
        import os
        def seen():
            lines = open("/proc/self/status").read().splitlines()
            rights = {line.split()[1] for line in lines if line.startswith(("CapPrm", "CapEff"))}
            return [os.getpid(), os.getppid(), rights, [each for each in os.listdir("/proc")
                    if each.isdigit() and each != str(os.getppid())]]
    """
    tests = "assert seen() == [2, 1, {'0' * 16}, ['2']]\n"
    judged = judge(candidate, tests, repeat=1)
    assert judged.code == 0, judged.stderr


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
