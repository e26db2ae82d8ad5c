"""Create the output folder of a command."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from securebench.client.terminal_text import shown_path
from securebench.errors import ConfigError


def make_output_folder(folder: Path) -> None:
    """Create the folder and its parents, and check that it is writable.

    Raises:
        ConfigError: It cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{_problem(folder, error)}; choose another with --output-dir") from error


def _problem(folder: Path, error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path.exists())
        return (
            f"the output folder {shown_path(folder)} cannot be created:"
            f" {shown_path(file)} is a file"
        )
    why = (error.strerror or str(error)).lower()
    return f"the output folder {shown_path(folder)} cannot be written: {why}"
