"""What is read and made alike: tree digests by the operator, sealed workspaces unpacked again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from securebench.digests import content_digest
from securebench.files import tree_digest
from securebench.protocol.candidate import CandidateBounds, Extraction
from securebench.protocol.messages import encode_spec
from securebench.protocol.supervise import Phase, RunSpec, StreamsSpec
from support.courier import Sealed, SealingPlaces, seal
from support.supervise_build import built


@pytest.fixture(scope="module")
def program() -> Path:
    return built()


def run(program: Path, **fields: object) -> int:
    phases = (Phase("main", ("true",), "/"),)
    spec = json.loads(encode_spec(RunSpec(StreamsSpec("", 0, 0), "", (), 0, 0, phases=phases)))
    words = [program, "run", "--spec", json.dumps(spec | fields)]
    return subprocess.run(words, check=False, stderr=subprocess.DEVNULL).returncode


def odd_tree(root: Path) -> None:
    for name in (
        "a/b",
        "a.b",
        "a-b",
        "deep/er/ü",
        "new\nline",
        "l" * 200,
        "n" * 90 + "/" + "m" * 90,
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * 1000)
    (root / "empty").mkdir()
    (root / "a/b").chmod(0o755)


def test_tree_digests_agree(program: Path, tmp_path: Path) -> None:
    odd_tree(tmp_path)
    (tmp_path / os.fsdecode(b"\xff")).write_bytes(b"not UTF-8")
    lane = {"path": str(tmp_path), "digest": tree_digest(tmp_path)}
    assert run(program, lanes=[lane]) == 0
    (tmp_path / "a/b").write_text("changed")
    assert run(program, lanes=[lane]) == 90


def test_a_sealed_workspace_is_unpacked_as_it_was(program: Path, tmp_path: Path) -> None:
    places = [
        SealingPlaces(
            tmp_path / f"workspace{n}", tmp_path / f"candidate{n}", tmp_path / f"output{n}"
        )
        for n in range(2)
    ]
    for place in (*places[0], *places[1]):
        place.mkdir()
    odd_tree(places[0].workspace)
    (places[0].workspace / "deep/link").symlink_to("../a/b")
    (places[0].workspace / "dangling").symlink_to("x" * 150)

    def sealed(place: SealingPlaces) -> Sealed:
        return seal(place, Extraction("workspace", "workspace"), CandidateBounds(), (), None)

    first = sealed(places[0])
    archive = places[0].candidate / "workspace.tar"
    assert first.digest == content_digest(archive.read_bytes())
    candidate = {"path": str(archive), "digest": first.digest, "to": str(places[1].workspace)}
    assert run(program, candidate=candidate) == 0
    assert sealed(places[1]) == first
