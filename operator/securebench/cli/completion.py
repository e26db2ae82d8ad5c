"""Shell completion of names of runs and tasks, and completion of the kubectl plugin."""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from securebench.client.volume.connection import ClusterTarget

# ruff: noqa: PLC0415

_PROGRAM = "securebench"
_SECONDS = 3.0
"""How long a shell waits for names at most."""

_NO_FILES = ":4"
"""Cobra's ShellCompDirectiveNoFileComp: what is not listed is no file either."""

_FILES = ":0"
"""Cobra's ShellCompDirectiveDefault: the shell completes file names."""


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names and run ids of runs that begin with a text."""
    _end_silently_after(_SECONDS)
    from securebench.client.commands.names import run_names

    return [name for name in run_names(_target(context)) if name.startswith(incomplete)]


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the tasks of the run that is named before, if they begin with a text."""
    _end_silently_after(_SECONDS)
    from securebench.client.commands.names import task_names

    run = str(context.params.get("run") or "")
    return [name for name in task_names(run, _target(context)) if name.startswith(incomplete)]


def kubectl_complete() -> None:
    """Answer kubectl, which asks the plugin's own program for completions.

    Its arguments are the words after ``kubectl securebench``, the last one incomplete. It wants one
    completion a line, and at last a directive of Cobra.
    """
    names = _completions(sys.argv[1:] or [""])
    for line in (*names, _NO_FILES if names else _FILES):
        typer.echo(line)


def _end_silently_after(seconds: float) -> None:
    """End the program without a word when it takes longer.

    A name server that does not answer is asked in a thread, for which the interpreter would wait.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _completions(words: Sequence[str]) -> list[str]:
    """Return the completions that bash would get."""
    from securebench.cli.main import app

    os.environ |= {
        "_SECUREBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join([_PROGRAM, *words]),
        "COMP_CWORD": str(len(words)),
    }
    output = io.StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        app(prog_name=_PROGRAM)
    return output.getvalue().split()


def _target(context: typer.Context) -> ClusterTarget:
    from securebench.client.volume.connection import ClusterTarget

    given = context.params
    return ClusterTarget(given.get("namespace"), given.get("context"), given.get("operator_pod"))
