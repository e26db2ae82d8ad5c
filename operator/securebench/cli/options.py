"""Options that several commands share, and the completion of names of runs and tasks.

Completion asks the cluster. A shell waits for it a few seconds at most, and gets no name when the
cluster does not answer.
"""

from __future__ import annotations

import os
import re
import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from securebench.client.output import OutputForm

if TYPE_CHECKING:
    from securebench.client.volume import ClusterTarget

# ruff: noqa: PLC0415

_SECONDS = 3.0
"""How long a shell waits for names at most."""


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names and run ids of runs that begin with a text."""
    _end_silently_after(_SECONDS)
    from securebench.client.runs import run_names

    return [name for name in run_names(_target(context)) if name.startswith(incomplete)]


def complete_task(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the tasks of the run that is named before, if they begin with a text."""
    _end_silently_after(_SECONDS)
    from securebench.client.runs import task_names

    run = str(context.params.get("run") or "")
    return [name for name in task_names(run, _target(context)) if name.startswith(incomplete)]


def _end_silently_after(seconds: float) -> None:
    """End the program without a word when it takes longer.

    A name server that does not answer is asked in a thread, for which the interpreter would wait.
    """
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _target(context: typer.Context) -> ClusterTarget:
    from securebench.client.volume import ClusterTarget

    given = context.params
    return ClusterTarget(given.get("namespace"), given.get("context"), given.get("operator_pod"))


def _whole(text: str) -> int:
    if re.fullmatch(r"-?[0-9]+", text, re.ASCII) is None:
        raise typer.BadParameter(f"{text!r} is no whole number")
    return int(text)


class TextOrJson(StrEnum):
    """How a command prints its result: for people, or as JSON for programs."""

    TEXT = "text"
    JSON = "json"


Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; default: the kubeconfig's.")
]
Context = Annotated[
    str | None,
    typer.Option("--context", help="Context of the kubeconfig; default: the current one."),
]
OperatorPod = Annotated[
    str | None,
    typer.Option(
        "--operator-pod",
        envvar="SECUREBENCH_OPERATOR_POD",
        help="Name of the operator's Pod, if you may not list Pods; default: securebench-0.",
    ),
]
OptionalConfig = Annotated[
    Path | None,
    typer.Option(
        "--config", help="Tester YAML that names the pack, or the folder with tester.yaml."
    ),
]
Manifest = Annotated[Path | None, typer.Option("--manifest", help="Manifest of the pack.")]
Tasks = Annotated[Path | None, typer.Option("--tasks", help="Task file of the pack.")]
OutputDir = Annotated[Path | None, typer.Option("--output-dir", help="Output folder.")]
Run = Annotated[
    str,
    typer.Argument(help="Name or run id of a BenchmarkRun.", autocompletion=complete_run),
]
Runs = Annotated[
    list[str],
    typer.Argument(help="Names or run ids of BenchmarkRuns.", autocompletion=complete_run),
]
Task = Annotated[
    str, typer.Argument(help="Id of a task, or #INDEX from 0.", autocompletion=complete_task)
]
OptionalTask = Annotated[
    str | None,
    typer.Argument(
        help="Id of a task, or #INDEX from 0, to see all of its launches.",
        autocompletion=complete_task,
    ),
]
Attempt = Annotated[
    int | None,
    typer.Option("--attempt", parser=_whole, metavar="N", help="Only this attempt of the task."),
]
Output = Annotated[OutputForm, typer.Option("--output", "-o", help="Form of what is printed.")]
Config = Annotated[
    Path | None, typer.Option("--config", help="Tester YAML, or the folder with tester.yaml.")
]
RunFolder = Annotated[
    Path | None,
    typer.Argument(help="Folder with tester.yaml; or of a pack, whose agent --agent names."),
]
FolderAgentType = Annotated[
    str | None,
    typer.Option("--agent", help="Harness type for a folder without tester.yaml, such as codex."),
]
FolderModel = Annotated[str, typer.Option("--model", help="Model of that agent.")]
FolderCommand = Annotated[str, typer.Option("--command", help="Command of --agent command.")]
TaskNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="none",
        help="none: tasks that ask for an open network run without one.",
    ),
]
TaskRegistry = Annotated[
    str,
    typer.Option(
        "--registry", metavar="PREFIX", help="Where the images of `pack build-images` are."
    ),
]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out task folders that cannot run.")
]
EnvFile = Annotated[
    Path | None, typer.Option("--env-file", help="Dotenv file; default: .env, if there is one.")
]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number from 0 to 1") from None
    if not 0 <= share <= 1:
        remedy = f"; write {share / 100:g} for {share:g} %" if 1 < share <= 100 else ""  # noqa: PLR2004
        raise typer.BadParameter(f"{text} is not from 0 to 1{remedy}")
    return share


Limit = Annotated[
    int | None,
    typer.Option("--limit", parser=_whole, metavar="N", help="Only the first N rows."),
]


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is no label; write NAME=VALUE")
    return name, value


TaskPatterns = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="PATTERN", help="Only tasks whose id matches; repeatable."),
]
Deadline = Annotated[
    int | None,
    typer.Option(
        "--deadline", parser=_whole, metavar="SECONDS", help="End the whole run after so long."
    ),
]
NodeSelector = Annotated[
    list[Any] | None,
    typer.Option(
        "--node-selector",
        parser=_label,
        metavar="NAME=VALUE",
        help="Only nodes with this label; repeatable.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Keep finished records, run the rest.")]
Parallelism = Annotated[
    int | None, typer.Option("--parallelism", min=1, help="Concurrent attempts.")
]
BudgetTokens = Annotated[
    int | None,
    typer.Option(
        "--budget-tokens", min=1, help="Tokens that all launches of the run may use together."
    ),
]
FailBelow = Annotated[
    float | None,
    typer.Option(
        "--fail-below",
        parser=_share,
        metavar="SCORE",
        help="Exit with code 3 if the share of passes is smaller, for example 0.8.",
    ),
]
TextOrJsonOutput = Annotated[
    TextOrJson, typer.Option("--output", "-o", help="For people, or as JSON.")
]
Prices = Annotated[
    Path | None,
    typer.Option("--prices", help="File with prices of models, for the cost (docs: cli)."),
]
Attempts = Annotated[
    int | None,
    typer.Option("--attempts", help="Attempts per task, all of which count (pass@k)."),
]
