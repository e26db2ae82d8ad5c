"""Commands that start pytest: those in which our runner takes its place, so that tests are counted.

A command is counted if every start of pytest in it is certain: as a module of a Python or by its
script, in a shell or behind a program that hands on its descriptors and variables. Of every other
command the exit code alone decides, and lint, audit and record say so.

Source: contract 21.14, docs/reference/checks.md, decision 0105.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

SHELL = ("sh", "-lc")
"""Runs a command that a row gives as text."""

PYTHON_NAME = re.compile(r"(?:/[A-Za-z0-9_./-]*/)?python[0-9.]*")
MAX_CALLS = 4
"""Of pytest in one command: each proves a part of the secret, of at least eight bytes."""

_SCRIPT = re.compile(r"(?:/[A-Za-z0-9_./-]*/)?(?:pytest|py\.test)")
_SHELL = re.compile(r"(?:/[A-Za-z0-9_./-]*/)?(?:sh|bash|dash|ash|zsh|ksh)")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_WITH_VALUE = frozenset({"-W", "-X"})
_FLAG = re.compile(r"-[bBdEOPqRsSuvxWX][A-Za-z0-9:=_.]*")
_ISOLATED = re.compile(r"-[A-Za-z]*[IE]")
_MODULE = ("-m", "pytest")
_WORDS_BEFORE = frozenset({"then", "else", "elif", "if", "{", "exec", "command", "time"})
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "-C"}),
    "timeout": frozenset({"-k", "-s"}),
    "nice": frozenset({"-n"}),
    "ionice": frozenset({"-c", "-n"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
}
"""Programs that become what follows them, with their options that take a value."""
_RUNNERS = frozenset({("uv", "run"), ("poetry", "run"), ("pipenv", "run")})
"""Programs that become what follows them in the project's environment; their options are theirs."""
_LOOPS = frozenset({"for", "while", "until", "!", "function"})
_TOOLS = r"(?:pytest|py\.test|unittest|tox|nox)"
_MENTION = re.compile(rf"(?<![\w.-]){_TOOLS}(?![\w.-])")
_NAMES_TOOL = re.compile(rf"(?:.*/)?(?:-[a-zA-Z]*m)?{_TOOLS}")
_HARMLESS = frozenset({"cd", "echo", "export", "pip", "pip3", "rm", "test", "["})
"""Programs that start no other one."""

_REDIRECTION = r"\d*(?:>>|>&|&>>|&>|<&|>\||<>|[<>](?![<(]))"
_TOKEN = re.compile(
    rf"(?P<blank>[ \t]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<redirection>{_REDIRECTION})"
    r"|(?P<operator>&&|\|\||;;|[;&|()\n])"
    r"|(?P<word>(?:\\[^\n]|'[^']*'|\"(?:\\.|[^\"\\])*\"|[^\s;&|<>()'\"\\`])+)",
    re.DOTALL,
)


class _Word(NamedTuple):
    text: str
    start: int
    end: int


class PytestCall(NamedTuple):
    """A start of pytest.

    Attributes:
        first: Index of its first word, from which on our runner takes its place.
        end: Index behind its last word.
        python: The interpreter with its options that runs our runner.
        script: Name of pytest's script; empty for a module.
    """

    first: int
    end: int
    python: tuple[str, ...]
    script: str


Runner = Callable[[str], tuple[str, ...]]
"""Arguments of a Python that is to run our runner, for the name of a script, or an empty text."""


class UncountedError(Exception):
    """Not every start of pytest in a command is certain."""


def counted_calls(command: Sequence[str]) -> int:
    """Return how many starts of pytest our runner replaces in a command; 0 for none."""
    try:
        return len(_replaced(command, lambda _: ())[1])
    except UncountedError:
        return 0


def with_runner(command: Sequence[str], runner: Runner, quoted: Runner) -> tuple[str, ...]:
    """Return a counted command with our runner in place of pytest.

    Args:
        command: A command with at least one counted call.
        runner: What an argv gets.
        quoted: What the text of a shell gets; a variable in it has double quotes around it.
    """
    return _replaced(command, runner, quoted)[0]


def argv_of(command: object) -> tuple[str, ...]:
    """Return what runs a row's command: a text for the shell, or a list of words."""
    if isinstance(command, str):
        return (*SHELL, command)
    return tuple(map(str, command)) if isinstance(command, Sequence) else ()


def exit_code_alone(command: object) -> str:
    """Return what a row's command that is not counted means, in one sentence."""
    found = _MENTION.search(" ".join(argv_of(command)))
    why = (
        f"our runner cannot take the place of {found[0]} in it" if found else "it starts no pytest"
    )
    return f"{why}: its exit code alone decides, and code of the candidate may set it"


def names_test_tool(command: object) -> bool:
    """Return whether a row's command names a test tool of Python."""
    return _MENTION.search(" ".join(argv_of(command))) is not None


def _replaced(
    command: Sequence[str], runner: Runner, quoted: Runner | None = None
) -> tuple[tuple[str, ...], list[PytestCall]]:
    words = list(command)
    place = _text_of_shell(words)
    if place is not None:
        text, calls = _replaced_text(words[place], quoted or runner)
        if not 0 < len(calls) <= MAX_CALLS:
            raise UncountedError
        return (*words[:place], text, *words[place + 1 :]), calls
    call = _call(words)
    if call is None:
        raise UncountedError
    return (*words[: call.first], *call.python, *runner(call.script), *words[call.end :]), [call]


