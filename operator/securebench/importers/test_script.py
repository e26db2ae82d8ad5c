"""What the script of a task folder does that runs its tests (run-tests.sh, tests/test.sh). Pure.

Such a script usually fetches a test runner and then runs pytest. Here tests have no network: what
they fetch must be in the image, and pytest is started by the verifier itself.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

NETWORK = re.compile(
    r"\b(apt|apt-get|apk|yum|dnf|curl|wget|pip3?|uv|uvx|npm|npx|yarn|cargo|gem|git clone)\b"
)
OURS = re.compile(r"pytest(-json-ctrf)?([=<>~!@\[].*)?$")
"""Packages that the verifier brings, or that only make a report."""

_NOTHING = re.compile(
    r"(set|echo|printf|cd|exit|true|:)(\s.*|$)|then|else|fi|deactivate"
    r"|(source|\.)\s+(\"?)\S*/(activate|\.cargo/env|\.local/bin/env)\4"
    r"|export PATH=.*|mkdir -p /logs\S*"
)
_REPORT = re.compile(
    r"[12&]?>>?\s*(&[12]|/dev/(null|stdout|stderr)"
    r"|\"/logs/(?!\S*\.\.)[\w./-]+\"|/logs/(?!\S*\.\.)[\w./-]+)(?=\s|$)"
)
"""Output that goes nowhere, or into the logs of the harness."""
_QUOTED = re.compile(r"\\.|'[^']*'|\"(\\.|[^\"\\])*\"")
_KEYWORD = re.compile(r"(if|then|else|do)\s+(?=\S)")
_CD = re.compile(r"cd(\s|$)")
_INTO_TESTS = re.compile(r"cd\s+\"?(\$TEST_DIR|\$\{TEST_DIR\}|/tests)/?\"?")
_CONDITION = re.compile(r"(if|elif)\s+(\[|test\b).*")
_UV_INSTALLER = re.compile(r"(curl|wget)\b.*astral\.sh/uv")
_FLAGS = frozenset({"-v", "-vv", "-q", "-s", "-x", "-l", "--no-header", "--showlocals"})
_FLAG_START = ("-r", "--tb", "--color", "--ctrf=", "--junitxml=", "--capture=", "--durations=")
_FLAG_VALUES = frozenset({"--ctrf", "--junitxml", "--tb", "--color"})
_APT_NOTHING = (["update"], ["clean"], ["autoclean"])
_UVX_VALUES = frozenset({"-p", "--python", "-w", "--with", "--from"})


class Unmapped(NamedTuple):
    """A line that is no known step."""

    text: str
    line: int


class TestScript(NamedTuple):
    """What a test script does.

    Args:
        pip: Python packages that it installs, without those that the verifier brings.
        targets: What pytest gets, relative to the folder of the tests; ``.`` for all.
        unmapped: Lines beyond installing and running pytest.
        uses_network: Whether any line would fetch something.
    """

    apt: tuple[str, ...]
    pip: tuple[str, ...]
    targets: tuple[str, ...]
    unmapped: tuple[Unmapped, ...]
    uses_network: bool

    @property
    def is_plain_pytest(self) -> bool:
        """Whether the verifier's own pytest can do all that the script does."""
        return bool(self.targets) and not self.unmapped


def read_script(text: str) -> TestScript:
    """Return what a test script does, line by line."""
    apt: list[str] = []
    pip: list[str] = []
    targets: list[str] = []
    unmapped: list[Unmapped] = []
    is_inside = False
    for number, line in _logical_lines(text):
        for whole in _steps(line):
            step = _REPORT.sub("", whole).strip()
            if _CD.match(step):
                is_inside = _INTO_TESTS.fullmatch(step) is not None
            if _is_nothing(step):
                continue
            words = [step] if re.search(r"[|&]", _unquoted(step)) else _split(step)
            if found := _installed(words):
                apt += found.apt
                pip += [name for name in found.pip if not OURS.match(name)]
                words = found.rest
                if not words:
                    continue
            tests = _pytest_targets(words, is_inside=is_inside)
            if tests is None:
                unmapped.append(Unmapped(whole, number))
            else:
                targets += tests
    return TestScript(
        tuple(dict.fromkeys(apt)),
        tuple(dict.fromkeys(pip)),
        tuple(dict.fromkeys(targets)),
        tuple(unmapped),
        uses_network=any(NETWORK.search(line) for _, line in _logical_lines(text)),
    )


