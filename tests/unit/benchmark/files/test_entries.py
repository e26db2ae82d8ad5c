"""Entries of a pack that are neither files nor folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from securebench.benchmark.files.load import named_file_problems, root_files, root_problems
from securebench.benchmark.reading.rows import AssetRoots

ROOTS = AssetRoots("assets", "hidden")
ONLY = "; packs hold files and folders only"

ENTRIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "file": (lambda path: path.symlink_to("/etc/passwd"), "a symlink: replace it by the file"),
    "folder": (lambda path: path.symlink_to("/etc"), "a symlink: replace it by the folder"),
    "nothing": (lambda path: path.symlink_to("no"), "a symlink: replace it by the file"),
    "fifo": (os.mkfifo, "a FIFO"),
}


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    (tmp_path / "assets/deep").mkdir(parents=True)
    (tmp_path / "assets/deep/a").write_text("x")
    return tmp_path / "manifest.yaml"


@pytest.mark.parametrize("name", ENTRIES)
def test_what_an_entry_is(manifest: Path, name: str) -> None:
    make, want = ENTRIES[name]
    path = manifest.parent / "assets/deep" / name
    make(path)
    (found,) = root_problems(manifest, ROOTS)
    assert str(found) == f"{path}: is {want}{ONLY}"
    assert list(root_files(manifest, ROOTS)) == ["assets/deep/a"]


@pytest.mark.parametrize("name", ENTRIES)
def test_what_the_task_file_is(manifest: Path, name: str) -> None:
    make, want = ENTRIES[name]
    manifest.write_text("")
    make(manifest.parent / "tasks.jsonl")
    (found,) = named_file_problems(manifest, manifest.parent / "tasks.jsonl")
    assert found.reason == f"is {want}{ONLY}"


def test_files_folders_and_nothing_are_for_others(manifest: Path) -> None:
    assert named_file_problems(manifest, manifest.parent) == ()
    assert root_problems(manifest, ROOTS) == ()
