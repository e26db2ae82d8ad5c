"""Which paths a candidate patch may touch (contract 14.5.3)."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING

from securebench.benchmark.patch.sections import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.benchmark.patch.sections import Section

TEST_TOOLS = frozenset(
    {
        "_pytest",
        "exceptiongroup",
        "iniconfig",
        "packaging",
        "pluggy",
        "py",
        "pytest",
        "tomli",
        "unittest",
    }
)
"""pytest and what it imports besides most of the standard library: ``python3 -m pytest`` looks for
them in the repository's root first."""
SENSITIVE_FIRST = (
    frozenset({".circleci", ".github", ".gitlab", "ci", "sitecustomize", "usercustomize"})
    | TEST_TOOLS
    | {f"{name}.py" for name in TEST_TOOLS}
)
SENSITIVE_ANYWHERE = frozenset({"__pycache__", "__tests__", "test", "tests"})
SENSITIVE_NAMES = frozenset(
    {
        ".gitlab-ci.yml",
        ".pre-commit-config.yaml",
        "azure-pipelines.yml",
        "cargo.lock",
        "cargo.toml",
        "conftest.py",
        "go.mod",
        "go.sum",
        "jenkinsfile",
        "package-lock.json",
        "package.json",
        "pipfile",
        "pipfile.lock",
        "pnpm-lock.yaml",
        "poetry.lock",
        "pyproject.toml",
        "requirements-dev.txt",
        "requirements-test.txt",
        "requirements.txt",
        "setup.cfg",
        "setup.py",
        "sitecustomize.py",
        "tox.ini",
        "usercustomize.py",
        "yarn.lock",
    }
)
SENSITIVE_STARTS = (".pytest.", "noxfile.", "pytest.")
SENSITIVE_ENDS = (".bash", ".lock", ".pth", ".sh", ".zsh")

GIT_FOLDER = ".git"
OWN_FOLDER = "securebench"


class PathDecision(Enum):
    """Whether a path may be touched; the value says why not."""

    ALLOWED = ""
    HARD_DENIED = "no policy can allow it"
    NOT_LISTED = "allow_paths does not list it"
    SENSITIVE = "it is sensitive and allow_sensitive_paths does not list it"
    BAD_LINK = "its target is not known or lies outside of the repository"
    SUBMODULE = "submodules are refused"


class Patterns:
    """A list of path patterns.

    Args:
        patterns: Shell wildcards whose ``*`` crosses ``/``, whole paths, or folders.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(pattern.rstrip("/") for pattern in patterns)
        self._wildcards = tuple(re.compile(fnmatch.translate(each)) for each in self.patterns)

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def matches(self, path: str) -> bool:
        """Tell whether a pattern matches the path, equals it or is a folder above it."""
        return any(
            path == pattern or (pattern and path.startswith(pattern + "/"))
            for pattern in self.patterns
        ) or any(wildcard.match(path) for wildcard in self._wildcards)


@dataclass(frozen=True, slots=True)
class CandidatePolicy:
    """The lists of ``candidate_policy``.

    Attributes:
        allow: When not empty, every path has to match.
        allow_sensitive: Sensitive paths that are allowed all the same.
        preserved: Sections that touch these are left out of the patch.
    """

    allow: Patterns
    allow_sensitive: Patterns
    preserved: Patterns

    @classmethod
    def of(cls, lists: Mapping[str, object]) -> CandidatePolicy:
        """Return the policy that a row gives; what it lacks is empty.

        Args:
            lists: Value of ``candidate_policy``, which passed its schema.
        """
        return cls(
            Patterns(_strings(lists.get("allow_paths"))),
            Patterns(_strings(lists.get("allow_sensitive_paths"))),
            Patterns(_strings(lists.get("patch_preserved_paths"))),
        )

    def decide(self, path: str) -> PathDecision:
        """Decide about one path."""
        if is_hard_denied(path):
            return PathDecision.HARD_DENIED
        if self.allow and not self.allow.matches(path):
            return PathDecision.NOT_LISTED
        if is_sensitive(path) and not self.allow_sensitive.matches(path):
            return PathDecision.SENSITIVE
        return PathDecision.ALLOWED

    def decide_link(self, path: str, target: str | None) -> PathDecision:
        """Decide about where a symlink leads.

        Args:
            path: The link.
            target: Its text; None where it is not known.
        """
        resolved = None if target is None else link_destination(path, target)
        return PathDecision.BAD_LINK if resolved is None else self.decide(resolved)

    def denied_in(self, section: Section) -> dict[str, PathDecision]:
        """Return the paths of a section that it must not touch, each with the reason."""
        if Mode.SUBMODULE in section.modes:
            return dict.fromkeys(section.paths, PathDecision.SUBMODULE)
        links = {section.new_path: section.target} if section.is_link else {}
        return self.denied(section.paths, links)

    def denied(
        self, paths: Iterable[str], links: Mapping[str, str | None]
    ) -> dict[str, PathDecision]:
        """Return the paths that a patch must not touch, each with the reason.

        The one rule for what a patch declares and for what it really changed.

        Args:
            paths: Declared or changed.
            links: Texts of the symlinks among them, None for one that is not known.
        """
        decisions = {path: self.decide(path) for path in paths}
        for path, target in links.items():
            if decisions[path] is PathDecision.ALLOWED:
                decisions[path] = self.decide_link(path, target)
        return {path: why for path, why in decisions.items() if why is not PathDecision.ALLOWED}


def is_hard_denied(path: str) -> bool:
    """Tell whether no list can allow the path.

    Letter case does not count for our own folder and git's: a repository may be checked out to a
    file system that ignores it.
    """
    components = path.split("/")
    if any(part in {"", ".", ".."} or part.lower() == GIT_FOLDER for part in components):
        return True
    return components[0].lower() == OWN_FOLDER


def is_sensitive(path: str) -> bool:
    """Tell whether a path is sensitive by default."""
    components = path.lower().split("/")
    name = components[-1]
    return (
        components[0] in SENSITIVE_FIRST
        or not SENSITIVE_ANYWHERE.isdisjoint(components)
        or name in SENSITIVE_NAMES
        or name.startswith(SENSITIVE_STARTS)
        or name.endswith(SENSITIVE_ENDS)
    )


def link_destination(path: str, target: str) -> str | None:
    """Return the path in the repository that a symlink leads to; None when it may lead out.

    A ``..`` behind a name is refused: that name may be a link itself, and the kernel goes up from
    where it leads, not from where it stands.

    Args:
        path: The link.
        target: Its text, taken from the folder of the link.
    """
    parts = [part for part in target.split("/") if part not in {"", "."}]
    climbs = len(list(takewhile(lambda part: part == "..", parts)))
    if target.startswith("/") or ".." in parts[climbs:]:
        return None
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return None if resolved == ".." or resolved.startswith("../") else resolved


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
