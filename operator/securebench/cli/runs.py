"""Commands that start runs, list them and change them."""

from __future__ import annotations

from typing import Annotated

import typer

from securebench.cli.options import (
    Attempts,
    BudgetTokens,
    Config,
    Context,
    EnvFile,
    FailBelow,
    Limit,
    Namespace,
    OperatorPod,
    Output,
    OutputDir,
    Parallelism,
    Prices,
    Resume,
    Run,
    Runs,
)
from securebench.client.output import end_with
from securebench.client.output_formats import OutputForm

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def run(  # noqa: PLR0913 - the flags of contract 2.1
    config: Config,
    *,
    env_file: EnvFile = None,
    limit: Limit = None,
    attempts: Attempts = None,
    output_dir: OutputDir = None,
    resume: Resume = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    show_command_output: Annotated[
        bool, typer.Option("--show-command-output", help="Show what commands printed.")
    ] = False,
    show_agent_output: Annotated[
        bool,
        typer.Option("--show-agent-output", help="Show agent events, write agent-trace.log."),
    ] = False,
    parallelism: Parallelism = None,
    budget_tokens: BudgetTokens = None,
    fail_below: FailBelow = None,
    prices: Prices = None,
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
        attempts=attempts,
        output_dir=output_dir,
        resume=resume,
        quiet=quiet,
        show_command_output=show_command_output,
        show_agent_output=show_agent_output,
        parallelism=parallelism,
        budget_tokens=budget_tokens,
        prices=prices,
        target=ClusterTarget(namespace, context, operator_pod),
        fail_below=fail_below,
    )
    end_with(RunCommand(options))


@app.command()
def submit(  # noqa: PLR0913 - flags
    config: Config,
    *,
    env_file: EnvFile = None,
    limit: Limit = None,
    attempts: Attempts = None,
    resume: Resume = False,
    parallelism: Parallelism = None,
    budget_tokens: BudgetTokens = None,
    output: Output = OutputForm.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Start the benchmark of a tester YAML and leave it to the cluster."""
    from securebench.client.commands.run import RunOptions
    from securebench.client.commands.submit import submit as submit_run
    from securebench.client.volume.connection import ClusterTarget

    options = RunOptions(
        config=config,
        env_file=env_file,
        limit=limit,
        attempts=attempts,
        resume=resume,
        parallelism=parallelism,
        budget_tokens=budget_tokens,
        target=ClusterTarget(namespace, context, operator_pod),
    )
    end_with(lambda: submit_run(options, output))


@app.command()
def watch(
    run: Run,
    *,
    output: Output = OutputForm.TEXT,
    fail_below: FailBelow = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Follow a run to its end."""
    from securebench.client.commands.watch import WatchOptions
    from securebench.client.commands.watch import watch as watch_run
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: watch_run(run, WatchOptions(output, fail_below), target))


@app.command()
def ps(
    *, output: Output = OutputForm.TEXT, namespace: Namespace = None, context: Context = None
) -> None:
    """List the runs of the namespace, the newest last."""
    from securebench.client.commands import runs
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: runs.ps(output, ClusterTarget(namespace, context)))


app.command("list", help="The same as ps.")(ps)


@app.command()
def cancel(
    run: Run,
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
def suspend(run: Run, *, namespace: Namespace = None, context: Context = None) -> None:
    """Let a run begin nothing new until it is resumed."""
    from securebench.client.commands import runs
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: runs.suspend(run, ClusterTarget(namespace, context)))


@app.command()
def resume(run: Run, *, namespace: Namespace = None, context: Context = None) -> None:
    """Resume a suspended run, or continue one that has ended in a new run."""
    from securebench.client.commands.resume import resume as resume_run
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: resume_run(run, ClusterTarget(namespace, context)))


@app.command()
def regrade(  # noqa: PLR0913 - flags
    run: Run,
    *,
    name: Annotated[
        str, typer.Option("--name", help="Name of the new run; default: RUN and random letters.")
    ] = "",
    pack: Annotated[
        str,
        typer.Option(
            "--pack", help="Name of the corrected pack on the results volume; default: RUN's pack."
        ),
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Follow the new run to its end.")] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Verify what the agents of a run handed in again, with its pack as it is now."""
    from securebench.client.commands.regrade import RegradeOptions
    from securebench.client.commands.regrade import regrade as regrade_run
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: regrade_run(run, RegradeOptions(name, pack, wait), target))


@app.command()
def rm(
    runs: Runs,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Also delete runs that have not ended.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
) -> None:
    """Delete BenchmarkRuns; their results stay on the volume as long as its retention says."""
    from securebench.client.commands.runs import remove
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: remove(runs, ClusterTarget(namespace, context), is_forced=force))