class _Installed(NamedTuple):
    apt: list[str]
    pip: list[str]
    rest: list[str]


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with continuations joined, without comments, each with its first number."""
    held, start = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        plain = line.strip()
        if not held:
            start = number
        if plain.startswith("#"):
            continue
        if plain.endswith("\\"):
            held += plain[:-1] + " "
            continue
        whole, held = (held + re.sub(r"\s#.*$", "", plain)).strip(), ""
        if whole:
            yield start, whole


def _steps(line: str) -> list[str]:
    parts = (part.strip() for part in re.split(r"&&|\|\||;", line))
    return [
        part if _CONDITION.fullmatch(part) else _KEYWORD.sub("", part, count=1)
        for part in parts
        if part
    ]


def _is_nothing(step: str) -> bool:
    if not step or _UV_INSTALLER.match(step):
        return True
    if "$(" in step or "`" in step or re.search(r"[<>|&\"']", _unquoted(step)):
        return False
    return bool(_CONDITION.fullmatch(step) or _NOTHING.fullmatch(step))


def _unquoted(step: str) -> str:
    """Return what the shell reads of a step; quotes in it are open."""
    return _QUOTED.sub("", step)


def _split(step: str) -> list[str]:
    try:
        words = shlex.split(step)
    except ValueError:
        return [step]
    while words[1:] and (words[0] == "sudo" or re.fullmatch(r"DEBIAN_FRONTEND=\w+", words[0])):
        words = words[1:]
    return words


def _installed(words: Sequence[str]) -> _Installed | None:
    """Return what a step installs, and the command that remains of it."""
    head = [word for word in words if not word.startswith("-")]
    if words[0] in {"apt", "apt-get"}:
        if "install" in head:
            return _Installed(head[2:], [], [])
        return _Installed([], [], []) if head[1:] in _APT_NOTHING else None
    if words[0] == "uv" and head[1:2] in (["venv"], ["init"], ["sync"], ["python"]):
        return _Installed([], [], [])
    if words[0] == "uv" and head[1:2] == ["add"]:
        return _Installed([], head[2:], [])
    if words[0] == "uvx" or (words[0] == "uv" and head[1:2] == ["run"]):
        return _uv_run(words[1:] if words[0] == "uvx" else words[2:])
    if "pip" in {word.rstrip("3") for word in words[:3]} and "install" in head:
        return _Installed([], head[head.index("install") + 1 :], [])
    return None


def _uv_run(words: Sequence[str]) -> _Installed:
    packages: list[str] = []
    position = 0
    while position < len(words) and words[position].startswith("-"):
        if words[position] in _UVX_VALUES:
            if words[position] not in {"-p", "--python"} and position + 1 < len(words):
                packages.append(words[position + 1])
            position += 1
        position += 1
    return _Installed([], packages, list(words[position:]))


def _pytest_targets(words: Sequence[str], *, is_inside: bool) -> list[str] | None:
    """Return what pytest is started on; None for another command."""
    rest = list(words)
    if rest[:1] in (["python"], ["python3"]) and rest[1:2] == ["-m"]:
        rest = rest[2:]
    if rest[:1] != ["pytest"]:
        return None
    targets = []
    words_left = iter(rest[1:])
    for word in words_left:
        if word in _FLAG_VALUES:
            next(words_left, None)
        elif word in _FLAGS or word.startswith(_FLAG_START):
            continue
        elif (target := _below_tests(word, is_inside=is_inside)) is not None:
            targets.append(target)
        else:
            return None
    return targets or (["."] if is_inside else None)


def _below_tests(word: str, *, is_inside: bool) -> str | None:
    found = re.fullmatch(r"(?:\$TEST_DIR|\$\{TEST_DIR(?::-/tests)?\}|/tests)(?:/(.*))?", word)
    if found is not None:
        return (found[1] or "").rstrip("/") or "."
    is_relative = is_inside and re.fullmatch(r"[\w.][\w./-]*", word)
    return word.removeprefix("./").rstrip("/") or "." if is_relative else None
