"""Static checks of a pack that was read; nothing of the pack runs.

``lint_pack`` gives the findings of ``securebench pack lint`` (contract 2.2). ``lint_graders``
checks everything that grades the tasks:

- Python test sources are compiled by our own Python. Versions of Python differ in what they accept.
  What only some of them refuse is a doubt, because the task's image has its own Python; everything
  else is certain.
- Patches that an author wrote are read as ``git apply`` reads them: with counted hunks. git is
  lenient in a way that hides mistakes: lines after the counted ones, and a file header without a
  hunk, change nothing, and git does not report them. Here they are defects.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.benchmark.families.base import PYTEST
from securebench.benchmark.families.registry import EVAL_VISIBILITY, FAMILIES, row_families
from securebench.benchmark.files.folders import WHOLE_PACK
from securebench.benchmark.files.load import asset_source
from securebench.benchmark.pack.lane_plan import (
    FileReference,
    asset_root,
    checker_reference,
    materialization_plan,
)
from securebench.benchmark.pack.paths import (
    EVALUATION_ROOT,
    WITHOUT_EFFECT,
    is_at_or_below,
    safe_relative_path,
)
from securebench.benchmark.reading.rows import (
    ASSET_KEYS,
    ASSET_KEYS_WITHOUT_EFFECT,
    verifier_configuration_problem,
)
from securebench.benchmark.resources import Component
from securebench.errors import PackError
from securebench.text import did_you_mean

if TYPE_CHECKING:
    from securebench.benchmark.files.load import CheckedPack
    from securebench.benchmark.pack.task import CompiledTask, SecureBenchTask
    from securebench.benchmark.reading.plain import KeyPath
    from securebench.benchmark.reading.rows import BenchmarkManifest, BenchmarkRow


_CLOSED = ("checker", "tests", "candidate_policy")
"""Eval keys whose own keys the row schema checks."""


SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class Severity(StrEnum):
    """Errors stop a run; warnings do so with ``--strict`` only."""

    ERROR = "error"
    WARNING = "warning"


class LintRule(StrEnum):
    """What a finding is about."""

    PACK = "pack"
    UNKNOWN_KEY = "unknown-key"
    NO_EFFECT = "no-effect"
    VERIFIER_CONFIGURATION = "verifier-configuration"
    ALLOW_PATHS = "allow-paths"
    EXIT_CODE = "exit-code"
    IMAGE_DIGEST = "image-digest"
    ASSET_KEY = "asset-key"
    ASSET_ROOTS = "asset-roots"
    SECRET_NAME = "secret-name"  # noqa: S105 - a rule's name
    ARTIFACT_PATH = "artifact-path"
    GRADER = "grader"
    TOLERANCE = "tolerance"
    ISOLATION = "isolation"
    HARBOR_FOLDER = "harbor-folder"


_HINTS: Final[Mapping[LintRule, str]] = {
    LintRule.UNKNOWN_KEY: "remove it; notes of your own belong in a row's metadata",
    LintRule.NO_EFFECT: "remove it",
    LintRule.VERIFIER_CONFIGURATION: "correct eval of the row",
    LintRule.EXIT_CODE: "start pytest itself in the command; docs/reference/checks.md says how",
    LintRule.ALLOW_PATHS: "list what a fix may change in candidate_policy.allow_paths",
    LintRule.IMAGE_DIGEST: "write name@sha256:<64 hex digits>",
    LintRule.ASSET_KEY: "remove it",
    LintRule.ASSET_ROOTS: "name two folders of which none lies in the other",
    LintRule.SECRET_NAME: "remove it unless the agent is meant to have it",
    LintRule.ARTIFACT_PATH: "remove artifact_path",
    LintRule.GRADER: "correct it",
    LintRule.ISOLATION: "set eval.tests.isolation to shared where the tests need it",
    LintRule.TOLERANCE: "say in eval.tolerance how far a number may be off",
}
"""What to do, by rule; defects of the pack itself say it in their message."""


_INPUT_KEY: Final = re.compile(r"\binput\.\w+")


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One error or warning.

    Args:
        path: File as the user named it, or None.
        line: Number from 1, or None.
        message: One sentence; no hidden value.
        rule: For filters; `securebench run` prints ``unknown-key``.
    """

    severity: Severity
    path: str | None
    line: int | None
    message: str
    rule: LintRule = LintRule.PACK

    @property
    def hint(self) -> str:
        """What to do, or empty where the message says it."""
        if self.message.endswith("?"):
            return ""
        of_input = _INPUT_KEY.search(self.message)
        if self.rule is LintRule.VERIFIER_CONFIGURATION and of_input is not None:
            return f"correct {of_input[0]}"
        return _HINTS.get(self.rule, "")

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        return f"{place}: {self.message}" if place else self.message


