"""Files that tools load or obey without being asked, by ecosystem (contract 14.5.3).

A patch that brings one of them runs code that no test calls, or changes how the tests run. The
table is data: patterns of shell wildcards on names in lower case. The tests run a
small project of each ecosystem whose tools can be had.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
