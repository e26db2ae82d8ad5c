from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from securebench.controller.volume.artifacts import KEPT_SECONDS, VolumeArtifacts, folder_of
from securebench.errors import StorageError
from securebench.files import tree_digest

NOW = 1_767_225_600.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return made(tmp_path / "image", "1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def made(folder: Path, version: str) -> Path:
    (folder / "securebench_code").mkdir(parents=True)
    (folder / "securebench_code" / "entry.py").write_text(f"VERSION = {version}\n")
    (folder / "supervise").write_text("#!/bin/sh\nexit 92\n")
    (folder / "supervise").chmod(0o700)
    return folder


def installed(root: Path, source: Path, now: float) -> Path:
    return root / folder_of(VolumeArtifacts(root).install(source, now))


def contents(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "tools").iterdir())


def test_the_folder_is_named_by_its_content_and_open_to_every_user(
    root: Path, source: Path
) -> None:
    programs = VolumeArtifacts(root).install(source, NOW)
    name = folder_of(programs)

    assert programs.digest == tree_digest(source)
    assert name == f"tools/{tree_digest(source).removeprefix('sha256:')}"
    assert tree_digest(root / name) == tree_digest(source)
    modes = {
        path.name: path.stat().st_mode & 0o7777 for path in [root / name, *(root / name).rglob("*")]
    }
    assert modes.pop("entry.py") == 0o644
    assert set(modes.values()) == {0o755}
    assert contents(root) == [(root / name).name]


def test_what_is_whole_stays_as_it_is(root: Path, source: Path) -> None:
    folder = installed(root, source, NOW)
    before = folder.stat().st_ino, (folder / "supervise").stat().st_ino

    assert installed(root, source, NOW + 1) == folder
    assert (folder.stat().st_ino, (folder / "supervise").stat().st_ino) == before


DAMAGE = {
    "changed": lambda folder: (folder / "supervise").write_text("#!/bin/sh\nexit 0\n"),
    "missing": lambda folder: (folder / "securebench_code" / "entry.py").unlink(),
    "more": lambda folder: (folder / "json.py").write_text(""),
    "a link": lambda folder: (folder / "link").symlink_to("/etc"),
    "closed": lambda folder: (folder / "securebench_code").chmod(0o700),
    "not executable": lambda folder: (folder / "supervise").chmod(0o644),
    "empty, as the kubelet makes it": lambda folder: (shutil.rmtree(folder), folder.mkdir()),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_repaired_and_who_has_it_mounted_keeps_it(
    root: Path, source: Path, how: str
) -> None:
    folder = installed(root, source, NOW)
    DAMAGE[how](folder)
    held = folder.stat().st_ino

    assert installed(root, source, NOW) == folder
    assert tree_digest(folder) == tree_digest(source)
    assert (folder / "supervise").stat().st_mode & 0o7777 == 0o755
    assert held in {path.stat().st_ino for path in (root / "tools").iterdir()}


def test_other_versions_stay_while_a_pod_may_need_them(
    tmp_path: Path, root: Path, source: Path
) -> None:
    old = installed(root, source, NOW)
    other = made(tmp_path / "other", "2")
    (root / "tools" / ".left").mkdir()
    new = installed(root, other, NOW + 5 * KEPT_SECONDS)
    VolumeArtifacts(root).install(other, NOW + 6 * KEPT_SECONDS - 1)
    assert old.is_dir()
    VolumeArtifacts(root).install(other, NOW + 6 * KEPT_SECONDS + 1)
    assert contents(root) == [new.name]


def test_a_version_that_is_installed_again_is_not_forgotten(
    tmp_path: Path, root: Path, source: Path
) -> None:
    other = made(tmp_path / "other", "2")
    old = installed(root, source, NOW)
    VolumeArtifacts(root).install(other, NOW)
    VolumeArtifacts(root).install(source, NOW + KEPT_SECONDS - 1)
    VolumeArtifacts(root).install(other, NOW + KEPT_SECONDS + 1)
    assert old.is_dir()


def test_a_volume_that_starts_no_programs_is_said(root: Path, source: Path) -> None:
    folder = installed(root, source, NOW)
    (source / "supervise").write_text("#!/no/such/interpreter\n")
    with pytest.raises(OSError, match="supervise"):
        VolumeArtifacts(root).install(source, NOW)
    assert folder.is_dir()


def test_an_image_without_programs_is_said(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        VolumeArtifacts(root).install(tmp_path / "nowhere", NOW)
