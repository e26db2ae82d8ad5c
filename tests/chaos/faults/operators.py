"""The operator's process: killed, stopped, doubled."""

from __future__ import annotations

from chaos.kit.registry import fault
from chaos.kit.scene import Scene
from securebench.run.observe.pods import PodView


@fault("operator-killed")
def killed(scene: Scene, _: PodView) -> None:
    scene.kill()


@fault("operator-killed-at-an-effect")
def killed_at_an_effect(scene: Scene, _: PodView) -> None:
    scene.fate.fuse = scene.random.randint(1, 12)


@fault("operator-restarted")
def restarted(scene: Scene, _: PodView) -> None:
    scene.later(0.0, lambda: (scene.stop(), scene.start()))


@fault("operator-away")
def away(scene: Scene, _: PodView) -> None:
    """Stop it, and start the next one only after Pods have ended."""

    def stop() -> None:
        scene.stop()
        for _ in range(8):
            movable = [view for view in scene.pods() if scene._is_movable(view)]
            if movable:
                scene._move(scene.random.choice(movable))
        scene.start()

    scene.later(0.0, stop)


@fault("second-operator")
def doubled(scene: Scene, _: PodView) -> None:
    scene.later(0.0, scene.rival)
