"""Packages with entry points, installed in a folder for one test."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from securebench.agents.registry import AGENTS
from securebench.benchmark.families.registry import FAMILIES
from securebench.run.plan.kinds import KINDS

PLUGINS = Path(__file__).parents[1] / "plugins"
REGISTRIES = (AGENTS, FAMILIES, KINDS)


@contextmanager
def installed(folder: Path, name: str, groups: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Install a package, as pip leaves it: what its entry points name is in the folder."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{point} = {place}" for point, place in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    path = mock.patch.object(sys, "path", [str(folder), *sys.path])
    modules = mock.patch.dict(sys.modules)
    with path, modules, _forgotten():
        for place in folder.glob("*.py"):
            sys.modules.pop(place.stem, None)
        yield


@contextmanager
def plugin(folder: Path, name: str) -> Iterator[None]:
    """Install a package of this repository's folder of plug-ins."""
    source = PLUGINS / name
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    for module in source.glob("*.py"):
        (folder / module.name).write_text(module.read_text())
    with installed(folder, project["name"], project["entry-points"]):
        yield


@contextmanager
def _forgotten() -> Iterator[None]:
    """Let registries look again, before and after."""
    known = [dict(each._known) for each in REGISTRIES]
    for each in REGISTRIES:
        each.__dict__.pop("_points", None)
    yield
    for each, before in zip(REGISTRIES, known, strict=True):
        each.__dict__.pop("_points", None)
        each._known = before