def lint_pack(checked: CheckedPack) -> tuple[LintFinding, ...]:
    """Return errors, then the warnings of the manifest, then those of the rows."""
    errors = [
        LintFinding(Severity.ERROR, error.path, error.line, error.reason)
        for error in checked.errors
    ]
    if checked.pack is None:
        return tuple(errors)
    path = checked.pack.tasks_path
    warnings = [
        *_manifest_warnings(checked.pack.manifest),
        *(finding for item in checked.tasks for finding in _task_warnings(item, path)),
    ]
    return (*errors, *warnings)


def lint_harness(
    env_names: Iterable[str],
    *,
    artifact_path: str | None = None,
    takes_checkout: bool = False,
    task_types: Iterable[str] | None = (),
    path: str | None = None,
) -> tuple[LintFinding, ...]:
    """Return the warnings of a harness.

    Args:
        env_names: ``harness.env``.
        artifact_path: Artifact path of a command harness, or None.
        takes_checkout: Whether the difference of a checkout is its candidate.
        task_types: Families of the pack's tasks; None where rows with errors may have others. Then
            nothing is said that depends on them.
        path: Tester YAML as the user named it.
    """
    findings = [
        _warning(
            LintRule.SECRET_NAME,
            path,
            None,
            f"harness.env {name!r} looks like a secret; the agent's container can read it",
        )
        for name in env_names
        if name.upper().endswith(SECRET_SUFFIXES)
    ]
    if task_types is None:
        return tuple(findings)
    kinds = {name: FAMILIES[name].candidate_kind for name in task_types if name in FAMILIES}
    of_workspace = sorted(name for name, kind in kinds.items() if kind == "workspace")
    if artifact_path is not None and of_workspace:
        message = (
            "harness.config.artifact_path wins over the workspace:"
            f" no {' or '.join(of_workspace)} can pass"
        )
        findings.append(_warning(LintRule.ARTIFACT_PATH, path, None, message))
    if takes_checkout and "patch" not in kinds.values():
        names = (name for name, family in FAMILIES.items() if family.candidate_kind == "patch")
        what = f"git_diff is for {' and '.join(names)} tasks"
        message = f"harness.config.extraction: {what}; the pack has none"
        findings.append(_warning(LintRule.NO_EFFECT, path, None, message))
    return tuple(findings)


def _manifest_warnings(manifest: BenchmarkManifest) -> Iterator[LintFinding]:
    for key, line in manifest.unknown_keys:
        yield _warning(LintRule.UNKNOWN_KEY, manifest.path, line, f"unknown manifest key {key!r}")
    environment = manifest.default_environment
    parent: KeyPath = ("defaults", "environment")
    for key in WITHOUT_EFFECT:
        if key in environment:
            line = manifest.lines.get((*parent, key))
            yield _without_effect(key, manifest.path, line)
    if _lacks_digest(environment):
        line = manifest.lines.get((*parent, "image"))
        yield _image_without_digest(manifest.path, line)
    if manifest.asset_roots.public == WHOLE_PACK:
        return
    public = safe_relative_path(manifest.asset_roots.public, "asset_roots.public")
    private = safe_relative_path(manifest.asset_roots.eval, "asset_roots.eval")
    if is_at_or_below(public, private) or is_at_or_below(private, public):
        message = "asset_roots overlap: a public asset could hold files of the eval root"
        line = manifest.lines.get(("asset_roots",))
        yield _warning(LintRule.ASSET_ROOTS, manifest.path, line, message)


