"""Runs git on untrusted repositories: fixed configuration, no hooks, a time limit."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from securebench.core.errors import SecureBenchError

TIMEOUT_SECONDS = 120.0
"""For one command; a repository of 200,000 objects needs about 20 s."""

_OPTIONS = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.symlinks=false",
    "-c", "safe.directory=*",
    "-c", "protocol.allow=never",
)  # fmt: skip


class GitError(SecureBenchError):
    """git is missing, or it refused the data."""


class Git:
    """git in one folder of ours.

    Args:
        git_dir: The repository; None outside of every repository.
    """

    def __init__(self, folder: Path, git_dir: Path | None = None) -> None:
        self._folder = folder
        self._program = shutil.which("git")
        where = {} if git_dir is None else {"GIT_DIR": str(git_dir)}
        self._environment: Mapping[str, str] = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            **where,
        }

    def run(self, arguments: Sequence[str], *, given: bytes = b"") -> bytes:
        """Return what a command prints.

        Args:
            arguments: Without the program.
            given: Its standard input.

        Raises:
            GitError: There is no git, it failed or took too long.
        """
        if self._program is None:
            raise GitError("git is not installed on this machine")
        try:
            done = subprocess.run(  # noqa: S603 - fixed program, arguments of ours, no shell
                [self._program, *_OPTIONS, *arguments],
                cwd=self._folder,
                env=dict(self._environment),
                input=given,
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GitError(f"git {arguments[0]} took longer than {TIMEOUT_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise GitError(f"git {arguments[0]} failed with exit code {done.returncode}")
        return done.stdout


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a folder that only this process can read and that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="securebench-audit-") as folder:
        yield Path(folder).resolve()
