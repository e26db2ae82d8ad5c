"""The commands ``securebench init`` and ``pack``: make, check, upload, publish and import packs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securebench.cli.options import (
    Context,
    Manifest,
    Namespace,
    OperatorPod,
    OptionalConfig,
    Tasks,
    TextOrJson,
    TextOrJsonOutput,
)
from securebench.client.output import end_with

if TYPE_CHECKING:
    from securebench.client.packs import PackFiles

# ruff: noqa: PLC0415

PlainHttp = Annotated[bool, typer.Option("--plain-http", help="Ask the registry without TLS.")]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca-file", help="Certificate authority of the registry, in PEM."),
]

root = typer.Typer()
app = typer.Typer(help="Check, upload and show benchmark packs.", no_args_is_help=True)


class ImportedFamily(StrEnum):
    """Families that a table can have."""

    MULTIPLE_CHOICE = "multiple_choice"
    SHORT_ANSWER = "short_answer"


@root.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(help="Folder to make; it may exist if it is empty.")],
    *,
    family: Annotated[
        str,
        typer.Option(
            "--family",
            help="Kind of task: multiple_choice, short_answer, free_response, code_completion,"
            " repo_patch or terminal_task.",
        ),
    ],
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            help="Harness type: command, codex, claude_code, mini_swe_agent or opencode.",
        ),
    ] = "command",
) -> None:
    """Make a pack that runs at once, with reference answers and editor support."""
    from securebench.client.starter import init

    end_with(lambda: init(folder, family, agent))


@app.command("lint")
def pack_lint(  # noqa: PLR0913 - flags
    folder: Annotated[
        Path | None,
        typer.Argument(help="Tester YAML, the folder with tester.yaml, or Harbor task folders."),
    ] = None,
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Check again after each change, until Ctrl-C.")
    ] = False,
    output: TextOrJsonOutput = TextOrJson.TEXT,
) -> None:
    """Check a pack, or Harbor task folders, without running it."""
    from securebench.client import packs

    files, as_json = _pack_files(config, manifest, tasks, folder), output is TextOrJson.JSON
    if watch:
        end_with(lambda: packs.watch(files, as_json=as_json))
    end_with(lambda: packs.lint(files, strict=strict, as_json=as_json))


Folder = Annotated[
    Path | None, typer.Argument(help="Folder with tester.yaml, or Harbor task folders.")
]


@app.command("push")
def pack_push(  # noqa: PLR0913 - flags
    folder: Folder = None,
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    *,
    name: Annotated[
        str | None, typer.Option("--name", help="Folder on the volume; default: id and digest.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Push to a registry instead: registry/repository[:tag]."),
    ] = None,
    plain_http: PlainHttp = False,
    ca_file: CaFile = None,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Upload a pack to the results volume, or push it to a registry as an image."""
    from securebench.client import packs
    from securebench.client.volume import ClusterTarget

    files = _pack_files(config, manifest, tasks, folder)
    if image is not None:
        options = packs.RegistryOptions(plain_http, ca_file)
        end_with(lambda: packs.push_image(files, image, options))
    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: packs.push(files, name, target))


@app.command("build")
def pack_build(
    folder: Annotated[Path, typer.Argument(help="New folder for the OCI image layout.")],
    pack: Folder = None,
    *,
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
) -> None:
    """Build a pack's image as an OCI image layout, without a registry."""
    from securebench.client import packs

    files = _pack_files(config, manifest, tasks, pack)
    end_with(lambda: packs.build(files, folder))


@app.command("build-images")
def pack_build_images(
    folder: Annotated[Path, typer.Argument(help="Harbor task folder, or a folder of them.")],
    *,
    registry: Annotated[
        str, typer.Option("--registry", metavar="PREFIX", help="Prefix of the images' names.")
    ],
    push: Annotated[bool, typer.Option("--push", help="Push them to the registry.")] = False,
    write: Annotated[
        Path | None,
        typer.Option("--write", help="Write a script for kaniko instead of building here."),
    ] = None,
) -> None:
    """Build the images of task folders with docker or buildah; the content names each."""
    from securebench.client import packs

    options = packs.ImageOptions(registry, push, write)
    end_with(lambda: packs.build_images(folder, options))


