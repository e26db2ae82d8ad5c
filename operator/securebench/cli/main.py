"""The program ``securebench``: commands and flags; the commands are implemented in other modules.

Each command imports its module when it is called, because the exec protocol and the probes start
this program for every call and do not need the cluster library.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securebench.client.commands.output import end_with, errors_as_lines

# ruff: noqa: PLC0415

app = typer.Typer(
    name="securebench",
    help="Run AI agent benchmarks on Kubernetes and grade them safely.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
packs = typer.Typer(help="Check, upload and show benchmark packs.", no_args_is_help=True)
app.add_typer(packs, name="pack")
imports = typer.Typer(help="Create packs from other benchmarks.", no_args_is_help=True)
packs.add_typer(imports, name="import")

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


def _show_version(*, is_wanted: bool) -> None:
    if is_wanted:
        from securebench.core.version import VERSION

        typer.echo(f"securebench {VERSION}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Run AI agent benchmarks on Kubernetes and grade them safely."""


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


@packs.command("lint")
def pack_lint(
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
) -> None:
    """Check a pack without running it."""
    from securebench.client.commands import packs as pack

    end_with(lambda: pack.lint(pack.PackFiles(config, manifest, tasks), strict=strict))


@packs.command("push")
def pack_push(  # noqa: PLR0913 - flags
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Folder on the volume; default: id and digest.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Upload a pack to the results volume, for BenchmarkRuns with pack.volume."""
    from securebench.client.commands import packs as pack
    from securebench.client.volume.connection import ClusterTarget

    files, target = (
        pack.PackFiles(config, manifest, tasks),
        ClusterTarget(namespace, context, operator_pod),
    )
    end_with(lambda: pack.push(files, name, target))


@packs.command("show")
def pack_show(  # noqa: PLR0913 - flags
    name: Annotated[str | None, typer.Argument(help="Pack on the results volume.")] = None,
    *,
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Show a pack on the results volume, or a local one."""
    from securebench.client.commands import packs as pack
    from securebench.client.volume.connection import ClusterTarget

    if name is not None:
        end_with(lambda: pack.show_uploaded(name, ClusterTarget(namespace, context, operator_pod)))
    end_with(lambda: pack.show_local(pack.PackFiles(config, manifest, tasks)))


@packs.command("list")
def pack_list(
    *,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """List the packs on the results volume and the active runs that use them."""
    from securebench.client.commands import packs as pack
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: pack.list_uploaded(ClusterTarget(namespace, context, operator_pod)))


@packs.command("rm")
def pack_rm(
    name: Annotated[str, typer.Argument(help="Pack on the results volume.")],
    *,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Remove a pack from the results volume, unless an active run uses it."""
    from securebench.client.commands import packs as pack
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: pack.remove(name, ClusterTarget(namespace, context, operator_pod)))


@imports.command("terminal-bench")
def import_terminal_bench(
    folder: Annotated[Path, typer.Argument(help="Task folder, or a folder of task folders.")],
    pack: Annotated[Path, typer.Argument(help="Folder to write the pack to.")],
    *,
    pack_id: Annotated[
        str | None, typer.Option("--id", help="Id of the pack; default: its folder's name.")
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave out tasks that cannot be imported.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite an earlier import.")
    ] = False,
) -> None:
    """Create a pack from task folders of Terminal-Bench or Harbor."""
    from securebench.importers import command

    wanted = command.Import(folder, pack, pack_id or pack.resolve().name, skip, replace)
    end_with(lambda: command.import_terminal_bench(wanted))


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


@app.command()
def report(
    runs: Annotated[list[str], typer.Argument(help="Result folders, or names or run ids of runs.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path(
        "report.html"
    ),
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Write a report of runs as one HTML file."""
    from securebench.analysis.command import write_report
    from securebench.client.volume.connection import ClusterTarget

    end_with(lambda: write_report(runs, output, ClusterTarget(namespace, context, operator_pod)))


@app.command()
def compare(
    runs: Annotated[
        list[str],
        typer.Argument(help="Two or more result folders, or names or run ids of runs."),
    ],
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", help="text, or json: one object a line.")
    ] = "text",
    html: Annotated[
        Path | None, typer.Option("--html", help="Also write the comparison as an HTML file.")
    ] = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Compare runs with the first one, task by task."""
    from securebench.analysis.command import CompareOutput, compare_runs
    from securebench.client.volume.connection import ClusterTarget

    if len(runs) < 2:  # noqa: PLR2004
        raise typer.BadParameter("name at least two runs")
    if output not in list(CompareOutput):
        raise typer.BadParameter(f"--output is one of {', '.join(CompareOutput)}, not {output!r}")
    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: compare_runs(runs, CompareOutput(output), html, target))


@app.command("audit")
def audit_command(  # noqa: PLR0913 - flags
    pack: Annotated[
        Path | None, typer.Argument(help="Folder of the pack; or name it with --config.")
    ] = None,
    *,
    config: OptionalConfig = None,
    output_dir: OutputDir = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=0, help="Only the first N rows.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option("--images", help="Folder with archives of the task images.")
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Run the pack N times and compare.")
    ] = 1,
    static: Annotated[
        bool, typer.Option("--static", help="Only the checks that need no cluster.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Check a pack before anyone trusts it."""
    from securebench.audit.command import AuditOptions, run_audit
    from securebench.client.volume.connection import ClusterTarget

    if (pack is None) == (config is None):
        raise typer.BadParameter("name the pack by its folder or with --config, not both")
    target = ClusterTarget(namespace, context, operator_pod)
    options = AuditOptions(pack, config, output_dir, limit, images, runs, static, target)
    end_with(lambda: run_audit(options))


@app.command()
def journal(
    run: Annotated[str, typer.Argument(help="Name, run id or uid of a run on this volume.")],
    *,
    task: Annotated[
        int | None, typer.Option("--task", min=0, help="Only this task, by its index from 0.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", help="text, or json: one object a line.")
    ] = "text",
    data_root: Annotated[
        Path | None,
        typer.Option("--data-root", help="Where the results volume is; default: as in our Pods."),
    ] = None,
) -> None:
    """Print a run's journal and check it; for the operator's Pod or a copy of the volume."""
    from securebench.cli.journal import JournalOutput, show_journal
    from securebench.controller.settings.settings import DATA_ROOT

    if output not in list(JournalOutput):
        raise typer.BadParameter(f"--output is one of {', '.join(JournalOutput)}, not {output!r}")
    end_with(lambda: show_journal(data_root or DATA_ROOT, run, task, JournalOutput(output)))


@app.command()
def operator() -> None:
    """Run the operator; the command of its Pod."""
    from securebench.controller.process.handlers import run_operator

    run_operator()


@app.command("operator-io", hidden=True, context_settings={"ignore_unknown_options": True})
def operator_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a tester in the operator's Pod."""
    from securebench.controller.exec.operator_io import operator_io

    end_with(lambda: operator_io(arguments))


@app.command("viewer-io", hidden=True, context_settings={"ignore_unknown_options": True})
def viewer_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a viewer in the viewers' Pod."""
    from securebench.controller.exec.viewers import viewer_io

    end_with(lambda: viewer_io(arguments))


@app.command("viewers", hidden=True)
def viewers_command() -> None:
    """Keep the viewers' Pod running."""
    from securebench.controller.exec.viewers import wait_for_viewers

    end_with(wait_for_viewers)


@app.command("release-test", hidden=True)
def release_test_command(
    run: Annotated[str, typer.Argument()],
    *,
    namespace: Annotated[str, typer.Option(envvar="SECUREBENCH_NAMESPACE")],
    timeout: Annotated[float, typer.Option("--timeout")] = 300.0,
) -> None:
    """Wait for the BenchmarkRun of ``helm test`` and check its result."""
    from securebench.client.commands.release_test import release_test

    end_with(lambda: release_test(namespace, run, timeout))


def main() -> None:
    """Run the program under the name ``securebench``, even if started as a module."""
    with errors_as_lines():
        app(prog_name=app.info.name)
