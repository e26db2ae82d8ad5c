"""Which paths of a candidate patch are applied (contract 14.5.3)."""

from __future__ import annotations

import fnmatch
import posixpath
import re
import unicodedata
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING

from securebench.benchmark.patch import ecosystems
from securebench.benchmark.patch.sections import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.benchmark.patch.sections import Section

GIT_FOLDER = ".git"
OWN_FOLDER = "securebench"

DROP, REFUSE = "drop", "refuse"
"""Values of ``on_denied``."""


class PathDecision(Enum):
    """Whether a path may be touched; the value says why not."""

    ALLOWED = ""
    HARD_DENIED = "no policy can allow it"
    NOT_LISTED = "allow_paths does not list it"
    LOADED = "a tool loads or obeys it without being asked"
    COMPILED = "it is compiled"
    TEST = "it is a test, or the row's tests bring it"
    TEST_FOLDER = "it lies in a folder of tests"
    SHADOW = "its name hides a module that the tests load"
    NEW = "it is new in the root or beside the tests"
    BAD_LINK = "its target is not known or lies outside of the files of the repository"
    SUBMODULE = "a patch cannot move the commit of a submodule"


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
    """The lists of ``candidate_policy``, and what the row's tests say of paths.

    Attributes:
        allow: When not empty, every path has to match.
        allow_sensitive: Paths that are no source and allowed all the same.
        preserved: Sections that touch these are left out of the patch.
        on_denied: ``drop``, ``refuse``, or empty: refuse with ``allow_paths``, but drop what work
            inside of them leaves; without ``allow_paths`` drop.
        test_paths: Paths that the row's own patches bring.
        workdir: Folder in the repository where the tests start; empty for the root.
    """

    allow: Patterns
    allow_sensitive: Patterns
    preserved: Patterns
    on_denied: str = ""
    test_paths: AbstractSet[str] = field(default_factory=frozenset)
    workdir: str = ""

    @classmethod
    def of(
        cls,
        lists: Mapping[str, object],
        test_paths: AbstractSet[str] = frozenset(),
        workdir: str = "",
    ) -> CandidatePolicy:
        """Return the policy that a row gives; what it lacks is empty.

        Args:
            lists: Value of ``candidate_policy``, which passed its schema.
            test_paths: Paths that the row's own patches bring.
            workdir: Folder in the repository where the tests start.
        """
        return cls(
            Patterns(_strings(lists.get("allow_paths"))),
            Patterns(_strings(lists.get("allow_sensitive_paths"))),
            Patterns(_strings(lists.get("patch_preserved_paths"))),
            str(lists.get("on_denied") or ""),
            test_paths,
            workdir,
        )

    def drops(self, decisions: Iterable[PathDecision]) -> bool:
        """Tell whether a section is left out for these decisions, and not the patch refused."""
        decisions = frozenset(decisions)
        if PathDecision.HARD_DENIED in decisions:
            return False
        if self.on_denied or not self.allow:
            return self.on_denied != REFUSE
        return decisions <= _BY_PRODUCTS

    def decide(self, path: str, *, is_new: bool = True) -> PathDecision:
        """Decide about one path.

        Args:
            path: As the patch names it.
            is_new: Whether the patch makes the file.
        """
        if is_hard_denied(path):
            return PathDecision.HARD_DENIED
        if self.allow and not self.allow.matches(path):
            return PathDecision.NOT_LISTED
        decision = self._source(path, is_new=is_new)
        if decision is not PathDecision.ALLOWED and self.allow_sensitive.matches(path):
            return PathDecision.ALLOWED
        return decision

    def _source(self, path: str, *, is_new: bool) -> PathDecision:
        known = self.unasked(path)
        if known is not PathDecision.ALLOWED or not is_new:
            return known
        return self._new(_folded(path))

    def unasked(self, path: str) -> PathDecision:
        """Decide about a path by the table of ecosystems and the row's tests alone."""
        files, parts, places, tests, _, _ = ecosystems.table()
        folded = _folded(path)
        components = folded.split("/")
        name = components[-1]
        if _COMPILED.match(name):
            return PathDecision.COMPILED
        if any(map(_TEST_FOLDERS.match, components)):
            return PathDecision.TEST_FOLDER
        if tests.match(name) or (path in self.test_paths and not self.allow):
            return PathDecision.TEST
        is_loaded = (
            files.match(name)
            or any(map(parts.match, components))
            or places.match(folded)
            or _ROOT_TOOLS.match(components[0].removesuffix(".py"))
        )
        return PathDecision.LOADED if is_loaded else PathDecision.ALLOWED

    def _new(self, folded: str) -> PathDecision:
        """Decide about a new file that no table names."""
        *_, new_tests, shadows = ecosystems.table()
        folder, _, name = folded.rpartition("/")
        if new_tests.match(name):
            return PathDecision.TEST
        if shadows.match(folded) or self._hides_module(folder, name):
            return PathDecision.SHADOW
        is_beside = not folder or folder == self.workdir.lower()
        is_beside = is_beside or folded.split("/", maxsplit=1)[0] in ecosystems.TEST_ROOTS
        return PathDecision.NEW if is_beside and not self.allow else PathDecision.ALLOWED

    def _hides_module(self, folder: str, name: str) -> bool:
        """Tell whether a new file is a module in a place where Python looks for its own."""
        stem, _, ending = name.partition(".")
        if ending != "py":
            return False
        if stem == "__init__":
            folder, _, stem = folder.rpartition("/")
        if _TEST_TOOLS.match(stem) and folder in ecosystems.MODULE_ROOTS:
            return True
        with_library = not folder or folder == self.workdir.lower()
        with_library = with_library or ecosystems.MODULE_ROOTS.get(folder, False)
        with_library = with_library or folder in {
            _folded(posixpath.dirname(path)) for path in self.test_paths
        }
        is_known = stem in ecosystems.STANDARD_LIBRARY or _TEST_TOOLS.match(stem) is not None
        return with_library and is_known

    def decide_link(self, path: str, target: str | None) -> PathDecision:
        """Decide about where a symlink leads.

        Args:
            path: The link.
            target: Its text; None where it is not known.
        """
        resolved = None if target is None else link_destination(path, target)
        if resolved is None or is_hard_denied(resolved):
            return PathDecision.BAD_LINK
        return self.decide(resolved, is_new=False)

    def replaced(self, sections: Iterable[Section]) -> AbstractSet[str]:
        """Return what new files of a patch may take the place of.

        Returns:
            The paths that the patch deletes or moves, and for files of the root their endings.
        """
        gone: set[str] = set()
        made: set[str] = set()
        for each in sections:
            is_gone = each.is_deletion or (each.old_path != each.new_path and not each.is_copy)
            if is_gone and each.old_path not in made:
                gone.add(each.old_path)
            if each.is_addition:
                made.add(each.new_path)
        gone = {path for path in gone if self.decide(path, is_new=False) is PathDecision.ALLOWED}
        endings = {_ending(path) for path in gone if "/" not in path} - {""}
        return frozenset(gone | endings)

    def denied_in(
        self, section: Section, text: bytes = b"", replaced: AbstractSet[str] = frozenset()
    ) -> dict[str, PathDecision]:
        """Return the paths of a section that it must not touch, each with the reason.

        Args:
            section: Of a patch.
            text: Its lines.
            replaced: Paths that the patch deletes, and endings of those in the root.
        """
        if Mode.SUBMODULE in section.modes:
            return dict.fromkeys(section.paths, PathDecision.SUBMODULE)
        links = {section.new_path: section.target} if section.is_link else {}
        is_made = section.is_addition and section.new_path not in replaced
        made = frozenset({section.new_path} if is_made else ())
        denied = self.denied(section.paths, links, made)
        if section.is_copy and denied.get(section.old_path) not in _OF_READING:
            denied.pop(section.old_path, None)
        if denied.get(section.new_path) is PathDecision.NEW and "/" not in section.new_path:
            ending = _ending(section.new_path)
            is_part = ending in ecosystems.ROOT_SOURCES and not ecosystems.PROGRAM.search(text)
            if (is_part or ending in replaced) and not section.is_link:
                del denied[section.new_path]
        return denied

    def denied(
        self,
        paths: Iterable[str],
        links: Mapping[str, str | None],
        made: AbstractSet[str] = frozenset(),
    ) -> dict[str, PathDecision]:
        """Return the paths that a patch must not touch, each with the reason.

        The one rule for what a patch declares and for what it really changed.

        Args:
            paths: Declared or changed.
            links: Texts of the symlinks among them, None for one that is not known.
            made: Those among them that the patch makes.
        """
        decisions = {path: self.decide(path, is_new=path in made) for path in paths}
        for path, target in links.items():
            if decisions[path] in {PathDecision.ALLOWED, PathDecision.NEW}:
                decisions[path] = _first_denied(self.decide_link(path, target), decisions[path])
        return {path: why for path, why in decisions.items() if why is not PathDecision.ALLOWED}


