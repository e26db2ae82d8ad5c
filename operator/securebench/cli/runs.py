"""Commands for runs: start, list, cancel, and fetch what they left."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securebench.cli.options import Context, Namespace, OperatorPod, OutputDir
from securebench.client.commands.output import end_with

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def run(  # noqa: PLR0913 - the flags of contract 2.1
    config: Annotated[Path, typer.Option("--config", help="Tester YAML.")],
    *,
    env_file: Annotated[Path, typer.Option("--env-file", help="Dotenv file.")] = Path(".env"),
    limit: Annotated[int | None, typer.Option("--limit", help="Only the first N rows.")] = None,
    output_dir: OutputDir = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep finished records, run the rest.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    show_command_output: Annotated[
        bool, typer.Option("--show-command-output", help="Show what commands printed.")
    ] = False,
    show_agent_output: Annotated[
        bool,
        typer.Option("--show-agent-output", help="Show agent events, write agent-trace.log."),
    ] = False,
    parallelism: Annotated[
        int | None, typer.Option("--parallelism", min=1, help="Concurrent attempts.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Run the benchmark of a tester YAML and fetch its results."""
    from securebench.client.commands.run import RunCommand, RunOptions
    from securebench.client.volume.connection import ClusterTarget

    options = RunOptions(
        config=config,
        env_file=env_file,
        limit=limit,
        output_dir=output_dir,
        resume=resume,
        quiet=quiet,
        show_command_output=show_command_output,
        show_agent_output=show_agent_output,
        parallelism=parallelism,
        target=ClusterTarget(namespace, context, operator_pod),
    )
    end_with(RunCommand(options))


@app.command("list")
def list_command(*, namespace: Namespace = None, context: Context = None) -> None:
    """List the runs of the namespace, the newest last."""
    from securebench.client.commands import runs
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: runs.list_runs(ClusterTarget(namespace, context)))


@app.command()
def cancel(
    run: Annotated[str, typer.Argument(help="Name of the BenchmarkRun.")],
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Also end launches in progress instead of waiting for them."),
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Cancel a run; finished attempts keep their records."""
    from securebench.client.commands import runs
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: runs.cancel(run, ClusterTarget(namespace, context), is_immediate=now))


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
    output: Annotated[
        str, typer.Option("--output", "-o", help="With --why: text, or json: one object a line.")
    ] = "text",
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
    if not why:
        if task is not None or output != reasons.WhyOutput.TEXT:
            raise typer.BadParameter("TASK and --output go with --why")
        end_with(lambda: command.results(run, output_dir, target))
    if output not in list(reasons.WhyOutput):
        form = ", ".join(reasons.WhyOutput)
        raise typer.BadParameter(f"--output is one of {form}, not {output!r}")
    end_with(lambda: reasons.why(run, task or "", reasons.WhyOutput(output), target))


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
