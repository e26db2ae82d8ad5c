"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from securebench.cli.completion import complete_run, complete_task
from securebench.client.output_formats import OutputForm


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
Output = Annotated[OutputForm, typer.Option("--output", "-o", help="Form of what is printed.")]
Config = Annotated[
    Path, typer.Option("--config", help="Tester YAML, or the folder with tester.yaml.")
]
EnvFile = Annotated[
    Path | None, typer.Option("--env-file", help="Dotenv file; default: .env, if there is one.")
]
Limit = Annotated[int | None, typer.Option("--limit", help="Only the first N rows.")]
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
        min=0.0,
        max=1.0,
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
