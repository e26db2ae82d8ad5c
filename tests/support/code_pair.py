"""A worker and a runner as two real processes, joined by a socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from support.waiting import until

FOLDER = Path(__file__).parents[2] / "operator" / "securebench" / "grading"
BOOT = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    " from securebench_code.entry import start; start()"
)
SECONDS = 20
PYTHON = sys._base_executable
"""Not that of the virtual environment: a task image has no product either."""
OWN_IPC = ["unshare", "--ipc", *([] if os.getuid() == 0 else ["--user", "--map-current-user"])]
"""A Pod has System V objects of its own; those of tests beside this one would be leftovers."""


CONNECTIONS = """\
import socket
def encode(text):
    for place, letter in enumerate(text.encode()):
        server = socket.create_server((f"127.9.{place}.{letter}", 0))
        client = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        other.close()  # who closes first keeps the connection
        client.recv(1)
        client.close()
        server.close()
    return ""
def decode(_):
    found = {}
    for line in open("/proc/self/net/tcp").read().splitlines()[1:]:
        address = bytes.fromhex(line.split()[1][:8])[::-1]
        if address[:2] == b"\\x7f\\x09": found[address[2]] = chr(address[3])
    return "".join(found[place] for place in sorted(found))
"""
"""Keeps a text in what the kernel remembers of closed connections."""

LOOPBACK = """\
import socket
def echo(text):
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(text.encode())
            other, _ = server.accept()
            with other: return other.recv(99).decode()
"""
"""Serves itself a text."""

SECRET = b"\x00secret that supervise made 32by"
START = 'exec "$@" 3<"$0/secret" 4>"$0/answer"'


class Judged(NamedTuple):
    """What a runner ended with; in one interpreter also what came back for the secret."""

    code: int
    stdout: str
    stderr: str
    answer: bytes = b""


def judge(
    candidate: str, tests: str, *, declared: str = "", folder: Path | None = None, repeat: int = 0
) -> Judged:
    """Run tests against a candidate; texts are dedented."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            return judge(candidate, tests, declared=declared, folder=Path(made), repeat=repeat)
    tools, work = folder / "tools", folder / "work"
    work.mkdir()
    tools.mkdir()
    (tools / "securebench_code").symlink_to(FOLDER / "code")
    (folder / "candidate.txt").write_bytes(textwrap.dedent(candidate).encode())
    body = {"source": "inline", "code": textwrap.dedent(tests)}
    (folder / "tests.json").write_text(json.dumps(body))
    path = str(folder / "s")
    again, folders = ([str(repeat)], [str(work)]) if repeat else ([], [])
    worker = subprocess.Popen(
        [*OWN_IPC, *program(tools, "worker", path, str(work), *again, *folders)],
        cwd=work, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(
            lambda: Path(path).exists() or worker.poll() is not None,
            "the worker makes no socket",
            SECONDS,
            step_seconds=0.01,
        )
        files = (str(folder / "candidate.txt"), str(folder / "tests.json"))
        done = subprocess.run(
            program(tools, "test", path, *files, declared, *again),
            capture_output=True, check=False, cwd="/", timeout=SECONDS, text=True,
        )  # fmt: skip
    finally:
        worker.kill()
        worker.wait()
    return Judged(done.returncode, done.stdout, done.stderr)


def judge_shared(candidate: str, tests: str, *, declared: str = "") -> Judged:
    """Run tests in the candidate's interpreter; no pass without the secret of supervise."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "work").mkdir()
        (folder / "tools").mkdir()
        (folder / "tools" / "securebench_code").symlink_to(FOLDER / "code")
        (folder / "secret").write_bytes(SECRET)
        (folder / "candidate.txt").write_text(textwrap.dedent(candidate))
        (folder / "tests.json").write_text(json.dumps({"code": textwrap.dedent(tests)}))
        files = [str(folder / name) for name in ("work", "candidate.txt", "tests.json")]
        done = subprocess.run(
            ["sh", "-c", START, made, *program(folder / "tools", "shared", *files, declared)],
            capture_output=True, check=False, cwd=folder / "work", timeout=SECONDS, text=True,
        )  # fmt: skip
        answer = (folder / "answer").read_bytes()
    return Judged(done.returncode, done.stdout, done.stderr, answer)


@contextmanager
def runs_first(line: str) -> Iterator[None]:
    """Have this line of Python run in both processes of ``judge`` before anything else."""
    path, start = BOOT.split("; ", 2)[:2], BOOT.split("; ", 2)[2]
    with mock.patch(f"{__name__}.BOOT", f"{'; '.join(path)}\n{line}\n{start}"):
        yield


def program(tools: Path, *words: str) -> list[str]:
    """Return a command line as Pods have it."""
    return [PYTHON, "-I", "-B", "-c", BOOT, str(tools), *words]
