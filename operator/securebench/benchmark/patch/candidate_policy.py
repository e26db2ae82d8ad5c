"""Which paths of a candidate patch are applied (contract 14.5.3).

First comes the table of files that tools load or obey without being asked, by ecosystem. A patch
that brings one of them runs code that no test calls, or changes how the tests run. The table is
data: patterns of shell wildcards on names in lower case.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import sys
import unicodedata
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import takewhile
from typing import TYPE_CHECKING

from securebench.benchmark.patch.reader import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.benchmark.patch.reader import Section


@dataclass(frozen=True, slots=True)
class Ecosystem:
    """What the tools of an ecosystem load or obey.

    Attributes:
        files: Names of files, in every folder.
        parts: Names of folders or files, in every folder.
        places: Regular expressions for whole paths.
        tests: Names of files that are tests wherever they are.
        new_tests: Names of files that are loaded as tests; a file that exists may be source.
        shadows: Regular expressions for whole paths of new files that hide a library of the tests.
    """

    files: str = ""
    parts: str = ""
    places: tuple[str, ...] = ()
    tests: str = ""
    new_tests: str = ""
    shadows: tuple[str, ...] = ()


TEST_TOOLS = (
    "_hypothesis_* _pytest anyio attr attrs behave colorama coverage ddt django exceptiongroup"
    " execnet freezegun hypothesis importlib_metadata iniconfig mock nose nose2 nox numpy packaging"
    " parameterized pluggy py pygments pytest pytest_* responses six sortedcontainers sybil"
    " testfixtures testtools tomli tox trio twisted typing_extensions unittest xdist"
)
"""Modules that tests in Python load or run by, outside of the standard library."""
ROOT_TOOLS = (
    "_pytest exceptiongroup iniconfig packaging pluggy py pytest sitecustomize tomli unittest"
    " usercustomize"
)
"""Folders and modules of the root that ``python3 -m pytest`` would find before pytest's own."""

_RUBY_LIBRARY = (
    "benchmark|bundler|coverage|date|delegate|digest|english|erb|etc|fileutils|forwardable|json"
    "|logger|minitest|monitor|observer|open3|optparse|ostruct|pp|psych|rake|rspec|rubygems"
    "|securerandom|set|shellwords|singleton|socket|stringio|tempfile|test/unit|test-unit|time"
    "|timeout|tmpdir|weakref|yaml"
)
_JVM_LIBRARY = (
    "junit|org/(?:apache/maven|apiguardian|assertj|easymock|gradle|hamcrest|junit|mockito"
    "|opentest4j|spockframework|testng)"
)
_GO_HOSTS = r"(?:[a-z0-9-]+\.)+(?:com|org|net|io|in|dev|tools|sh|xyz)"

TEST_FOLDERS = (
    "test tests __tests__ __mocks__ __snapshots__ __fixtures__ testdata *[-_.]tests tests[-_]*"
    " e2e_test integration_test unit_test"
)
"""Names of folders, in every folder, whose files are tests or data of tests."""

