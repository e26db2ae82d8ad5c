"""Commands that show what a run has done: results, verify, why, logs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securebench.cli.completion import complete_run
from securebench.cli.options import (
    Context,
    FailBelow,
    Namespace,
    OperatorPod,
    OptionalTask,
    Output,
    OutputDir,
    Prices,
    Run,
    Task,
    TextOrJson,
    TextOrJsonOutput,
)
from securebench.client.output import end_with
from securebench.client.output_formats import OutputForm

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def results(  # noqa: PLR0913 - flags
    run: Annotated[
        str,
        typer.Argument(
            help="Name of a BenchmarkRun, even a deleted one, or a run id.",
            autocompletion=complete_run,
        ),
    ],
    task: OptionalTask = None,
    *,
    why: Annotated[
        bool,
        typer.Option(
            "--why",
            help="Print the launches of what did not pass or met a limit, and why they ended.",
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option(
            "--diff",
            help="Print which tasks flipped between the first run and a second one, named in the"
            " place of TASK.",
        ),
    ] = False,
    output: Output = OutputForm.TEXT,
    fail_below: FailBelow = None,
    output_dir: OutputDir = None,
    prices: Prices = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Fetch records and summary of a run into a folder, or say why attempts did not pass."""
    from securebench.client.inspection import launch_details
    from securebench.client.inspection import results as command
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    if why:
        end_with(lambda: launch_details.print_launches(run, task or "", output, target))
    if diff:
        from securebench.analysis.command import diff_runs

        if task is None:
            raise typer.BadParameter("--diff needs two runs: results --diff OLD NEW")
        end_with(lambda: diff_runs(run, task, output, target))
    if task is not None:
        raise typer.BadParameter("TASK goes with --why")
    options = command.ResultOptions(output, fail_below, prices)
    end_with(lambda: command.results(run, output_dir, options, target))


@app.command()
def verify(  # noqa: PLR0913 - flags
    run: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|RUN",
            help="Folder with a run's files, or name or run id of a run that has ended.",
            autocompletion=complete_run,
        ),
    ],
    *,
    key: Annotated[
        list[Path] | None,
        typer.Option("--key", help="Public key of an operator that you trust, in PEM."),
    ] = None,
    unsigned: Annotated[
        bool,
        typer.Option("--unsigned", help="Check the files against each other only, no signature."),
    ] = False,
    output: TextOrJsonOutput = TextOrJson.TEXT,
    output_dir: OutputDir = None,
    journal: Annotated[
        bool,
        typer.Option("--journal", help="Leave the journal there too: it may quote hidden values."),
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Check a run's results against the signed statement on them, and against each other."""
    from securebench.client.inspection import verify as command
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    options = command.VerifyOptions(
        keys=tuple(key or ()),
        is_unsigned=unsigned,
        output_dir=output_dir,
        with_journal=journal,
        is_json=output is TextOrJson.JSON,
    )
    end_with(lambda: command.verify(run, options, target))


@app.command()
def why(
    run: Run,
    task: OptionalTask = None,
    *,
    output: Output = OutputForm.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Say what a run waits for, and why it or its attempts failed."""
    from securebench.client.inspection.why import explain
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: explain(run, task or "", output, target))


@app.command()
def logs(
    run: Run,
    task: Task,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until the task has finished.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Print the output of a task's harness and check, also while they work."""
    from securebench.client.inspection.logs import logs as show_logs
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: show_logs(run, task, target, is_followed=follow))
