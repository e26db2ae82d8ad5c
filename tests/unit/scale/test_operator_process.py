"""The operator that ``make scale`` starts has all that its Pod would give it."""

from __future__ import annotations

import json
from pathlib import Path

from scale.operator_process import environment, image_environment, settings
from securebench.controller.settings import load_settings


def test_its_environment_and_settings_are_complete(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(json.dumps(settings(tmp_path, 9090)))

    read = load_settings(environment("sb-scale"), path)

    assert (read.namespace, read.metrics_port) == ("sb-scale", 9090)


def test_it_has_the_allocator_of_the_image() -> None:
    assert image_environment().keys() == {"MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"}