def _task_warnings(item: CompiledTask, path: str | None) -> Iterator[LintFinding]:
    row, task = item
    is_row = task.task_type in row_families()
    for rule, message in _task_messages(item):
        context = f"task {task.id!r} ({task.task_type}): {message}"
        yield _warning(rule, path, row.line, context)
    for key in WITHOUT_EFFECT if is_row else ():
        if key in row.environment:
            yield _without_effect(key, path, row.line)
    if _lacks_digest(row.environment):
        yield _image_without_digest(path, row.line)


def _task_messages(item: CompiledTask) -> Iterator[tuple[LintRule, str]]:
    row, task = item
    for key in row.unknown_keys:
        yield LintRule.UNKNOWN_KEY, f"unknown row key {key!r}"
    for index, asset in enumerate(row.assets):
        for key in sorted(asset.keys() & ASSET_KEYS_WITHOUT_EFFECT):
            yield LintRule.ASSET_KEY, f"assets[{index}].{key} has no effect"
    yield from _eval_messages(row)
    family = FAMILIES.get(task.task_type)
    for advice in () if family is None else family.advice(row.eval):
        yield LintRule(advice.rule), advice.message


def _eval_messages(row: BenchmarkRow) -> Iterator[tuple[LintRule, str]]:
    """Yield the keys without a meaning that stay hidden (contract 21.18)."""
    known = EVAL_VISIBILITY[row.family]
    for key in sorted(row.eval.keys() - known.keys()):
        yield (
            LintRule.UNKNOWN_KEY,
            f"unknown key eval.{key}, it stays hidden{did_you_mean([key], known)}",
        )
    for name, value in row.eval.items():
        if isinstance(value, Mapping) and "path" in value and name not in _CLOSED:
            for key in sorted(value.keys() - ASSET_KEYS):
                hint = did_you_mean([key], ASSET_KEYS)
                message = (
                    f"unknown key eval.{name}.{key}: the value is data and names no file{hint}"
                )
                yield LintRule.UNKNOWN_KEY, message


def _lacks_digest(environment: Mapping[str, object]) -> bool:
    image = environment.get("image")
    return isinstance(image, str) and "@sha256:" not in image


def _image_without_digest(path: str | None, line: int | None) -> LintFinding:
    return _warning(
        LintRule.IMAGE_DIGEST, path, line, "environment.image has no digest; its tag may move"
    )


def _without_effect(key: str, path: str | None, line: int | None) -> LintFinding:
    return _warning(LintRule.NO_EFFECT, path, line, f"environment.{key} has no effect")


def _warning(rule: LintRule, path: str | None, line: int | None, message: str) -> LintFinding:
    return LintFinding(Severity.WARNING, path, line, message, rule)


class GraderProblem(NamedTuple):
    """One defect of what grades a task.

    Attributes:
        message: One sentence with file and line of the defect; no hidden value.
        is_certain: False where the task's image may know better.
        rule: What it breaks.
    """

    message: str
    is_certain: bool = True
    rule: LintRule = LintRule.GRADER


NO_TEST: Final = "holds no test that pytest could find: no function test_…, no class Test…"


CONFTEST: Final = "conftest.py"


_PYTHON_LINE: Final = re.compile(rb"#!.*\bpython[0-9.]*\b")


_PLACE: Final = re.compile(rf"(?<![\w.-]){re.escape(EVALUATION_ROOT)}/([\w./-]*\w)")
"""A path of a command that can only be a file which the pack brings for the check."""


