"""What codex and Claude Code are asked (contract 12.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from securebench.protocol.extraction import Extraction

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
    """Return the prompt of a task; it names files and says nothing of their content.

    Args:
        extraction: What is taken as the candidate.
        workspace: Absolute folder of the workspace.
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