ECOSYSTEMS = {
    "all": Ecosystem(
        tests="*[-_.]test.* *[-_.]tests.*",
    ),
    "python": Ecosystem(
        files=".coveragerc* .flake8 .mypy.ini .noserc .pylintrc .python-version .pytest.*"
        " constraints.txt hatch.toml mypy.ini nose.cfg nose2.cfg noxfile.* pdm.toml pipfile"
        " pytest.* pyproject.toml pyvenv.cfg requirements.txt requirements-dev.txt"
        " requirements-test.txt run_tests.* runtests.* setup.cfg setup.py test-requirements.txt"
        " tox.ini unittest.cfg uv.toml *.pth",
        parts="*.dist-info *.egg *.egg-info *.egg-link .eggs .hypothesis .nox .pytest_cache .tox"
        " .venv __pycache__ __pypackages__ conftest conftest.* dist-packages egg-info"
        " site-packages sitecustomize sitecustomize.* usercustomize usercustomize.*",
        places=(r"manage\.py", r"venv/.*"),
        tests="test_*.py test.py tests.py",
        new_tests="test*.py",
    ),
    "node": Ecosystem(
        files=".babelrc* .c8rc* .env* .mocharc* .node-version .npmrc .nvmrc .nycrc* .pnp.*"
        " .pnpmfile.* .swcrc .taprc .yarnrc* ava.config.* babel.config.* bun.lockb bunfig.toml"
        " cypress.* deno.json* gruntfile.* gulpfile.* jasmine.json jest.* jest-*.config.*"
        " jsconfig.json karma.conf.* lerna.json mocha.opts npm-shrinkwrap.json nx.json nyc.config.*"
        " package.json package-lock.json playwright.config.* pnpm-*.yaml rollup.config.*"
        " setuptests.* tsconfig*.json turbo.json vite.config.* vitest.* web-test-runner.*"
        " webpack.config.* wdio.conf.*",
        parts="node_modules .husky .nyc_output .yarn",
        tests="*[-.]spec.*[jt]s *[-.]spec.[jt]sx *_spec.[jt]s test.*[jt]s test-*.*[jt]s",
    ),
    "go": Ecosystem(
        files="go.mod go.sum go.work go.work.sum",
        places=(r"vendor/modules\.txt", rf"vendor/{_GO_HOSTS}/.*"),
    ),
    "rust": Ecosystem(
        files=".clippy.toml cargo.toml clippy.toml cross.toml nextest.toml rust-toolchain*",
        parts=".cargo",
        places=(r"target/.*", r"(?!(?:.*/)?src/)(?:.*/)?build\.rs"),
        tests="test.rs tests.rs",
    ),
    "make": Ecosystem(
        files=".bazelrc .justfile *.bzl *.cmake *.mak *.mk build build.bazel build.ninja build.zig"
        " build.zig.zon cmakelists.txt cmakepresets.json cmakeuserpresets.json configure"
        " configure.ac gnumakefile justfile makefile makefile.am makefile.in makefile.inc"
        " meson.build meson.options meson_options.txt module.bazel sconscript"
        " sconstruct taskfile.* workspace workspace.bazel wscript xmake.lua",
        new_tests="test.c* test_*.c test_*.cc test_*.cpp",
    ),
    "jvm": Ecosystem(
        files="*.gradle *.gradle.kts *.sbt build.mill build.sc build.xml gradle.properties gradlew*"
        " ivy.xml junit-platform.* log4j2-test.* logback-test.* mvnw* org.junit.* org.mockito.*"
        " org.testng.* pom.xml testng.*",
        parts=".gradle .mvn buildsrc",
        places=(
            r"gradle/.*",
            r"(?:.*/)?gradle/wrapper/.*",
            r"(?:.*/)?mockito-extensions/.*",
            r"(?:.*/)?src/(?:android|common|functional|integration|jvm)test/.*",
        ),
        shadows=(rf"(?:.*/)?(?:groovy|java|kotlin|scala)/(?:{_JVM_LIBRARY})/.*",),
    ),
    "php": Ecosystem(
        files=".phpunit* .user.ini *.phar behat.y*ml codeception.y*ml composer.json pest.php"
        " php.ini phpspec.y*ml phpunit.*",
        places=(r"vendor/(?:autoload\.php|bin/.*|composer/.*|phpunit/.*)",),
        tests="*.phpt",
    ),
    "ruby": Ecosystem(
        files=".irbrc .rspec* .ruby-version .simplecov *.gemspec *.rake capfile gemfile* gems.*"
        " guardfile rails_helper.rb rakefile* rubygems_plugin.rb spec_helper.rb test_helper.rb",
        parts=".bundle rakelib",
        places=(
            r"(?:.*/)?minitest/[^/]*_plugin\.rb",
            r"(?:.*/)?spec/support/.*",
            r"vendor/bundle/.*",
        ),
        tests="*_spec.rb test_*.rb",
        shadows=(rf"lib/(?:{_RUBY_LIBRARY})(?:\.rb|/.*)",),
    ),
    "dotnet": Ecosystem(
        files="*.csproj *.fsproj *.props *.runsettings *.sln *.slnx *.targets *.vbproj global.json"
        " nuget.config packages.config xunit.runner.json",
    ),
    "others": Ecosystem(
        files=".busted .formatter.exs .gdbinit .luacov .proverc .renviron .rprofile *.cabal"
        " analysis_options.yaml build.pl cabal.project* cpanfile dart_test.yaml makefile.pl mix.exs"
        " package.resolved package.swift package.yaml pubspec.* rebar.config setup.hs stack.yaml"
        " test_helper.exs",
        places=(r"config/[^/]*\.exs",),
        tests="*.t",
    ),
    "shell": Ecosystem(
        files="*.bash *.lock *.sh *.zsh .bash_profile .bashrc .envrc .mise.toml .profile"
        " .tool-versions .zshrc compose.y*ml docker-compose* dockerfile* mise.toml",
    ),
    "services": Ecosystem(
        files=".gitlab-ci.yml .pre-commit-config.yaml .travis.yml appveyor.yml azure-pipelines.yml"
        " bitbucket-pipelines.yml jenkinsfile",
        places=(r"(?:\.buildkite|\.circleci|\.github|\.gitlab|ci)(?:/.*)?",),
    ),
}

