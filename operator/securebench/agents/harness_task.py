"""A harness on one task: prompt, time limit, and where its candidate comes from.

Source: contract 12.2, 12.5, 13.1, 15.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.agents.harness_config import CommandHarness
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.paths import TIMEOUT_PROBLEM
from securebench.errors import ConfigError
from securebench.json_values import is_positive
from securebench.protocol.extraction import TEXT_FILE, Extraction, ExtractionMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.agents.harness_config import HarnessConfig
    from securebench.protocol.extraction import CandidateKind

CODE_FILE = "candidate.py"


def extraction_for(family: str, harness: HarnessConfig) -> Extraction:
    """Return how the candidate of a task is extracted.

    Args:
        family: Task type; nothing is extracted for deferred families.
        harness: A command hands in on stdout unless it names a file, works on a workspace or asks
            for the diff of a checkout. The stdout of a provider's CLI is never a candidate.
    """
    known = FAMILIES.get(family)
    if known is None:
        return Extraction(mode=ExtractionMode.UNSUPPORTED, kind="none", path=None)
    kind = known.candidate_kind
    if isinstance(harness, CommandHarness):
        return _from_command(kind, harness)
    return _from_provider(kind)


def _from_command(kind: CandidateKind, harness: CommandHarness) -> Extraction:
    if harness.artifact_path is not None:
        text_kind: CandidateKind = "text" if kind == "workspace" else kind
        return Extraction(mode=ExtractionMode.FILE, kind=text_kind, path=harness.artifact_path)
    if kind == "workspace":
        return Extraction(mode=ExtractionMode.WORKSPACE, kind=kind, path=None)
    if kind == "patch" and harness.extraction == ExtractionMode.GIT_DIFF:
        return Extraction(mode=ExtractionMode.GIT_DIFF, kind=kind, path=None)
    return Extraction(mode=ExtractionMode.STDOUT, kind=kind, path=None)


def _from_provider(kind: CandidateKind) -> Extraction:
    if kind == "workspace":
        return Extraction(mode=ExtractionMode.WORKSPACE, kind=kind, path=None)
    if kind == "patch":
        return Extraction(mode=ExtractionMode.GIT_DIFF, kind=kind, path=None)
    return Extraction(
        mode=ExtractionMode.FILE, kind=kind, path=CODE_FILE if kind == "code" else TEXT_FILE
    )


_SOLVE: Final = (
    "Read the task in the file {task_file} and solve it. Use nothing but what the workspace"
    " {workspace} gives you: everything that you need is there."
)
_REPOSITORY: Final = (
    "The current working directory is the checkout of the repository: work in it, do not clone it"
    " anew. Edit implementation files only; leave tests, evaluation files, dependency, lock and"
    " build files as they are unless the task requires otherwise."
)
_HAND_IN: Final = {
    "text": "Write your final answer, and nothing else, to the file {path} in the workspace.",
    "code": "Write your solution as Python source code to the file {path} in the workspace.",
    "patch": "Leave your changes in the checkout: the difference to its present state is judged.",
    "workspace": "What is judged is the state of the workspace when you have finished.",
}


def task_prompt(extraction: Extraction, workspace: str, task_file: str) -> str:
    """Return the prompt of a task, which names files but not their content.

    Args:
        extraction: How the candidate is extracted.
        workspace: Absolute path of the workspace.
        task_file: Workspace-relative path of the task file.
    """
    parts = [_SOLVE, *([_REPOSITORY] if extraction.kind == "patch" else [])]
    hand_in = _HAND_IN.get(extraction.kind)
    text = "\n".join([*parts, *([hand_in] if hand_in is not None else [])])
    return text.format(
        task_file=f"{workspace.rstrip('/')}/{task_file}",
        workspace=workspace,
        path=extraction.path or "",
    )


def agent_time_limit(environment: Mapping[str, object], harness: HarnessConfig) -> float | None:
    """Return the time limit of the agent's command in seconds, or None for no limit.

    It is the smaller of the task's and the tester's limit, or else the harness's default.

    Raises:
        ConfigError: ``environment.timeout_seconds`` is not a positive number.
    """
    task_limit = environment.get("timeout_seconds")
    tester_limit = None if harness.is_default_timeout else harness.timeout_seconds
    if task_limit is None:
        return harness.timeout_seconds
    if not isinstance(task_limit, int | float) or not is_positive(task_limit):
        raise ConfigError(TIMEOUT_PROBLEM)
    return float(task_limit) if tester_limit is None else min(float(task_limit), tester_limit)