def lint_graders(checked: CheckedPack) -> tuple[LintFinding, ...]:
    """Return what is wrong with what judges: answers, tests, checkers, patches; in file order.

    Args:
        checked: What ``check_pack`` found; rows that do not hold are left out.

    Returns:
        Errors for what is certain in every image, warnings for the rest.
    """
    if checked.pack is None:
        return ()
    root = Path(checked.pack.manifest.path or "").parent
    path = checked.pack.tasks_path
    return tuple(
        LintFinding(
            Severity.ERROR if problem.is_certain else Severity.WARNING,
            path,
            item.row.line,
            f"task {item.task.id!r} ({item.task.task_type}): {problem.message}",
            problem.rule,
        )
        for item in checked.tasks
        for problem in _problems(item.task, root)
    )


def _problems(task: SecureBenchTask, root: Path) -> Iterator[GraderProblem]:
    family = FAMILIES.get(task.task_type)
    if family is None:
        return
    answers = [*map(GraderProblem, family.answer_problems(task))]
    yield from answers
    problem = None if answers else verifier_configuration_problem(task)
    if problem is not None:
        said = f"this task can never score: {problem}"
        yield GraderProblem(said, rule=LintRule.VERIFIER_CONFIGURATION)
    for name, source in family.test_sources(task):
        found = source_problem(source, name)
        if found is not None:
            yield found
    for name, patch in family.patches(task):
        broken = patch_problem(patch)
        if broken is not None:
            yield GraderProblem(f"{name}, {broken}")
    try:
        if family.has_checker:
            yield from _checker(task, root)
    except PackError:
        return  # an error of the pack itself, which check_pack names


def _checker(task: SecureBenchTask, root: Path) -> Iterator[GraderProblem]:
    checker = task.resources.value("checker")
    if not isinstance(checker, Mapping):
        return
    reference = checker_reference(task)
    if reference is None:
        yield from _command_places(task, checker.get("command"))
        return
    source = asset_source(root, asset_root(task, reference.lane), reference)
    if checker.get("source") == PYTEST:
        yield from _pytest_sources(reference, source)
    elif _is_python(source):
        yield from _compiled(source, reference.source)


def _command_places(task: SecureBenchTask, command: object) -> Iterator[GraderProblem]:
    """Yield files below the evaluation inputs that a command names and the task does not bring."""
    words = command if isinstance(command, list) else [command]
    known = materialization_plan(task, Component.TEST_SANDBOX).paths
    named = {match[0] for word in words if isinstance(word, str) for match in _PLACE.finditer(word)}
    for place in sorted(named):
        if not any(is_at_or_below(place, path) or is_at_or_below(path, place) for path in known):
            said = f"eval.checker.command names {place!r}, which the task has not"
            yield GraderProblem(f"{said}: bring it by eval.test_files or eval.run_tests")


def _pytest_sources(reference: FileReference, source: Path) -> Iterator[GraderProblem]:
    if source.is_file():
        found = list(_compiled(source, reference.source))
        yield from found
        if not found and has_no_test(source.read_bytes()):
            yield GraderProblem(f"{reference.source} {NO_TEST}")
        return
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
    tests = [name for name in names if is_test_module(name)]
    found = [
        problem
        for name in names
        for problem in _compiled(source / name, f"{reference.source}/{name}", is_test=name in tests)
    ]
    yield from found
    is_plain = not found and not any(name.rpartition("/")[2] == CONFTEST for name in names)
    if is_plain and all(has_no_test((source / name).read_bytes()) for name in tests):
        yield GraderProblem(f"{reference.source} {NO_TEST}")


def _compiled(path: Path, name: str, *, is_test: bool = True) -> Iterator[GraderProblem]:
    found = source_problem(path.read_bytes(), name)
    if found is not None:
        yield found._replace(is_certain=found.is_certain and is_test)