COMPILED = (
    "*.a *.beam *.class *.dll *.dylib *.egg *.elc *.exe *.gcda *.gcno *.gem *.jar *.lib *.node *.o"
    " *.obj *.pyc *.pyd *.pyo *.rlib *.rmeta *.so *.so.* *.war *.whl"
)
"""What a compiler made: nobody can read it, and a tool takes it for the source beside it."""

TEST_ROOTS = frozenset({"e2e", "spec", "specs", "t", "testing", "unittests", "xt"})
"""Folders of the root that are usually the tests; a file that exists in them may be source."""

MODULE_ROOTS = {"src": True, "lib": False, "python": False}
"""Folders of the root that are usually on Python's path; whether names of the standard library
count there too, or only those of test tools."""

ROOT_SOURCES = frozenset({".c", ".cc", ".cpp", ".cxx", ".go", ".h", ".hh", ".hpp"})
"""Endings of languages whose projects often have their sources in the root."""
PROGRAM = re.compile(rb"^\+.*\bmain *\(", re.MULTILINE)
"""A new file of these languages with a function ``main`` is a program of its own."""

INLINE_TESTS = frozenset({".d", ".rs", ".zig"})
"""Endings of languages that keep tests and source in one file."""

_REMOVED = frozenset({"asyncore", "distutils", "imp", "lib2to3"})
STANDARD_LIBRARY = frozenset(name.lower() for name in sys.stdlib_module_names) | _REMOVED


def wildcards(names: str) -> re.Pattern[str]:
    """Return one expression for many shell wildcards."""
    return re.compile("|".join(map(fnmatch.translate, names.split())) or r"(?!)")


def expressions(places: Iterable[str]) -> re.Pattern[str]:
    """Return one expression for many that stand for whole paths."""
    return re.compile("|".join(f"(?:{place})\\Z" for place in places))


@cache
def table() -> tuple[re.Pattern[str], ...]:
    """Return files, parts, places, tests, new tests and shadows of all ecosystems."""
    every = ECOSYSTEMS.values()
    return (
        wildcards(" ".join(each.files for each in every)),
        wildcards(" ".join(each.parts for each in every)),
        expressions(place for each in every for place in each.places),
        wildcards(" ".join(each.tests for each in every)),
        wildcards(" ".join(each.new_tests for each in every)),
        expressions(place for each in every for place in each.shadows),
    )


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
        files, parts, places, tests, _, _ = table()
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
        *_, new_tests, shadows = table()
        folder, _, name = folded.rpartition("/")
        if new_tests.match(name):
            return PathDecision.TEST
        if shadows.match(folded) or self._hides_module(folder, name):
            return PathDecision.SHADOW
        is_beside = not folder or folder == self.workdir.lower()
        is_beside = is_beside or folded.split("/", maxsplit=1)[0] in TEST_ROOTS
        return PathDecision.NEW if is_beside and not self.allow else PathDecision.ALLOWED

    def _hides_module(self, folder: str, name: str) -> bool:
        """Tell whether a new file is a module in a place where Python looks for its own."""
        stem, _, ending = name.partition(".")
        if ending != "py":
            return False
        if stem == "__init__":
            folder, _, stem = folder.rpartition("/")
        if _TEST_TOOLS.match(stem) and folder in MODULE_ROOTS:
            return True
        with_library = not folder or folder == self.workdir.lower()
        with_library = with_library or MODULE_ROOTS.get(folder, False)
        with_library = with_library or folder in {
            _folded(posixpath.dirname(path)) for path in self.test_paths
        }
        is_known = stem in STANDARD_LIBRARY or _TEST_TOOLS.match(stem) is not None
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
            is_part = ending in ROOT_SOURCES and not PROGRAM.search(text)
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


_TEST_FOLDERS = wildcards(TEST_FOLDERS)
_COMPILED = wildcards(COMPILED)
_ROOT_TOOLS = wildcards(ROOT_TOOLS)
_TEST_TOOLS = wildcards(TEST_TOOLS)


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
