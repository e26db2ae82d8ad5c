"""What is found in a grader."""

from __future__ import annotations

from typing import NamedTuple


class GraderProblem(NamedTuple):
    """One defect of what grades a task.

    Attributes:
        message: One sentence with file and line of the defect; no hidden value.
        is_certain: False where the task's image may know better.
    """

    message: str
    is_certain: bool = True
