"""Locates a pack on the tester's machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securebench.benchmark.files.load import CheckedPack
from securebench.client.submit.prepare import LocalPack, local_pack
from securebench.client.submit.tester_config import TesterConfig, load_tester_config
from securebench.errors import ConfigErrors, InvalidInputError


@dataclass(frozen=True, slots=True)
class PackFiles:
    """Locates a local pack: by a tester YAML that names it, or by manifest and task file."""

    config: Path | None = None
    manifest: Path | None = None
    tasks: Path | None = None


@dataclass(frozen=True, slots=True)
class PackSource:
    """The files of a local pack; ``config`` is None where no tester YAML names them."""

    manifest: Path
    tasks: Path
    config: TesterConfig | None


def pack_source(files: PackFiles) -> PackSource:
    """Return manifest and task file.

    Raises:
        InvalidInputError: Nothing names the pack.
        ConfigErrors: The tester YAML does not hold.
    """
    if files.config is not None:
        config = load_tester_config(files.config)
        return PackSource(config.benchmark.manifest, config.benchmark.tasks, config)
    if files.manifest is None or files.tasks is None:
        raise InvalidInputError("name the pack with --config, or with --manifest and --tasks")
    return PackSource(files.manifest, files.tasks, None)


def valid_pack(source: PackSource, checked: CheckedPack) -> LocalPack:
    """Return the pack as it is uploaded.

    Raises:
        ConfigErrors: All its defects.
    """
    if checked.pack is None or checked.errors:
        raise ConfigErrors(checked.errors)
    return local_pack(source.manifest, source.tasks, checked.pack.manifest)
