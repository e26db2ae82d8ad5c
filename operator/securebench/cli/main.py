"""The program ``securebench``: its groups of commands, and the entry points that run it.

A group is a ``typer.Typer`` in a module of this package. Below are the doctor, the commands of the
project's own Pods, and the journal for operators of an installation. A command imports its
implementation when it is called, because the exec protocol and the probes start this program for
every call and do not need the cluster library.
"""

from __future__ import annotations

import gc
import io
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from securebench.cli import analysis, packs, runs
from securebench.cli.options import Context, Namespace, OperatorPod, TextOrJson, TextOrJsonOutput
from securebench.client.output import end_with, errors_as_lines

# ruff: noqa: PLC0415

_NO_FILES = ":4"
"""Cobra's ShellCompDirectiveNoFileComp: what is not listed is no file either."""

_FILES = ":0"
"""Cobra's ShellCompDirectiveDefault: the shell completes file names."""


_PROGRAM = "securebench"


class _Commands(TyperGroup):
    """Commands of the program; an unknown one may be a command of one of its groups."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names."""
        groups = [
            name
            for name, group in self.commands.items()
            if isinstance(group, TyperGroup) and args[0] in group.commands
        ]
        if groups and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}. Did you mean '{groups[0]} {args[0]}'?")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name=_PROGRAM,
    cls=_Commands,
    help="Run AI agent benchmarks on Kubernetes and grade them safely.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(runs.app)
app.add_typer(packs.root)
app.add_typer(packs.app, name="pack")
app.add_typer(analysis.app)

_installation = typer.Typer()
app.add_typer(_installation)


def _show_version(*, is_wanted: bool) -> None:
    if is_wanted:
        from securebench.version import VERSION

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


@_installation.command("doctor")
def doctor_command(
    *,
    output: TextOrJsonOutput = TextOrJson.TEXT,
    probe: Annotated[
        bool, typer.Option("--probe", help="Also run one task, whose Pods try network and volume.")
    ] = False,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Check cluster, rights, operator, storage and network, and say what to do."""
    from securebench.client.doctor import doctor
    from securebench.client.volume import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: doctor(target, as_json=output is TextOrJson.JSON, with_probe=probe))


@_installation.command()
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
    from securebench.controller.volume_settings import DATA_ROOT

    if output not in list(JournalOutput):
        raise typer.BadParameter(f"--output is one of {', '.join(JournalOutput)}, not {output!r}")
    end_with(lambda: show_journal(data_root or DATA_ROOT, run, task, JournalOutput(output)))


@_installation.command()
def operator() -> None:
    """Run the operator; the command of its Pod."""
    gc.disable()  # nothing of the imports is garbage, and an operator should work soon

    from securebench.controller.handlers import run_operator

    run_operator()


@_installation.command(
    "operator-io", hidden=True, context_settings={"ignore_unknown_options": True}
)
def operator_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a tester in the operator's Pod."""
    from securebench.controller.exec_io import operator_io

    end_with(lambda: operator_io(arguments))


@_installation.command("viewer-io", hidden=True, context_settings={"ignore_unknown_options": True})
def viewer_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a viewer in the viewers' Pod."""
    from securebench.controller.exec_io import viewer_io

    end_with(lambda: viewer_io(arguments))


@_installation.command("viewers", hidden=True)
def viewers_command() -> None:
    """Keep the viewers' Pod running."""
    from securebench.controller.exec_io import wait_for_viewers

    end_with(wait_for_viewers)


@_installation.command("release-test", hidden=True)
def release_test_command(
    run: Annotated[str, typer.Argument()],
    *,
    namespace: Annotated[str, typer.Option(envvar="SECUREBENCH_NAMESPACE")],
    timeout: Annotated[float, typer.Option("--timeout")] = 300.0,
) -> None:
    """Wait for the BenchmarkRun of ``helm test`` and check its result."""
    from securebench.client.run import release_test

    end_with(lambda: release_test(namespace, run, timeout))


def main() -> None:
    """Run the program under the name ``securebench``, even if started as a module."""
    with errors_as_lines():
        app(prog_name=_PROGRAM)


def kubectl_plugin() -> None:
    """Run the program as ``kubectl securebench``."""
    with errors_as_lines():
        app(prog_name=f"kubectl {_PROGRAM}")


def kubectl_complete() -> None:
    """Answer kubectl, which asks the plugin's own program for completions.

    Its arguments are the words after ``kubectl securebench``, the last one incomplete. It wants one
    completion a line, and at last a directive of Cobra.
    """
    names = _completions(sys.argv[1:] or [""])
    for line in (*names, _NO_FILES if names else _FILES):
        typer.echo(line)


def _completions(words: Sequence[str]) -> list[str]:
    """Return the completions that bash would get."""
    os.environ |= {
        "_SECUREBENCH_COMPLETE": "complete_bash",
        "COMP_WORDS": shlex.join([_PROGRAM, *words]),
        "COMP_CWORD": str(len(words)),
    }
    output = io.StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        app(prog_name=_PROGRAM)
    return output.getvalue().split()
