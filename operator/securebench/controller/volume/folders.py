"""Where everything is on the results volume: folders, relative to its root.

Only this package knows them; everybody else asks it by what a thing is.
"""

from __future__ import annotations

INSTALLED_TOOLS = "tools"
"""Folder of the programs of task containers: one folder for each content that an operator had."""
AUDITS = "audits"
"""Folder of the results of audits."""
LEADERS = "leaders"
"""A folder for the operator that works, named by its epoch."""
RUNS = "runs"
PUBLISHED = "published"
"""What the Pod for viewers mounts: results of ended runs without hidden data."""
BASELINES = "baselines"
"""Records that suites are compared with, put there by testers."""
TASKS = "tasks"
LAUNCHES = "launches"


def run_folder(run_uid: str) -> str:
    """Return the folder of a run, relative to the volume's root."""
    return f"{RUNS}/{run_uid}"


def task_folder(run_uid: str, task: int) -> str:
    """Return the folder of a task, relative to the volume's root."""
    return f"{run_folder(run_uid)}/{TASKS}/{task}"


def attempt_folder(run_uid: str, task: int, attempt: int) -> str:
    """Return the folder of an attempt, relative to the volume's root."""
    return f"{task_folder(run_uid, task)}/attempts/{attempt}"
