"""Commands of the project's own Pods, and the journal for who operates them."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated

import typer

from securebench.client.output import end_with

# ruff: noqa: PLC0415

app = typer.Typer()


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
    from securebench.controller.volume_settings import DATA_ROOT

    if output not in list(JournalOutput):
        raise typer.BadParameter(f"--output is one of {', '.join(JournalOutput)}, not {output!r}")
    end_with(lambda: show_journal(data_root or DATA_ROOT, run, task, JournalOutput(output)))


@app.command()
def operator() -> None:
    """Run the operator; the command of its Pod."""
    gc.disable()  # nothing of the imports is garbage, and an operator should work soon

    from securebench.controller.handlers import run_operator

    run_operator()


@app.command("operator-io", hidden=True, context_settings={"ignore_unknown_options": True})
def operator_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a tester in the operator's Pod."""
    from securebench.controller.exec_io import operator_io

    end_with(lambda: operator_io(arguments))


@app.command("viewer-io", hidden=True, context_settings={"ignore_unknown_options": True})
def viewer_io_command(arguments: Annotated[list[str], typer.Argument()]) -> None:
    """Serve one exec request of a viewer in the viewers' Pod."""
    from securebench.controller.exec_io import viewer_io

    end_with(lambda: viewer_io(arguments))


@app.command("viewers", hidden=True)
def viewers_command() -> None:
    """Keep the viewers' Pod running."""
    from securebench.controller.exec_io import wait_for_viewers

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
