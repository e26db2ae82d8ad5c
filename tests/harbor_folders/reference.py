"""Reads task folders with the classes of the package harbor; runs in an environment of its own.

usage: reference.py FOLDER: the keys of the classes, then a JSON object for each child in order.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import get_type_hints

from harbor.models.task.config import TaskConfig
from harbor.models.task.task import Task
from harbor.models.task.verifier_mode import (
    resolve_step_verifier_mode,
    resolve_task_verifier_mode,
    resolve_verifier_environment_definition,
)
from pydantic import BaseModel


def reading(folder: Path) -> dict:
    """Return what Harbor reads, or that it refuses the folder."""
    try:
        task = Task(folder)
        if not Task.is_valid_dir(folder):
            return {"refused": "is_valid_dir"}
        return {"read": _read(task, folder)}
    except Exception as error:  # noqa: BLE001 - any failure is a refusal
        return {"refused": f"{type(error).__name__}: {str(error).splitlines()[:3]}"}


def _read(task: Task, folder: Path) -> dict:
    config = task.config
    steps = config.steps or []
    return {
        "config": _plain(config.model_dump(mode="json")),
        "instruction": task.instruction,
        "steps": [
            {
                "name": step.name,
                "instruction": task.step_instruction(step.name),
                "mode": resolve_step_verifier_mode(config, step).value,
                "tests": _tree(task, task.paths.step_tests_dir(step.name)),
                "solution": _tree(task, task.paths.step_solution_dir(step.name)),
            }
            for step in steps
        ],
        "mode": resolve_task_verifier_mode(config).value,
        "tests": _tree(task, task.paths.tests_dir),
        "solution": _tree(task, task.paths.solution_dir),
        "verifiers": [
            found
            for step in steps or [None]
            if (found := _verifier(task, folder, step)) is not None
        ],
    }


def _verifier(task: Task, folder: Path, step: object) -> dict | None:
    definition = resolve_verifier_environment_definition(task.config, task.paths, step)
    if definition is None:
        return None
    image = definition.config.docker_image or ""
    directory = definition.directory.relative_to(folder.resolve()).as_posix()
    environment = _environment(definition.config.model_dump(mode="json"))
    return {
        "step": "" if step is None else step.name,
        "image": image,
        "folder": "" if image else directory,
        "brings_tests": definition.bundled_tests,
        "environment": {**environment, "docker_image": image},
    }


def _tree(task: Task, folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    chosen = task.file_filter.select(folder).relative_paths
    return sorted(path.as_posix() for path in chosen if (folder / path).is_file())


def _plain(config: dict) -> dict:
    config["environment"] = _environment(config["environment"])
    config["artifacts"] = _artifacts(config["artifacts"])
    for place in (config, *(config["steps"] or [])):
        if place["verifier"]["environment"] is not None:
            place["verifier"]["environment"] = _environment(place["verifier"]["environment"])
        place["artifacts"] = _artifacts(place["artifacts"])
    return config


def _environment(environment: dict) -> dict:
    """Return a table without a key that is always refused, and an old one that has no value."""
    dropped = {"tpu", "allow_internet"}
    return {key: value for key, value in environment.items() if key not in dropped}


def _artifacts(artifacts: list) -> list:
    empty = {"destination": None, "exclude": [], "service": None}
    return [{"source": each, **empty} if isinstance(each, str) else each for each in artifacts]


def keys(model: type[BaseModel] = TaskConfig, place: str = "") -> list[str]:
    """Return the paths of all keys of the classes; ``[]`` stands for the items of a list."""
    found = []
    hints = get_type_hints(model)
    for name in model.model_fields:
        path = f"{place}.{name}" if place else name
        found.append(path)
        for below, is_list in _models(hints[name]):
            found += keys(below, f"{path}[]" if is_list else path)
    return found


def _models(annotation: object, *, in_list: bool = False) -> list[tuple[type[BaseModel], bool]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, in_list)]
    is_list = in_list or getattr(annotation, "__origin__", None) is list
    below = getattr(annotation, "__args__", ())
    return [pair for each in below for pair in _models(each, in_list=is_list)]


def main(folder: Path) -> None:
    """Print the keys of the classes, and then a line for each folder."""
    warnings.simplefilter("ignore")
    print(json.dumps({"keys": keys()}))
    for child in sorted(folder.iterdir()):
        print(json.dumps({"name": child.name, **reading(child)}, sort_keys=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
