"""The program ``securebench``: its groups of commands.

A group is a module with a ``typer.Typer`` named ``app``. A command imports what implements it when
it is called, because the exec protocol and the probes start this program for every call and do not
need the cluster library.
"""

from __future__ import annotations

from typing import Annotated

import typer

from securebench.cli import analysis, doctor, internal, packs, results, runs
from securebench.client.output import errors_as_lines

# ruff: noqa: PLC0415

app = typer.Typer(
    name="securebench",
    help="Run AI agent benchmarks on Kubernetes and grade them safely.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(runs.app)
app.add_typer(results.app)
app.add_typer(packs.root)
app.add_typer(packs.app, name="pack")
app.add_typer(analysis.app)
app.add_typer(doctor.app)
app.add_typer(internal.app)


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


def main() -> None:
    """Run the program under the name ``securebench``, even if started as a module."""
    with errors_as_lines():
        app(prog_name=app.info.name)


def kubectl_plugin() -> None:
    """Run the program as ``kubectl securebench``."""
    with errors_as_lines():
        app(prog_name=f"kubectl {app.info.name}")
