"""F1: an answer that lies in a task image."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from securebench.audit.command import audit
from securebench.audit.images import Catalogue, catalogue
from securebench.audit.subject import Finding, FindingOutcome, Rule, Subject, load_subject
from threats.kit.canaries import canary

SECRET = canary()
IMAGE = "example.org/planted:1"
ROW = {
    "id": "planted",
    "input": {"instructions": "Do it."},
    "eval": {"checker": {"command": "true"}, "expected_state": SECRET},
}
ENVIRONMENT = f"{{image: '{IMAGE}', workdir: /app}}"
MANIFEST = f"""\
id: planted
version: 1
defaults: {{family: terminal_task, environment: {ENVIRONMENT}}}
"""
PLACES = ("deleted file", "LABEL", "ENV")


def tar(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def write_image(folder: Path, place: str) -> None:
    """Write an image with the secret at one place; a second layer deletes the file."""
    said = f"the state is {SECRET}"
    settings = {
        "Labels": {"note": said if place == "LABEL" else "nothing"},
        "Env": [f"NOTE={said if place == 'ENV' else 'nothing'}"],
    }
    content = said if place == "deleted file" else "nothing"
    layers = {
        "1.tar": tar({"data/solution.txt": content.encode()}),
        "2.tar": tar({"data/.wh.solution.txt": b"", "app/readme": b"work here"}),
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": list(layers)}]
    image = {"config.json": json.dumps({"config": settings}).encode(), **layers}
    image["manifest.json"] = json.dumps(manifest).encode()
    (folder / "image.tar").write_bytes(tar(image))


def pack(folder: Path) -> Subject:
    (folder / "manifest.yaml").write_text(MANIFEST)
    (folder / "tasks.jsonl").write_text(json.dumps(ROW) + "\n")
    return load_subject(folder / "manifest.yaml", folder / "tasks.jsonl")


def image_findings(folder: Path, archives: Catalogue | None) -> list[Finding]:
    return [found for found in audit(pack(folder), archives).findings if found.rule is Rule.IMAGE]


@pytest.mark.short
@pytest.mark.parametrize("place", PLACES)
def test_a_005_attack(tmp_path: Path, place: str) -> None:
    write_image(tmp_path, place)

    found = image_findings(tmp_path, catalogue(tmp_path))

    assert {item.outcome for item in found} == {FindingOutcome.FAILED}
    said = "\n".join(item.message for item in found)
    assert "expected_state" in said
    assert ("layer 1" if place == "deleted file" else place) in said
    assert SECRET not in said


@pytest.mark.parametrize("place", PLACES)
def test_a_005_twin(tmp_path: Path, place: str) -> None:
    write_image(tmp_path, place)

    (found,) = image_findings(tmp_path, None)

    assert found.outcome is FindingOutcome.NOT_CHECKED
    assert SECRET.encode() in (tmp_path / "image.tar").read_bytes()


@pytest.mark.short
def test_a_005_honest(tmp_path: Path) -> None:
    write_image(tmp_path, "nowhere")

    (found,) = image_findings(tmp_path, catalogue(tmp_path))

    assert found.outcome is FindingOutcome.PASSED
