"""Commands on runs: those that start, list and change them, and those that show their results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securebench.cli.options import (
    Attempt,
    Attempts,
    BudgetTokens,
    Config,
    Context,
    Deadline,
    EnvFile,
    FailBelow,
    FolderAgentType,
    FolderCommand,
    FolderModel,
    Limit,
    Namespace,
    NodeSelector,
    OperatorPod,
    OptionalTask,
    Output,
    OutputDir,
    Parallelism,
    Prices,
    Resume,
    Run,
    RunFolder,
    Runs,
    SkipInvalid,
    Task,
    TaskNetwork,
    TaskPatterns,
    TaskRegistry,
    TextOrJson,
    TextOrJsonOutput,
    complete_run,
)
from securebench.client.output import OutputForm, end_with

if TYPE_CHECKING:
    from securebench.client.run import FolderAgent, RunOptions

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def run(  # noqa: PLR0913 - the flags of contract 2.1
    folder: RunFolder = None,
    config: Config = None,
    *,
    agent: FolderAgentType = None,
    model: FolderModel = "",
    command: FolderCommand = "",
    harbor_job: Annotated[
        Path | None,
        typer.Option("--harbor-job", help="Job configuration of Harbor: names folder and agent."),
    ] = None,
    network: TaskNetwork = None,
    skip_invalid: SkipInvalid = False,
    registry: TaskRegistry = "",
    env_file: EnvFile = None,
    limit: Limit = None,
    tasks: TaskPatterns = None,
    deadline: Deadline = None,
    node_selector: NodeSelector = None,
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
    """Run a tester YAML, or a folder of tasks, and fetch the results."""
    from securebench.client.run import RunCommand, RunOptions
    from securebench.client.volume import ClusterTarget

    options = RunOptions(
        config=(
            _place(folder, config)
            if harbor_job is None
            else _job_place(harbor_job, folder, config, agent, model, command)
        ),
        agent=_folder_agent(agent, model, command),
        network=network,
        skips_invalid=skip_invalid,
        registry=registry,
        env_file=env_file,
        limit=limit,
        tasks=tuple(tasks or ()),
        deadline_seconds=deadline,
        node_selector=dict(node_selector or ()),
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
    if harbor_job is None:
        end_with(RunCommand(options))
    end_with(partial(_run_job, options, harbor_job))


def _run_job(options: RunOptions, job: Path) -> int:
    from securebench.client.harbor_job import options_of_job
    from securebench.client.run import RunCommand

    return RunCommand(options_of_job(options, job))()


def _job_place(job: Path, *others: object) -> Path:
    if any(others):
        raise typer.BadParameter(
            "--harbor-job names folder and agent: leave out FOLDER, --config, --agent, --model"
            " and --command"
        )
    return job


def _place(folder: Path | None, config: Path | None) -> Path:
    """Return what names the pack and its agent."""
    if folder is not None and config is not None:
        raise typer.BadParameter("name a folder or a tester YAML, not both")
    place = folder or config
    if place is None:
        raise typer.BadParameter("name a folder, or a tester YAML with --config")
    return place


def _folder_agent(agent: str | None, model: str, command: str) -> FolderAgent | None:
    from securebench.client.run import FolderAgent

    if agent is not None:
        return FolderAgent(agent, model, command)
    if model or command:
        raise typer.BadParameter("--model and --command go with --agent")
    return None


@app.command()
def submit(  # noqa: PLR0913 - flags
    folder: RunFolder = None,
    config: Config = None,
    *,
    agent: FolderAgentType = None,
    model: FolderModel = "",
    command: FolderCommand = "",
    network: TaskNetwork = None,
    skip_invalid: SkipInvalid = False,
    registry: TaskRegistry = "",
    env_file: EnvFile = None,
    limit: Limit = None,
    tasks: TaskPatterns = None,
    deadline: Deadline = None,
    node_selector: NodeSelector = None,
    attempts: Attempts = None,
    resume: Resume = False,
    parallelism: Parallelism = None,
    budget_tokens: BudgetTokens = None,
    output: Output = OutputForm.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Start a tester YAML, or a folder of tasks, and leave it to the cluster."""
    from securebench.client.run import RunOptions
    from securebench.client.run import submit as submit_run
    from securebench.client.volume import ClusterTarget

    options = RunOptions(
        config=_place(folder, config),
        agent=_folder_agent(agent, model, command),
        network=network,
        skips_invalid=skip_invalid,
        registry=registry,
        env_file=env_file,
        limit=limit,
        tasks=tuple(tasks or ()),
        deadline_seconds=deadline,
        node_selector=dict(node_selector or ()),
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
    from securebench.client.run import WatchOptions
    from securebench.client.run import watch as watch_run
    from securebench.client.volume import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: watch_run(run, WatchOptions(output, fail_below), target))


