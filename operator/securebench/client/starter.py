"""The command ``securebench init``: a pack that runs at once, from the templates of its family.

A template is the file itself with ``{{words}}``. ``dot-`` begins names with a dot; names of
Python files end with ``.py.txt``, so that no tool takes them for code of this package.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from securebench.agents.registry import AGENTS
from securebench.benchmark.families.registry import row_families
from securebench.client.output import print_line, print_note
from securebench.errors import InvalidInputError
from securebench.text import did_you_mean_or_known

COMMAND: Final = "command"
_TEMPLATES: Final = files("securebench.client").joinpath("templates")
_SCHEMAS: Final = files("securebench").joinpath("schemas")
_PARTS: Final = frozenset({"about.md", "build.txt", "command.yaml"})
"""Templates of a family that are parts of other files."""


def init(folder: Path, family: str, agent: str) -> int:
    """Write a pack into a new or empty folder and say what to do next.

    Raises:
        InvalidInputError: The folder has something in it, or there is no template.
    """
    made = starter_files(pack_name(folder), family, agent)
    _require_empty(folder)
    for name, text in made.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print_note(f"next: cd {folder}, and the commands of README.md")
    print_line(f"pack {pack_name(folder)} family={family} agent={agent} files={len(made)}")
    return 0


def starter_files(name: str, family: str, agent: str) -> Mapping[str, str]:
    """Return the text of each file of a new pack by its path.

    Args:
        name: Id of the pack and of its runs.
        family: A family with a verifier.
        agent: A harness type with a template.

    Raises:
        InvalidInputError: There is no template.
    """
    _require_known("family", family, row_families())
    _require_known("agent", agent, agents())
    own = dict(_tree(_TEMPLATES.joinpath(family)))
    words = {"name": name, "family": family, **_parts(own, agent)}
    shared = dict(_tree(_TEMPLATES.joinpath("common")))
    texts = {path: text for path, text in {**shared, **own}.items() if path not in _PARTS}
    return {
        **{_plain(path): _filled(_filled(text, words), words) for path, text in texts.items()},
        **_schemas(family),
    }


def agents() -> tuple[str, ...]:
    """Return the harness types that a pack can begin with, in the order of the registry."""
    return tuple(name for name in AGENTS if name == COMMAND or _harness_of(name).is_file())


def pack_name(folder: Path) -> str:
    """Return the id of a pack in a folder: what may also stand in the name of an image."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "pack"


def _parts(own: Mapping[str, str], agent: str) -> dict[str, str]:
    cli = AGENTS[agent].cli
    harness = own["command.yaml"] if agent == COMMAND else _harness_of(agent).read_text("utf-8")
    return {
        "harness": harness.rstrip("\n"),
        "about": own["about.md"].rstrip("\n"),
        "build": own.get("build.txt", ""),
        "keys": "" if cli is None else f"export {cli.key}=...    # or a line of .env\n",
    }


def _harness_of(agent: str) -> Traversable:
    return _TEMPLATES.joinpath("agents", f"{agent}.yaml")


def _filled(text: str, words: Mapping[str, str]) -> str:
    """Put words in; twice, because a part may hold words itself."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: words[match[1]], text)


def _tree(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _tree(item, f"{prefix}{item.name}/")
        else:
            yield f"{prefix}{item.name}", item.read_text("utf-8")


def _plain(path: str) -> str:
    parts = (re.sub("^dot-", ".", part) for part in path.split("/"))
    return re.sub(r"\.py\.txt$", ".py", "/".join(parts))


def _schemas(family: str) -> dict[str, str]:
    names = ("manifest", "tester", f"row.{family}")
    return {
        f"schemas/{name}.schema.json": _SCHEMAS.joinpath(f"{name}.schema.json").read_text("utf-8")
        for name in names
    }


def _require_known(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise InvalidInputError(f"unknown {what} {name!r}{did_you_mean_or_known(name, known)}")


def _require_empty(folder: Path) -> None:
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInputError(f"{folder} is not empty; name a new or an empty folder")
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; name a new or an empty folder")
