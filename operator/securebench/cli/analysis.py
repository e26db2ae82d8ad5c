"""Commands that judge results and packs: report, compare, export, audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securebench.cli.options import (
    Context,
    Namespace,
    OperatorPod,
    OptionalConfig,
    OutputDir,
    Prices,
)
from securebench.client.output import end_with
from securebench.stats.sequential import MAX_LOOKS

if TYPE_CHECKING:
    from securebench.analysis.export import ExportFormat

# ruff: noqa: PLC0415

app = typer.Typer()


@app.command()
def report(
    runs: Annotated[list[str], typer.Argument(help="Result folders, or names or run ids of runs.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path(
        "report.html"
    ),
    prices: Prices = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Write a report of runs as one HTML file."""
    from securebench.analysis.command import write_report
    from securebench.client.volume import ClusterTarget

    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: write_report(runs, output, target, prices))


@app.command()
def compare(  # noqa: PLR0913 - flags
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
    looks: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_LOOKS,
            help="Of two runs: after how many parts of the tasks to decide, also during a run.",
        ),
    ] = None,
    prices: Prices = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Compare runs with the first one, task by task."""
    from securebench.analysis.command import CompareOutput, compare_runs
    from securebench.client.volume import ClusterTarget

    if len(runs) < 2:  # noqa: PLR2004
        raise typer.BadParameter("name at least two runs")
    if looks is not None and len(runs) != 2:  # noqa: PLR2004
        raise typer.BadParameter("--looks compares two runs")
    if output not in list(CompareOutput):
        raise typer.BadParameter(f"--output is one of {', '.join(CompareOutput)}, not {output!r}")
    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: compare_runs(runs, CompareOutput(output), html, target, prices, looks))


@app.command()
def export(  # noqa: PLR0913 - flags
    run: Annotated[
        list[str],
        typer.Argument(
            metavar="[harbor] RUN",
            help="Result folder, or name or run id of a run; behind harbor: as a job folder of it.",
        ),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file; of harbor the folder with its jobs."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help="csv, parquet or openmetrics; default: by the file's name."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="mlflow: make or update the run's MLflow run.")
    ] = None,
    tracking_uri: Annotated[
        str,
        typer.Option("--tracking-uri", envvar="MLFLOW_TRACKING_URI", help="MLflow's server."),
    ] = "",
    experiment: Annotated[
        str, typer.Option("--experiment", help="MLflow's; default: the benchmark's id.")
    ] = "",
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Upload records and summary to MLflow too.")
    ] = False,
    prices: Prices = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Write a run as CSV, Parquet or a job folder of Harbor, its figures to MLflow and others."""
    from securebench.analysis.command import export_run, export_to_harbor, export_to_mlflow
    from securebench.client.volume import ClusterTarget

    *program, subject = run
    if program not in ([], ["harbor"]):
        raise typer.BadParameter("name one run, with nothing or harbor before it")
    if to not in {None, "mlflow"}:
        raise typer.BadParameter(f"--to is mlflow, not {to!r}")
    target = ClusterTarget(namespace, context, operator_pod)
    if program:
        if output is None or form is not None or to is not None:
            raise typer.BadParameter("harbor needs --output, the folder with its jobs, alone")
        end_with(lambda: export_to_harbor(subject, output, target, prices))
        return
    if to is None and output is not None:
        chosen = _format(form, output)
        end_with(lambda: export_run(subject, output, chosen, target, prices))
        return
    if output is not None or form is not None or to is None:
        raise typer.BadParameter("name a file with --output, or --to mlflow")
    if not tracking_uri:
        raise typer.BadParameter("name the server with --tracking-uri or MLFLOW_TRACKING_URI")
    server, name = tracking_uri, experiment
    end_with(
        lambda: export_to_mlflow(subject, server, name, target, prices, has_artifacts=artifacts)
    )


def _format(form: str | None, output: Path) -> ExportFormat:
    from securebench.analysis.export import SUFFIXES, ExportFormat

    chosen = form or SUFFIXES.get(output.suffix)
    if chosen not in list(ExportFormat):
        said = f"not {form!r}" if form else f"and {output.name} does not say which"
        raise typer.BadParameter(f"--format is one of {', '.join(ExportFormat)}, {said}")
    return ExportFormat(chosen)


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
    from securebench.client.volume import ClusterTarget

    if pack is None and config is None:
        raise typer.BadParameter("name the pack: a folder or --config")
    if pack is not None and config is not None:
        raise typer.BadParameter("name the pack by its folder or with --config, not both")
    target = ClusterTarget(namespace, context, operator_pod)
    options = AuditOptions(pack, config, output_dir, limit, images, runs, static, target)
    end_with(lambda: run_audit(options))
