"""The same reading by SecureBench, in the form in which ``reference`` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from securebench.benchmark.harbor.config import FindingKind, HarborEnvironment, TaskConfig
from securebench.benchmark.harbor.folder import HarborTask, TreeFile, VerifierSource, read_folder

Reading = dict[str, Any]


def reading(folder: Path) -> Reading:
    """Return what SecureBench reads, or the refusals of a folder."""
    found = read_folder(folder)
    if found.task is None:
        refusals = found.of_kind(FindingKind.REFUSED)
        return {"refused": [f"{each.file}: {each}" for each in refusals]}
    return {"read": _read(found.task)}


def _read(task: HarborTask) -> Reading:
    config = task.config
    modes = [config.verifier_mode(step).value for step in config.steps or ()]
    return {
        "config": _config(config),
        "instruction": task.instruction,
        "steps": [
            {
                "name": step.name,
                "instruction": step.instruction,
                "mode": mode,
                "tests": _paths(step.tests),
                "solution": _paths(step.solution),
            }
            for step, mode in zip(task.steps, modes, strict=True)
        ],
        "mode": config.verifier_mode().value,
        "tests": _paths(task.tests),
        "solution": _paths(task.solution),
        "verifiers": [_verifier(each) for each in task.verifiers],
    }


def _paths(files: tuple[TreeFile, ...]) -> list[str]:
    return [file.path for file in files]


def _verifier(source: VerifierSource) -> Reading:
    return {
        "step": source.step,
        "image": source.image,
        "folder": source.folder,
        "brings_tests": source.brings_tests,
        "environment": {**_environment(source.environment), "docker_image": source.image},
    }


def _config(config: TaskConfig) -> Reading:
    plain = config.model_dump(mode="json")
    plain["environment"] = _environment(config.environment)
    _put_environment(plain, config.verifier.environment)
    for step, values in zip(config.steps or (), plain["steps"] or (), strict=True):
        _put_environment(values, step.verifier.environment)
    return plain


def _put_environment(values: Reading, environment: HarborEnvironment | None) -> None:
    if environment is not None:
        values["verifier"]["environment"] = _environment(environment)


def _environment(environment: HarborEnvironment) -> Reading:
    plain = environment.model_dump(mode="json", exclude={"allow_internet"})
    return {**plain, "network_mode": environment.network.mode}