@app.command("pull")
def pack_pull(
    image: Annotated[str, typer.Argument(help="registry/repository, with :tag or @sha256:digest.")],
    folder: Annotated[Path, typer.Argument(help="New folder for the pack.")],
    *,
    plain_http: PlainHttp = False,
    ca_file: CaFile = None,
) -> None:
    """Pull a pack from a registry into a folder."""
    from securebench.client import packs

    options = packs.RegistryOptions(plain_http, ca_file)
    end_with(lambda: packs.pull(image, folder, options))


@app.command("show")
def pack_show(  # noqa: PLR0913 - flags
    name: Annotated[
        str | None,
        typer.Argument(help="Pack on the results volume; with a '/' in it, a local folder."),
    ] = None,
    *,
    config: OptionalConfig = None,
    manifest: Manifest = None,
    tasks: Tasks = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Of a local pack: id of a task, or #INDEX from 0.")
    ] = None,
    every_task: Annotated[bool, typer.Option("--all", help="Of a local pack: all tasks.")] = False,
    output: TextOrJsonOutput = TextOrJson.TEXT,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Show a pack on the results volume, or a local one and who sees what of its tasks."""
    from securebench.client import packs
    from securebench.client.volume import ClusterTarget

    as_json = output is TextOrJson.JSON
    folder = Path(name) if name is not None and "/" in name else None
    files = _pack_files(config, manifest, tasks, folder)
    if name is None or folder is not None:
        options = packs.ShowOptions(task, every_task, as_json)
        end_with(lambda: packs.show_local(files, options))
    if (config, manifest, tasks) != (None, None, None):
        raise typer.BadParameter("name a pack on the results volume or a local one, not both")
    if task is not None or every_task:
        raise typer.BadParameter("--task and --all are for a local pack; name it with --config")
    target = ClusterTarget(namespace, context, operator_pod)
    end_with(lambda: packs.show_uploaded(name, target, as_json=as_json))


@app.command("list")
def pack_list(
    *,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """List the packs on the results volume and the active runs that use them."""
    from securebench.client import packs
    from securebench.client.volume import ClusterTarget

    end_with(lambda: packs.list_uploaded(ClusterTarget(namespace, context, operator_pod)))


@app.command("rm")
def pack_rm(
    name: Annotated[str, typer.Argument(help="Pack on the results volume.")],
    *,
    namespace: Namespace = None,
    context: Context = None,
    operator_pod: OperatorPod = None,
) -> None:
    """Remove a pack from the results volume, unless an active run uses it."""
    from securebench.client import packs
    from securebench.client.volume import ClusterTarget

    end_with(lambda: packs.remove(name, ClusterTarget(namespace, context, operator_pod)))


@app.command("import")
def pack_import(  # noqa: PLR0913 - flags
    table: Annotated[Path, typer.Argument(help="CSV with a header, or JSONL as of HuggingFace.")],
    pack: Annotated[
        Path | None, typer.Argument(help="Folder to write the pack to; without it a preview.")
    ] = None,
    *,
    family: Annotated[
        ImportedFamily, typer.Option("--family", help="Kind of task.")
    ] = ImportedFamily.MULTIPLE_CHOICE,
    id_column: Annotated[str, typer.Option("--id", help="Column with the id.")] = "",
    question: Annotated[str, typer.Option("--question", help="Column with the question.")] = "",
    choices: Annotated[
        str,
        typer.Option(
            "--choices", help="Column with the list of choices, or one column for each: A,B,C,D."
        ),
    ] = "",
    answer: Annotated[str, typer.Option("--answer", help="Column with the answer.")] = "",
    first: Annotated[
        int, typer.Option("--first", min=0, max=1, help="Number of the first choice in answers.")
    ] = 0,
    image: Annotated[str, typer.Option("--image", help="Image of the tasks.")] = "python:3.11-slim",
) -> None:
    """Make a pack of questions from a table."""
    from securebench.importers.tables import Columns, TableImport, run_import

    columns = Columns(id_column, question, tuple(filter(None, choices.split(","))), answer)
    end_with(lambda: run_import(TableImport(table, pack, family.value, columns, first, image)))


def _pack_files(
    config: Path | None, manifest: Path | None, tasks: Path | None, folder: Path | None = None
) -> PackFiles:
    """Return where the pack lies; two ways to name it may name two packs."""
    from securebench.client.packs import PackFiles

    ways = (folder, config, manifest or tasks)
    if sum(way is not None for way in ways) > 1:
        raise typer.BadParameter(
            "name one pack: by its folder, with --config, or with --manifest and --tasks"
            if folder is not None
            else "name one pack: with --config, or with --manifest and --tasks"
        )
    return PackFiles(config or folder, manifest, tasks)