_TEST_FOLDERS = ecosystems.wildcards(ecosystems.TEST_FOLDERS)
_COMPILED = ecosystems.wildcards(ecosystems.COMPILED)
_ROOT_TOOLS = ecosystems.wildcards(ecosystems.ROOT_TOOLS)
_TEST_TOOLS = ecosystems.wildcards(ecosystems.TEST_TOOLS)


def _first_denied(*decisions: PathDecision) -> PathDecision:
    denied = (decision for decision in decisions if decision is not PathDecision.ALLOWED)
    return next(denied, PathDecision.ALLOWED)


def _ending(path: str) -> str:
    return posixpath.splitext(path)[1].lower()


_BY_PRODUCTS = frozenset({PathDecision.COMPILED, PathDecision.SHADOW, PathDecision.TEST})
"""What even rows with ``allow_paths`` drop: tests and compiled files beside source."""
_OF_READING = frozenset({PathDecision.HARD_DENIED, PathDecision.NOT_LISTED})
"""Decisions that hold for a path that a section only copies from."""


def _folded(path: str) -> str:
    """Return a path in one form: no letter case, no other forms of the same letters."""
    return unicodedata.normalize("NFKC", path).lower()


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
    """Tell whether the table alone keeps a path out of a patch, be it new or not."""
    return CandidatePolicy.of({}).unasked(path) is not PathDecision.ALLOWED


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
