"""The command ``securebench doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from securebench.cli.options import Context, Namespace, OperatorPod, TextOrJson, TextOrJsonOutput
from securebench.client.output import end_with

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command("doctor")
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
    from securebench.client.doctor import DoctorOptions, doctor
    from securebench.client.volume.connection import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: doctor(DoctorOptions(target, output is TextOrJson.JSON, probe)))
