"""The program supervise, built once per session, as it is or with a control taken out of it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).parents[2] / "images" / "supervise"
VOLUMES_HERE = "-X securebench.dev/supervise/internal/courier.volumes=. -X main.terminationLog=log"
"""Links the courier's volumes and its message into the working folder."""


class Edit(NamedTuple):
    """One change of a source.

    Args:
        file: The source, below ``internal``.
        old: What stands there exactly once.
        new: What the changed program has instead.
    """

    file: str
    old: str
    new: str


@cache
def built(*edits: Edit, link: str = "") -> Path:
    """Build supervise.

    Args:
        edits: What is changed in its sources, which stay as they are.
        link: More flags for the linker.
    """
    if shutil.which("go") is None:
        pytest.skip("no Go compiler is here to build supervise")
    folder = Path(tempfile.mkdtemp(prefix="supervise-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = folder / "supervise"
    words = ["go", "build", "-buildvcs=false", "-ldflags", link, "-o", str(target)]
    words += ["-overlay", str(_overlay(folder, edits)), "."]
    subprocess.run(words, cwd=SOURCES, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return target


def _overlay(folder: Path, edits: tuple[Edit, ...]) -> Path:
    texts: dict[Path, str] = {}
    for edit in edits:
        source = SOURCES / "internal" / edit.file
        text = texts.get(source) or source.read_text(encoding="utf-8")
        assert text.count(edit.old) == 1, f"{edit.old!r} in {edit.file}"
        texts[source] = text.replace(edit.old, edit.new)
    changed = {}
    for number, (source, text) in enumerate(texts.items()):
        edited = folder / f"{number}.go"
        edited.write_text(text, encoding="utf-8")
        changed[str(source)] = str(edited)
    overlay = folder / "overlay.json"
    overlay.write_text(json.dumps({"Replace": changed}), encoding="utf-8")
    return overlay
