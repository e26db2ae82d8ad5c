"""Commands that show what became of a run: results, logs."""

from __future__ import annotations

from typing import Annotated

import typer

from securebench.cli.options import (
    Context,
    FailBelow,
    Namespace,
    OperatorPod,
    Output,
    OutputDir,
)
from securebench.client.commands.forms import OutputForm
from securebench.client.commands.output import end_with

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def results(  # noqa: PLR0913 - flags
    run: Annotated[
        str, typer.Argument(help="Name of a BenchmarkRun, even a deleted one, or a run id.")
    ],
    task: Annotated[
        str | None, typer.Argument(help="With --why: id of a task, or #INDEX from 0.")
    ] = None,
    *,
    why: Annotated[
        bool,
        typer.Option("--why", help="Print the launches of what did not pass, and why they ended."),
    ] = False,
    output: Output = OutputForm.TEXT,
    fail_below: FailBelow = None,
    output_dir: OutputDir = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Fetch records and summary of a run into a folder, or say why attempts did not pass."""
    from securebench.client.commands import results as command
    from securebench.client.commands import why as reasons
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    if why:
        end_with(lambda: reasons.why(run, task or "", output, target))
    if task is not None:
        raise typer.BadParameter("TASK goes with --why")
    options = command.ResultOptions(output, fail_below)
    end_with(lambda: command.results(run, output_dir, options, target))


@app.command()
def logs(
    run: Annotated[str, typer.Argument(help="Name of the BenchmarkRun.")],
    task: Annotated[str, typer.Argument(help="Id of a finished task.")],
    *,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Print the output of a finished task's harness and check."""
    from securebench.client.commands import results as command
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: command.logs(run, task, ClusterTarget(namespace, context, operator_pod)))
