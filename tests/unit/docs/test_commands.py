"""What the documentation names is there: targets of make, commands of securebench, paths."""

import re
from pathlib import Path

import click
import pytest
import typer.main

from securebench.cli.main import app
from securebench.client.starter import agents

ROOT = Path(__file__).parents[3]
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PAGES = sorted(
    path
    for place in ("docs/**/*.md", "*.md", "images/*.md", "tests/*/README.md")
    for path in ROOT.glob(place)
    if "decisions" not in path.parts and path.name != "CHANGELOG.md"
)
_CODE = re.compile(r"^```sh\n(.*?)^```|`([^`\n]+)`|^    (\S.*)$", re.MULTILINE | re.DOTALL)


def code(page):
    """Return the lines of a page that are code: fenced shell, indented, and in backticks."""
    found = _CODE.findall(page.read_text(encoding="utf-8"))
    return [line.split(" #")[0].strip() for part in found for line in "".join(part).splitlines()]


def words_after(program, page):
    """Yield the words behind a program's name, for each call of it."""
    for line in code(page):
        if match := re.match(rf"{program} ([^|;&<>()]*)", line):
            yield match[1].split()


def commands(group=None, path=()):
    """Yield the names of all commands of the command line as tuples."""
    group = group or typer.main.get_command(app)
    for name, command in group.commands.items():
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


KNOWN = set(commands())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_is_there(page):
    targets = {word for words in words_after("make", page) for word in words if "=" not in word}
    assert targets <= TARGETS
    for words in words_after("securebench", page):
        names = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
        assert not names or words[0].startswith("-") or {tuple(words[:1]), tuple(words[:2])} & KNOWN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_repository_is_there(page):
    paths = re.findall(
        r"`((?:operator|charts|crds|tests/\w+|images/(?:supervise|overlays))/[\w./-]+)`",
        page.read_text(encoding="utf-8"),
    )
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_agent_that_a_pack_can_begin_with_is_named():
    page = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    (meaning,) = re.findall(r"^\| `--agent` \| `command` \| (.*) \|$", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", meaning)) == sorted(agents())
