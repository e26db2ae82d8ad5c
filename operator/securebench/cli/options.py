"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class OutputForm(StrEnum):
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
    Path | None, typer.Option("--config", help="Tester YAML that names the pack.")
]
Manifest = Annotated[Path | None, typer.Option("--manifest", help="Manifest of the pack.")]
Tasks = Annotated[Path | None, typer.Option("--tasks", help="Task file of the pack.")]
OutputDir = Annotated[Path | None, typer.Option("--output-dir", help="Output folder.")]
Output = Annotated[OutputForm, typer.Option("--output", "-o", help="For people, or as JSON.")]
