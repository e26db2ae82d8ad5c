"""Target: what a candidate's process may send to the tests' process on their socket."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import collections
import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

from fuzz.loop import HangError, Target
from securebench.grading.code.frames import HEADER, BrokenError, CannotCrossError, Channel
from securebench.grading.code.handles import HandleType
from securebench.grading.code.session import Session

IDENTITY = b"$ID"
"""Stands in an input for the identity of the request that is open."""

RAW = b"!"
"""Begins a line of an input that is sent as it is, not as a message."""

POKED = 6


class Wire:
    """A socket whose other end says what the input says, a message per line."""

    def __init__(self, data: bytes) -> None:
        self._lines = iter(data.split(b"\n"))
        self._identity = b""
        self._ready = b""

    def sendall(self, data: bytes) -> None:
        self._identity = json.loads(data[HEADER.size :])[0].encode()

    def recv(self, size: int) -> bytes:
        if not self._ready:
            self._ready = self._next(next(self._lines, b""))
        data, self._ready = self._ready[:size], self._ready[size:]
        return data

    def _next(self, line: bytes) -> bytes:
        if line.startswith(RAW) or not line:
            return line[1:]
        content = line.replace(IDENTITY, self._identity)
        return HEADER.pack(len(content)) + content


def check(data: bytes, _root: Path) -> None:
    session = Session(Channel(Wire(data)))
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        try:
            names = answered(lambda: session.import_candidate(b"")) or []
            for name, value in names[:POKED]:
                assert name.isidentifier()
                walk(value)
                walk(answered(lambda value=value: session.request("call", value, [1, [2]], {})))
                for operation in ("iter", "next", "len", "enter"):
                    walk(answered(lambda v=value, ask=operation: session.request(ask, v)))
                walk(answered(lambda value=value: session.request("getattr", value, "x")))
        except (BrokenError, CannotCrossError):
            assert session.violation


def answered(ask: Callable[[], Any]) -> Any:
    """Return an answer, None for an exception that is one; a failure of the reader stays one."""
    try:
        return ask()
    except (BrokenError, CannotCrossError, HangError, MemoryError):
        raise
    except BaseException as error:
        if not is_answer(error.__traceback__):
            raise
        return None


def is_answer(trace: TracebackType | None) -> bool:
    """Tell whether an exception is what the candidate answered, and not a failure of the reader."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "_request"


PLAIN = (str, int, float, complex, bytes, bytearray, bool, range, slice, type(None), type(...))
CONTAINERS = (list, tuple, set, frozenset, dict, collections.deque, collections.OrderedDict)


def walk(value: object) -> None:
    """Require that everything inside is of an exact type of the interpreter, or a stand-in."""
    seen: set[int] = set()
    ahead = [value]
    while ahead:
        item = ahead.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        ahead += parts_of(item)


def parts_of(item: object) -> Iterator[object]:
    kind = type(item)
    if isinstance(kind, HandleType) or isinstance(item, HandleType) or kind in PLAIN:
        return
    home = kind.__module__
    known = {"builtins", "collections", "datetime", "decimal", "fractions"}
    assert (
        home.startswith("securebench.") or home in known or isinstance(item, tuple | BaseException)
    ), kind
    if kind is dict or isinstance(item, collections.OrderedDict):
        yield from item.keys()
        yield from item.values()
    elif isinstance(item, CONTAINERS) and not isinstance(item, dict):
        yield from islice(item, 10_000)


def lines(*frames: list[object]) -> bytes:
    return "\n".join(json.dumps(frame) for frame in frames).encode()


def returned(value: object) -> list[object]:
    return ["$ID", "return", [], [], value]


KLASS = ["C", "K", [], ["__call__", "__len__", "__iter__", "__eq__"]]
OBJECT = ["o", KLASS]
ENDED = ["x", True, ["n", "builtins", "StopIteration"], "", [], None]
ERROR = ["x", False, ["n", "builtins", "ValueError"], "bad", ["bad"], None]
VALUES = (
    1, "s", None, 1.5, ["l", 1, 2], ["d", "a", 1], ["t", 1, ["l"]], ["s", 1], ["f", 2], ["b", "eA=="], ["B", "eA=="],
    ["i", "fffff"], ["j", 1.0, 2.0], ["u", "eda080"], ["r", 0, 3, 1], ["sl", 0, 3, None], ["@", 0], ["dq", 3, 1, 2],
    ["od", "a", 1], ["ct", "a", 2], ["dd", ["n", "builtins", "list"], "a", ["l"]], ["n", "builtins", "int"],
    ["nt", "Point", "x,y", 1, 2], ["D", "1.5"], ["da", "2020-01-02"], ["td", 1, 2, 3],
    ["F", 1, 2], ["e"], ["ni"], ["vk", 1], ["vi", ["t", 1, 2]], ["mod", "math"], OBJECT, KLASS,
    ["@", 1], ["@", 2], ERROR, ["l", ["l"], ["@", 0], ["@", 1]],
)  # fmt: skip
NAMED = (returned(["l", OBJECT, "name"]), returned(["@", 1]))
SEEDS = (
    *(
        lines(returned(["l", None, "name"]), returned(value), returned(value), returned(value))
        for value in VALUES
    ),
    *(lines(*NAMED, returned(value), returned(value)) for value in VALUES),
    lines(["$ID", "raise", [], [], ERROR, "trace"]),
    lines(["$ID", "refuse", [], [], "why"]),
    lines(*NAMED, ["$ID", "call", [["stdout", "x"]], [], ["@", 0], ["l", 1], ["d"]], returned(1)),
    lines(*NAMED, ["$ID", "return", [], [[0, 5, 6]], 1], ["$ID", "raise", [], [], ERROR, "t"]),
    lines(["$ID", "refuse", [["stderr", "out"]], [], "no"]),
    lines(*NAMED, ["$ID", "raise", [["flat", "K crosses as int"]], [], ENDED, "t"]),
    b"!\x00\x00\x00\x02[]",
    b"!\xff\xff\xff\xff",
    b"",
)  # fmt: skip
TOKENS = (
    *(json.dumps(value).encode() for value in VALUES),
    *(b'"return"', b'"raise"', b'"refuse"', b'"call"', b'"@"', b"$ID", b"[]", b"{}", b"null"),
    *(b'"builtins", "eval"', b'"os", "system"', b'"builtins", "SystemExit"', b"[[[[", b'"__class__"', b'"_securebench_peer_"'),
    *(b'"x,x"', b'"class"', b'"1E999999999"', b"[" * 2000, b"NaN", b"-1", b"true", b'"builtins.x"', b'"__dict__"'),
)  # fmt: skip
SOCKET = Target("socket", check, SEEDS, TOKENS, traced=("/securebench/grading/code/",))