def _is_python(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        first = file.readline(256)
    return _PYTHON_LINE.match(first) is not None


_OLDER_WORDS: Final = re.compile(
    r"Missing parentheses in call to|multiple exception types must be parenthesized"
    r"|leading zeros in decimal|invalid (?:decimal|hexadecimal|octal) literal"
    r"|inconsistent use of tabs|Generator expression must be parenthesized"
    r"|inside (?:list|set|dict|generator) (?:comprehension|expression)|parenthesized context"
    r"|f-string|t-string"
)
"""What compilers say of syntax that another version takes: Python 2, or string forms since 3.12."""


_OTHER_SYNTAX: Final = re.compile(
    r"""^\s*(?:print|exec|raise)\s+[^(=\s]   # statements of Python 2
    |^\s*except\s+[^:(]+,                    # Python 2, and again since 3.14
    |<>|`|\bur['"]                           # operators and prefixes of Python 2
    |\b(?:async|await)\b                     # names before 3.7
    |\b[rR]?[fFtT][rR]?['"]                  # quotes within f-strings since 3.12, t-strings
    |^\s*(?:async\s+)?(?:def|class|type)\s+\w+\s*\[   # type parameters since 3.12
    |^\s*type\s+\w+\s*=                      # since 3.12
    |^\s*lazy\s+(?:import|from)\b            # since 3.15
    """,
    re.VERBOSE,
)
"""Lines that another version than ours may take."""


_MAKES_TESTS: Final = frozenset(
    {"globals", "exec", "eval", "setattr", "vars", "pytest_generate_tests"}
)
"""Names with which a module may get tests that its text does not show."""


def source_problem(source: bytes | str, name: str) -> GraderProblem | None:
    """Return why a Python source does not compile, or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        words = f"{name}, line {error.lineno or 1}: {error.msg}"
        if _is_certain(error):
            return GraderProblem(words)
        doubt = "another version of Python, as the image's may be, could take it"
        return GraderProblem(f"{words}; {doubt}", is_certain=False)
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return GraderProblem(f"{name} cannot be compiled here: {error}", is_certain=False)
    return None


def has_no_test(source: bytes) -> bool:
    """Return whether pytest certainly finds no test in a source that compiles.

    Anything that could make tests in another way than by ``def test…`` and classes counts as one.
    """
    return not any(map(_may_be_test, ast.walk(ast.parse(source))))


def _is_certain(error: SyntaxError) -> bool:
    line = error.text or ""
    return not (_OLDER_WORDS.search(error.msg) or _OTHER_SYNTAX.search(line))


def _may_be_test(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name.startswith(("test", "pytest_"))
        case ast.ClassDef(name=name, bases=bases, decorator_list=decorators):
            return name.startswith("Test") or bool(bases) or bool(decorators)
        case ast.ImportFrom(names=names) | ast.Import(names=names):
            return any(_is_test_name(alias.asname or alias.name) for alias in names)
        case ast.Name(id=name):
            return name in _MAKES_TESTS or _is_test_name(name)
        case ast.Attribute(attr=name):
            return name == "modules"
        case _:
            return False


def _is_test_name(name: str) -> bool:
    return name == "*" or name.startswith(("test", "Test"))


def is_test_module(name: str) -> bool:
    """Return whether pytest collects a file of this name from a folder by itself."""
    base = name.rpartition("/")[2]
    return base.endswith("_test.py") or (base.startswith("test_") and base.endswith(".py"))


_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.ASCII)


_SECTION: Final = "diff --git "


_BINARY: Final = "GIT binary patch"


_NO_LINE_END: Final = "\\"


_OF_A_HUNK: Final = (" ", "+", "-")


_SIGNATURES: Final = ("-- ", "--- ")
"""How mails end and how the next file begins; both may follow a hunk."""


_WITHOUT_HUNKS: Final = (
    "rename from ",
    "copy from ",
    "old mode ",
    "new file mode ",
    "deleted file mode ",
    _BINARY,
)


class _Problem(NamedTuple):
    line: int
    text: str


def patch_problem(text: str) -> str | None:
    """Return the first defect of a patch with its line in the patch, or None.

    Args:
        text: A patch in git's format; sections may have extended headers and binary parts.
    """
    found = _Reader(text).problem()
    return None if found is None else f"line {found.line}: {found.text}"


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.removesuffix("\n").split("\n")
        self._at = 0
        self._file = ""
        self._hunk = 0
        self._has_header = False
        self._is_section = False
        self._changes = False

    def problem(self) -> _Problem | None:
        while self._at < len(self._lines):
            found = self._step(self._lines[self._at])
            if found is not None:
                return found
        return None if self._changes else _Problem(1, "the patch changes nothing")

    def _step(self, line: str) -> _Problem | None:
        if line.startswith(_SECTION):
            self._file, self._hunk = line.rsplit(maxsplit=1)[-1].removeprefix("b/"), 0
            self._has_header, self._is_section = False, True
        elif line.startswith("@@"):
            return self._read_hunk(line)
        elif line.startswith("--- ") and self._next().startswith("+++ "):
            return self._header()
        elif line.startswith(("--- ", "+++ ")) and self._is_section:
            return self._here(f"the lines --- and +++ of {self._file} do not follow each other")
        elif line.startswith(_SIGNATURES):
            self._hunk = 0
        elif self._hunk and line.startswith(("+", "-")):
            return self._here(f"a changed line of {self._file} belongs to no hunk")
        elif line.startswith(_WITHOUT_HUNKS):
            self._changes = True
        self._at += 1
        if line.startswith(_BINARY):
            self._skip_section()
        return None

    def _next(self) -> str:
        return self._lines[self._at + 1] if self._at + 1 < len(self._lines) else ""

    def _header(self) -> _Problem | None:
        name = self._next()[4:].split("\t")[0].strip()
        if name != "/dev/null":
            self._file = name.removeprefix("b/")
        self._hunk, self._has_header, self._is_section = 0, True, False
        self._at += 2
        if self._at == len(self._lines) or not self._lines[self._at].startswith("@@"):
            return self._here(f"a hunk of {self._file} (@@ -… +… @@) should follow")
        return None

    def _skip_section(self) -> None:
        while self._at < len(self._lines) and not self._lines[self._at].startswith(_SECTION):
            self._at += 1

    def _here(self, text: str, line: int | None = None) -> _Problem:
        return _Problem((self._at if line is None else line) + 1, text)

    def _read_hunk(self, header: str) -> _Problem | None:
        self._hunk += 1
        name = f"hunk {self._hunk} of {self._file}"
        match = _HUNK.match(header)
        if not self._has_header:
            return self._here("a hunk stands before the lines --- and +++ of its file")
        if match is None:
            return self._here(f"{name} does not begin with @@ -m,n +m,n @@")
        first = self._at
        counts = (int(match[1] or 1), int(match[2] or 1))
        self._at += 1
        return self._read_lines(name, first, counts) or self._behind(name, first)

    def _read_lines(self, name: str, first: int, counts: tuple[int, int]) -> _Problem | None:
        old, new = counts
        changed = False
        while old > 0 or new > 0:
            sign = self._sign()
            if sign == _NO_LINE_END:
                self._at += 1
                continue
            if sign not in _OF_A_HUNK:
                said = f"{name} announces {counts[0]} old and {counts[1]} new lines"
                return self._here(f"{said}, and {old} and {new} of them are missing", first)
            old, new = old - (sign != "+"), new - (sign != "-")
            if min(old, new) < 0:
                return self._here(f"{name} has other lines here than its @@ line announces")
            changed = changed or sign != " "
            self._at += 1
        self._changes = True
        return None if changed else self._here(f"{name} changes nothing: git refuses it", first)

    def _sign(self) -> str:
        """Return how the current line begins; a blank one is context, behind the end is nothing."""
        return (self._lines[self._at][:1] or " ") if self._at < len(self._lines) else ""

    def _behind(self, name: str, first: int) -> _Problem | None:
        line = self._lines[self._at] if self._at < len(self._lines) else ""
        if line.startswith(_OF_A_HUNK) and not line.startswith(_SIGNATURES):
            text = f"{name} has more lines than its @@ line (line {first + 1}) announces"
            return self._here(f"{text}: git leaves them out without a word")
        return None
