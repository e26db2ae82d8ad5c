"""What launches left, damaged before the operator reads it."""

from __future__ import annotations

import copy
import shutil
from typing import Any

from chaos.kit.registry import fault
from chaos.kit.scene import Moment, Scene
from securebench.run.observe.pods import PodView

SEALED = (Moment("harness", "ended"),)
JUDGED = (Moment("verifier", "ended"),)
CANDIDATE = "candidate/candidate.txt"


@fault("candidate-changed", SEALED)
def changed(scene: Scene, view: PodView) -> object:
    path = scene.folder(view) / CANDIDATE
    if not path.exists():
        return False
    path.write_text("somebody else's\n", encoding="utf-8")
    return True


@fault("candidate-gone", SEALED)
def gone(scene: Scene, view: PodView) -> object:
    path = scene.folder(view) / CANDIDATE
    if not path.exists():
        return False
    path.unlink()
    return True


@fault("launch-folder-gone", SEALED)
def folder_gone(scene: Scene, view: PodView) -> object:
    if not (scene.folder(view) / CANDIDATE).exists():
        return False
    shutil.rmtree(scene.folder(view))
    return True


def cut_message(scene: Scene, view: PodView, container: str, part: float) -> object:
    """Cut the termination message of a container; True when it had one."""
    status: Any = copy.deepcopy(scene.endings[view.name])
    for item in (*status.get("initContainerStatuses", ()), *status["containerStatuses"]):
        end = item["state"].get("terminated", {})
        if item["name"] == container and end.get("message"):
            end["message"] = end["message"][: int(len(end["message"]) * part)]
            scene.endings[view.name] = status
            return True
    return False


@fault("seal-message-cut", SEALED)
def seal_cut(scene: Scene, view: PodView) -> object:
    return cut_message(scene, view, "courier", scene.random.uniform(0, 0.99))


@fault("seal-message-gone", SEALED)
def seal_gone(scene: Scene, view: PodView) -> object:
    if not (scene.folder(view) / CANDIDATE).exists():
        return False  # what a container at its memory limit left is not needed
    return cut_message(scene, view, "courier", 0.0)


@fault("verdict-message-cut", JUDGED)
def verdict_cut(scene: Scene, view: PodView) -> object:
    return cut_message(scene, view, "verifier", scene.random.uniform(0, 0.99))


@fault("verdict-message-gone", JUDGED)
def verdict_gone(scene: Scene, view: PodView) -> object:
    return cut_message(scene, view, "verifier", 0.0)
