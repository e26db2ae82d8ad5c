"""Jumps of the operator's wall clock."""

from __future__ import annotations

from functools import partial

from chaos.kit.registry import LAUNCHES, fault
from chaos.kit.scene import Scene
from securebench.run.observe.pods import PodView


def jump(seconds: float, scene: Scene, _: PodView) -> None:
    """Set the clock forward or back."""
    scene.skewed.offset += seconds


fault("clock-forward", LAUNCHES)(partial(jump, 3600.0))
fault("clock-back")(partial(jump, -300.0))


@fault("clock-unsteady")
def unsteady(scene: Scene, view: PodView) -> None:
    for number in range(10):
        scene.later(number * 3.0, partial(jump, scene.random.uniform(-20, 20), scene, view))
