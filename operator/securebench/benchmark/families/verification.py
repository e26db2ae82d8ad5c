"""How candidates are verified: an algorithm scores, a command checks, or tests call them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.patch.candidate_policy import CandidatePolicy
from securebench.benchmark.patch.judgement import PatchJudgement, judge_patch
from securebench.benchmark.scorers.result import VerifierConfigurationError
from securebench.json_values import PATTERNS, described

if TYPE_CHECKING:
    from collections.abc import Callable

    from securebench.benchmark.resources import ResourceBundle
    from securebench.benchmark.scorers.result import VerificationResult

PYTEST, SCRIPT = CHECKER_SOURCES = ("pytest", "script")
"""Kinds of a file of the pack that checks a candidate."""

SEPARATE, SHARED = ISOLATIONS = ("separate", "shared")
"""Values of ``tests.isolation``: candidate and tests in containers of their own, or in one."""


SKIPS = described(
    PATTERNS,
    "Tests that may be skipped or fail as expected, by their pytest ids, with or without"
    " parameters; `*` stands for anything.",
    ["tests/test_x.py::test_on_windows"],
    [],
)


def texts_in(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    """Return the texts of a list in a row that holds; without it none."""
    value = fields.get(name)
    return tuple(map(str, value)) if isinstance(value, Sequence) else ()


class TextVerifier(NamedTuple):
    """A scoring algorithm that runs no code of anybody.

    Attributes:
        verify: Judges a candidate, None counts as empty, by the public and the hidden values;
            raises VerifierConfigurationError for an unusable row.
        configuration_problem: Says of the same values why no candidate can be judged, or None.
    """

    verify: Callable[[str | None, Mapping[str, object], Mapping[str, object]], VerificationResult]
    configuration_problem: Callable[[Mapping[str, object], Mapping[str, object]], str | None]


def passes(scorer: TextVerifier, resources: ResourceBundle, text: str) -> bool:
    """Tell whether an answer passes; with a row that cannot be judged none does."""
    try:
        verdict = scorer.verify(text, resources.agent_payload(), resources.hidden_payload())
    except VerifierConfigurationError:
        return False
    return verdict.passed


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """How a patch of the candidate is checked (contract 14.5).

    Attributes:
        policy: Value of the row's ``candidate_policy``.
        test_paths: Paths that only the row's own patches change.
        folder: Where the tests start, in the repository; empty for its root.
    """

    policy: Mapping[str, object]
    base_commit: str
    has_setup: bool
    has_test: bool
    has_control: bool
    test_paths: frozenset[str] = frozenset()
    folder: str = ""

    @property
    def candidate_policy(self) -> CandidatePolicy:
        """The task's policy."""
        return CandidatePolicy.of(self.policy, self.test_paths, self.folder)

    def judged(self, text: str | bytes) -> PatchJudgement:
        """Return what a candidate's text says of it; never raises."""
        return judge_patch(text, self.candidate_policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What a row says of the command that checks its candidate in the task's image.

    Attributes:
        command: A string for the shell or a list of words; None for a file of the pack.
        base: Absolute folder that a relative ``workdir`` starts from; empty: the workspace.
        workdir: As written, or None.
        timeouts: Seconds as written; the first that is a number holds.
        needed_commands: Commands that need a capability.
        patch: Present where the candidate is a patch to the image's repository.
        skips: Ids, or patterns of them, of tests that may be skipped.
        plugins: Plugins of the image's pytest that run beside a file of the pack.
    """

    command: object
    base: str = ""
    workdir: object = None
    timeouts: tuple[object, ...] = ()
    needed_commands: tuple[str, ...] = ()
    patch: PatchPlan | None = None
    skips: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodePlan:
    """How a candidate module is tested.

    Attributes:
        timeout_seconds: Time limit of import and tests together.
        isolation: ``separate``: candidate and tests in containers of their own; ``shared``: in
            one interpreter.
        declared: Names of builtins and standard modules that the task asks the candidate to define.
        repeat: So many calls of the tests are made again in fresh workers.
    """

    timeout_seconds: float
    isolation: str
    declared: tuple[str, ...]
    repeat: int = 0

    @property
    def is_shared(self) -> bool:
        """Whether candidate code runs where the tests run."""
        return self.isolation == SHARED
