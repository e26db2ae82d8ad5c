"""A tester's machine: a folder with packs, a kubeconfig, and the command line in processes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from support.interrupts import interruptible
from support.waiting import SECONDS, until

SOURCES = Path(__file__).parents[2] / "operator"
IMAGE = "python:3.11-slim"

_STARTED = re.compile(r"securebench: (?:started|joined) BenchmarkRun (\S+)")


class Outcome(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Command:
    """A command that goes on by itself; its output is in files."""

    def __init__(self, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        count = len(list(folder.glob("stdout*")))
        self._stdout = folder / f"stdout{count}"
        self._stderr = folder / f"stderr{count}"
        with (
            self._stdout.open("wb") as stdout,
            self._stderr.open("wb") as stderr,
            interruptible(),
        ):
            self._process = subprocess.Popen(
                words, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )

    @property
    def stderr(self) -> str:
        """What it has printed so far."""
        return self._stderr.read_text()

    @property
    def stdout(self) -> str:
        """What it has printed so far for programs and pipes."""
        return self._stdout.read_text()

    @property
    def run(self) -> str:
        """Name of its BenchmarkRun, as soon as it is told."""
        self.wait_for("BenchmarkRun ")
        match = _STARTED.search(self.stderr)
        assert match is not None, self.stderr
        return match[1]

    def wait_for(self, text: str) -> None:
        """Wait until it has printed something on stderr."""
        until(lambda: text in self.stderr or self._process.poll() is not None, text)
        assert text in self.stderr, (self.stderr, self._stdout.read_text())

    def end(self) -> Outcome:
        """Wait for its end."""
        code = self._process.wait(SECONDS)
        return Outcome(code, self._stdout.read_text(), self.stderr)

    def stop(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait(SECONDS)

    def send(self, number: signal.Signals) -> Outcome:
        """Send a signal and wait for the end."""
        self._process.send_signal(number)
        return self.end()


@dataclass(frozen=True, slots=True)
class Shell:
    """A terminal of one user.

    Attributes:
        folder: Where it stands.
        namespace: Named in every command.
        kubeconfig: The user's.
        commands: What was started here.
    """

    folder: Path
    namespace: str
    kubeconfig: Path
    commands: list[Command] = field(default_factory=list)

    def __call__(self, *words: str) -> Outcome:
        """Run a command of the command line to its end."""
        return self.start(*words).end()

    def start(self, *words: str) -> Command:
        """Start a command of the command line."""
        self.commands.append(Command(self._words(words), self.folder, self._environment()))
        return self.commands[-1]

    def on_terminal(self, *words: str) -> bytes:
        """Run a command with both outputs on a terminal and return what that received."""
        parent, child = pty.openpty()
        process = subprocess.Popen(
            self._words(words),
            cwd=self.folder,
            env=self._environment(),
            stdin=child,
            stdout=child,
            stderr=child,
        )
        os.close(child)
        received = bytearray()
        try:
            while piece := os.read(parent, 65536):
                received += piece
        except OSError:  # Linux' end of a terminal that nobody has open any more
            pass
        finally:
            os.close(parent)
        assert process.wait(SECONDS) == 0, received.decode(errors="replace")
        return bytes(received)

    def kubectl(self, *words: str, stdin: str | None = None) -> Outcome:
        """Run kubectl as this user."""
        flags = ("--kubeconfig", str(self.kubeconfig), "-n", self.namespace)
        done = subprocess.run(
            ("kubectl", *flags, *words),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def _words(self, words: Sequence[str]) -> tuple[str, ...]:
        local = words[:2] == ("pack", "lint") or "--help" in words
        place = () if local else ("--namespace", self.namespace)
        return (sys.executable, "-m", "securebench.cli", *words, *place)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(SOURCES),
            "KUBECONFIG": str(self.kubeconfig),
            "TERM": "xterm-256color",
        }


def write_pack(folder: Path, run_id: str, command: str, **changes: Any) -> Path:
    """Write a tester YAML and a pack whose right answer is A, and return the YAML.

    Args:
        folder: Made when missing.
        run_id: Run id and pack id.
        command: Of the harness, for the shell.
        changes: ``tasks``: the rows' changes by id; ``harness`` and ``manifest``: more keys.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "id": run_id,
        "version": 1,
        "defaults": {"family": "multiple_choice", "environment": {"image": IMAGE}},
    }
    tasks = changes.get("tasks", {"a": {}})
    rows = [{"id": name, **_question("0"), **change} for name, change in tasks.items()]
    tester = {
        "schema_version": "0.2",
        "run": {"id": run_id, "output_dir": "out"},
        "benchmark": {"manifest": "manifest.yaml", "tasks": "tasks.jsonl"},
        "harness": {
            "type": "command",
            "config": {"command": command},
            **changes.get("harness", {}),
        },
    }
    (folder / "manifest.yaml").write_text(
        yaml.safe_dump(manifest | changes.get("manifest", {}), sort_keys=False)
    )
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "tester.yaml").write_text(yaml.safe_dump(tester, sort_keys=False))
    return folder / "tester.yaml"


def wrong() -> dict[str, Any]:
    """Return the change of a row whose right answer is B."""
    return _question("1")


def _question(answer: str) -> dict[str, Any]:
    return {
        "input": {"question": "Which?", "choices": ["this", "that"]},
        "eval": {"answer": int(answer)},
    }


def kubeconfig(path: Path, **changes: str) -> Path:
    """Write a copy of the administrator's kubeconfig.

    Args:
        path: The copy.
        changes: ``token``: of another user; ``server``: the API server's other address;
            ``namespace``: of the context.
    """
    loaded = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster, user = loaded["clusters"][0]["cluster"], loaded["users"][0]
    if "token" in changes:
        user["user"] = {"token": changes["token"]}
    if "server" in changes:
        host = re.sub(r"^https://|:\d+$", "", cluster["server"])
        cluster |= {"server": changes["server"], "tls-server-name": host}
    if "namespace" in changes:
        loaded["contexts"][0]["context"]["namespace"] = changes["namespace"]
    path.write_text(yaml.safe_dump(loaded))
    path.chmod(0o600)
    return path


def api_server() -> tuple[str, int]:
    """Return host and port of the API server."""
    loaded = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    server = loaded["clusters"][0]["cluster"]["server"]
    host, _, port = server.removeprefix("https://").partition(":")
    return host, int(port or 443)
