"""Dockerfiles of task folders: what an import must know of them, and what it adds. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_WORKDIR = "/app"
"""Where an image is entered whose Dockerfile does not say so; the usual bases are made that way."""

IDLE = re.compile(
    r"(\S*/)?((ba)?sh|python3?|sleep [^;&|]+|tail -f [^;&|]+|(ba)?sh -l?c (sleep|tail) [^;&|]+)"
)
"""Commands that only keep a container alive; nothing is lost when they are not run."""

_ADDED = "# Added by securebench pack import: "


class Instruction(NamedTuple):
    """One instruction of a Dockerfile: upper-case name, the rest, line number from 1."""

    name: str
    rest: str
    line: int


class Defect(NamedTuple):
    """Why a Dockerfile cannot be used."""

    reason: str
    line: int


@dataclass(frozen=True, slots=True)
class Additions:
    """What is appended to a Dockerfile.

    Args:
        variables: Variables of the compose file or the task configuration.
        apt: Debian packages that the test script installs.
        pip: Python packages that it installs.
        needs_python: Whether tests need a python3 that the image may lack.
    """

    variables: Mapping[str, str]
    apt: Sequence[str] = ()
    pip: Sequence[str] = ()
    needs_python: bool = False


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile; texts of here-documents are left out."""
    found: list[Instruction] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        whole = line.strip()
        if not whole or whole.startswith("#"):
            continue
        while whole.endswith("\\"):
            _, more = next(lines, (0, ""))
            stripped = more.strip()
            whole = whole[:-1] + " " + ("\\" if stripped.startswith("#") else stripped)
        name, *words = re.split(r"\s", whole, maxsplit=1)
        rest = "".join(words)
        found.append(Instruction(name.upper(), rest.strip(), number))
        for marker in re.findall(r"<<-?\s*[\"']?(\w+)", rest):
            for _, inner in lines:
                if inner.strip() == marker:
                    break
    return found


def workdir(found: Iterable[Instruction]) -> str:
    """Return the working folder of the last stage."""
    folder = DEFAULT_WORKDIR
    for item in _last_stage(found):
        if item.name == "WORKDIR":
            named = item.rest.strip("\"'")
            folder = named if named.startswith("/") else f"{folder.rstrip('/')}/{named}"
    return folder.rstrip("/") or "/"


def _last_stage(found: Iterable[Instruction]) -> Sequence[Instruction]:
    """Return the instructions of the last stage behind those of the stages it is made from."""
    stages: dict[str, list[Instruction]] = {}
    stage: list[Instruction] = []
    number = 0
    for item in found:
        if item.name == "FROM":
            base, *named = _words(item.rest.lower()) or [""]
            stage = list(stages.get(base, ()))
            stages |= dict.fromkeys((str(number), *named[1:]), stage)
            number += 1
        stage.append(item)
    return stage


def defects(found: Sequence[Instruction], hidden: Collection[str] = ()) -> list[Defect]:
    """Return everything for which an image cannot be a task's image here.

    Args:
        found: The Dockerfile.
        hidden: Names at the top of the build context that no agent may see.
    """
    result = [Defect("there is no FROM", 1)] if all(i.name != "FROM" for i in found) else []
    for item in found:
        if item.name in {"COPY", "ADD"} and "--from" not in item.rest:
            named = [word for word in _words(item.rest)[:-1] if _top(word) in hidden]
            result += [
                Defect(
                    f"{item.name} puts {word!r} into the image, where the agent sees it", item.line
                )
                for word in named
            ]
        elif item.name == "ENTRYPOINT" or (item.name == "CMD" and not _is_idle(item.rest)):
            reason = (
                f"{item.name} starts a program; containers of a run start the task's command only"
            )
            result.append(Defect(reason, item.line))
        elif item.name == "WORKDIR" and "$" in item.rest:
            result.append(Defect("a WORKDIR with a variable is not supported", item.line))
    return result


def with_additions(text: str, additions: Additions) -> str:
    """Return a Dockerfile with what the task needs besides, in the order of its dependencies."""
    found = instructions(text)
    lines = [f"ENV {name}={json.dumps(value)}" for name, value in additions.variables.items()]
    lines += _installs(found, additions)
    if not lines:
        return text if text.endswith("\n") else f"{text}\n"
    user = next((i.rest for i in reversed(_last_stage(found)) if i.name == "USER"), "")
    block = ["USER root", *lines, f"USER {user}"] if user else lines
    note = f"{_ADDED}variables, and what the tests would fetch, for they have no network."
    return "\n".join([text.rstrip("\n"), "", note, *block, ""])


def _installs(found: Sequence[Instruction], additions: Additions) -> list[str]:
    lines = []
    python = _has_python(found)
    packages = list(additions.apt)
    if additions.needs_python and not python:
        packages += ["python3", "python3-pip"] if additions.pip else ["python3"]
    if packages:
        names = " ".join(sorted(set(packages)))
        lines.append(
            f"RUN apt-get update && apt-get install -y --no-install-recommends {names}"
            " && rm -rf /var/lib/apt/lists/*"
        )
    if additions.pip:
        names = " ".join(_quoted(name) for name in additions.pip)
        lines.append(
            f"RUN PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --no-cache-dir {names}"
        )
    return lines


def _has_python(found: Sequence[Instruction]) -> bool:
    named = " ".join(i.rest for i in found if i.name in {"FROM", "ARG", "RUN"})
    return "python" in named.lower()


def _words(rest: str) -> list[str]:
    if rest.startswith("["):
        try:
            listed = json.loads(rest)
        except (ValueError, RecursionError):
            return []
        return [str(word) for word in listed]
    return [word for word in rest.split() if not word.startswith("--")]


def _top(word: str) -> str:
    return word.strip("\"'").removeprefix("./").strip("/").partition("/")[0]


def _is_idle(rest: str) -> bool:
    return IDLE.fullmatch(" ".join(_words(rest)).replace('"', "").replace("'", "")) is not None


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[\w.=+-]+", name) else f"'{name}'"