def _text_of_shell(words: list[str]) -> int | None:
    """Return the index of the text that a shell in a simple command runs, or None."""
    first = _program(words)
    if first is None or not _SHELL.fullmatch(words[first]):
        return None
    options = iter(range(first + 1, len(words) - 1))
    for index in options:
        if _SHELL_TEXT.fullmatch(words[index]):
            return index + 1
        if not words[index].startswith(("-", "+")):
            return None
        if words[index].endswith("o"):
            next(options, None)
    return None


def _replaced_text(text: str, quoted: Runner) -> tuple[str, list[PytestCall]]:
    result, calls, at = "", [], 0
    for words in _simple_commands(text):
        plain = [_plain(word.text) for word in words]
        place = _text_of_shell(plain)
        if place is not None:
            inner, found = _inner(words[place].text, quoted)
            if found:
                result, at = result + text[at : words[place].start] + inner, words[place].end
                calls += found
            continue
        call = _call(plain)
        if call is None:
            continue
        begin = words[call.first].start
        end = words[call.first + len(call.python) - 1].end
        python = call.python[0] if call.script else text[begin:end]
        call = call._replace(python=(python,))
        result += text[at:begin] + _runner_words(call, quoted)
        at = words[call.end - 1].end
        calls.append(call)
    if re.search(r"\(\s*\)", text):
        # A function, which may be called more than once.
        raise UncountedError
    if len(calls) > 1 and re.search(r"\|\||(?<!&)&(?![&>\d])", text):
        # Which of them run, and in which order, shows only while they do.
        raise UncountedError
    return result + text[at:], calls


def _runner_words(call: PytestCall, quoted: Runner) -> str:
    return " ".join((*call.python, *quoted(call.script)))


def _inner(word: str, quoted: Runner) -> tuple[str, list[PytestCall]]:
    """Return the quoted text of a shell in a shell's text, with our runner in it."""
    mark, text = word[:1], word[1:-1]
    if mark not in ("'", '"') or not word.endswith(mark) or mark in text or "\\" in text:
        if _MENTION.search(word):
            raise UncountedError
        return word, []
    inner, calls = _replaced_text(text, quoted)
    if mark == "'" or not calls:
        return f"{mark}{inner}{mark}", calls
    for call in calls:
        own = _runner_words(call, quoted)
        inner = inner.replace(own, re.sub(r'(["$])', r"\\\1", own), 1)
    return f'"{inner}"', calls


def _simple_commands(text: str) -> Iterator[list[_Word]]:
    words: list[_Word] = []
    at, skips_next = 0, False
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            # A here-document, a quote that does not end.
            raise UncountedError
        at = token.end()
        if token["redirection"]:
            skips_next = True
        elif token["operator"]:
            yield words
            words = []
        elif token["word"] and skips_next:
            skips_next = False
        elif token["word"]:
            words.append(_Word(token["word"], token.start(), token.end()))
            if words[0].text in _LOOPS:
                raise UncountedError
    yield words


def _plain(word: str) -> str:
    try:
        return " ".join(shlex.split(word))
    except ValueError:
        return word


def _program(words: list[str]) -> int | None:
    """Return the index of the program that a simple command comes to, or None."""
    index = 0
    while index < len(words):
        word = words[index]
        if word in _WORDS_BEFORE or _ASSIGNMENT.match(word):
            index += 1
        elif tuple(words[index : index + 2]) in _RUNNERS:
            return _behind_runner(words, index + 2)
        elif word.rpartition("/")[2] in _WRAPPERS:
            index = _behind_wrapper(words, index)
        else:
            return index
    return None


def _behind_runner(words: list[str], index: int) -> int | None:
    for place in range(index, len(words)):
        is_value = words[place - 1].startswith("--with") or words[place - 1] in ("-m", "--module")
        if _SCRIPT.fullmatch(words[place]) or PYTHON_NAME.fullmatch(words[place]):
            return None if is_value else place
    return None


def _behind_wrapper(words: list[str], index: int) -> int:
    name = words[index].rpartition("/")[2]
    index += 1
    while index < len(words) and words[index].startswith("-"):
        if name == "env" and words[index] in ("-", "-i", "--ignore-environment"):
            return len(words)
        index += 2 if words[index] in _WRAPPERS[name] else 1
    return index + 1 if name == "timeout" else index


def _call(words: list[str]) -> PytestCall | None:
    """Return the start of pytest in a simple command, or None.

    Raises:
        UncountedError: It names pytest, and whether it starts it is not certain.
    """
    first = _program(words)
    if first is not None and _SCRIPT.fullmatch(words[first]):
        folder = words[first].rpartition("/")[0]
        python = f"{folder}/python3" if folder else "python3"
        return PytestCall(first, first + 1, (python,), words[first])
    if first is not None and PYTHON_NAME.fullmatch(words[first]):
        end = first + 1
        while end < len(words) and _FLAG.fullmatch(words[end]) and not _ISOLATED.match(words[end]):
            end += 2 if words[end] in _WITH_VALUE else 1
        if tuple(words[end : end + 2]) == _MODULE:
            return PytestCall(first, end + 2, tuple(words[first:end]), "")
    is_harmless = first is not None and words[first].rpartition("/")[2] in _HARMLESS
    if any(map(_NAMES_TOOL.fullmatch, words)) and not is_harmless:
        raise UncountedError
    return None