@app.command()
def ps(
    *, output: Output = OutputForm.TEXT, namespace: Namespace = None, context: Context = None
) -> None:
    """List the runs of the namespace, the newest last."""
    from securebench.client import runs
    from securebench.client.volume import ClusterTarget

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
    from securebench.client import runs
    from securebench.client.volume import ClusterTarget

    end_with(lambda: runs.cancel(run, ClusterTarget(namespace, context), is_immediate=now))


@app.command()
def suspend(run: Run, *, namespace: Namespace = None, context: Context = None) -> None:
    """Let a run begin nothing new until it is resumed."""
    from securebench.client import runs
    from securebench.client.volume import ClusterTarget

    end_with(lambda: runs.suspend(run, ClusterTarget(namespace, context)))


@app.command()
def resume(run: Run, *, namespace: Namespace = None, context: Context = None) -> None:
    """Resume a suspended run, or continue one that has ended in a new run."""
    from securebench.client.run import resume as resume_run
    from securebench.client.volume import ClusterTarget

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
    from securebench.client.run import regrade as regrade_run
    from securebench.client.volume import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: regrade_run(run, name, pack, target, is_awaited=wait))


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
    from securebench.client.runs import remove
    from securebench.client.volume import ClusterTarget

    end_with(lambda: remove(runs, ClusterTarget(namespace, context), is_forced=force))


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
    attempt: Attempt = None,
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
    from securebench.client import results as command
    from securebench.client.volume import ClusterTarget
    from securebench.client.why import print_launches

    target = ClusterTarget(namespace, context, operator_pod)
    if diff and task is None:
        raise typer.BadParameter("--diff needs two runs: results --diff OLD NEW")
    if attempt is not None and (task is None or diff):
        raise typer.BadParameter("--attempt needs a TASK")
    if why or (task is not None and not diff):
        end_with(lambda: print_launches(run, task or "", output, target, attempt))
    if diff:
        from securebench.analysis.command import diff_runs

        end_with(lambda: diff_runs(run, str(task), output, target))
    end_with(lambda: command.results(run, output_dir, output, target, fail_below, prices))


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
    from securebench.client import results as command
    from securebench.client.volume import ClusterTarget

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
def why(  # noqa: PLR0913 - flags
    run: Run,
    task: OptionalTask = None,
    *,
    attempt: Attempt = None,
    output: Output = OutputForm.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Say what a run waits for, and why it or its attempts failed."""
    from securebench.client.volume import ClusterTarget
    from securebench.client.why import explain

    target = ClusterTarget(namespace, context, operator_pod)
    if attempt is not None and task is None:
        raise typer.BadParameter("--attempt needs a TASK")
    end_with(lambda: explain(run, task or "", output, target, attempt))


@app.command()
def logs(  # noqa: PLR0913 - flags
    run: Run,
    task: Task,
    *,
    attempt: Attempt = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until the task has finished.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Print the output of a task's harness and check, also while they work."""
    from securebench.client.logs import logs as show_logs
    from securebench.client.volume import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    if follow and attempt is not None:
        raise typer.BadParameter("--follow shows the attempt under way; leave --attempt out")
    end_with(lambda: show_logs(run, task, target, is_followed=follow, attempt=attempt))
