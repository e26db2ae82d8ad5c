"""The operator's process: killed, stopped, doubled; and the process that reads for it."""

from __future__ import annotations

from pathlib import Path

from chaos.kit.registry import fault
from chaos.kit.scene import Scene
from securebench.controller.volume.journal import encode, journal_parts, whole_line
from securebench.run.observe.pods import PodView
from securebench.run.state.entries import RunEnded


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
            movable = [view for view in scene.views() if scene.is_movable(view)]
            if movable:
                scene.move(scene.random.choice(movable))
        scene.start()

    scene.later(0.0, stop)


@fault("reading-ended")
def reading_ended(scene: Scene, _: PodView) -> None:
    scene.reading_ends = 1
    scene.must_feel.append(lambda: not scene.reading_ends)


@fault("second-operator")
def doubled(scene: Scene, _: PodView) -> None:
    def start() -> None:
        first, second = scene.elect()
        scene.must_feel.append(lambda: first.is_leader and not second.is_leader)

    scene.later(0.0, start)


@fault("lease-overdue")
def overdue(scene: Scene, _: PodView) -> None:
    """Let the operator write nothing for a while, neither to the API server nor to the journal."""
    link, seconds = scene.link, scene.random.uniform(5, 90)

    def begin() -> None:
        link.is_overdue = True
        scene.later(seconds, end)

    def end() -> None:
        link.is_overdue = False

    scene.later(0.0, begin)
    scene.must_feel.append(lambda: link.refused > 0)


@fault("leader-deposed")
def deposed(scene: Scene, _: PodView) -> None:
    """Let the operator go on beside the one that leads by then, and write nonsense as well."""
    folder = scene.root / "runs" / scene.uid

    def begin() -> None:
        old = journal_parts(folder)[-1].path
        scene.depose()
        for seconds in (0.0, *(scene.random.uniform(0, 40) for _ in range(2))):
            scene.later(seconds, lambda: write_late(scene, old))

    scene.later(0.0, begin)
    scene.must_feel.append(lambda: has_ignored(folder))


def write_late(scene: Scene, path: Path) -> None:
    """Write a line behind the last one of a file which the journal has left behind."""
    if journal_parts(path.parent)[-1].path == path:
        scene.later(1.0, lambda: write_late(scene, path))
        return
    *_, last = filter(None, map(whole_line, path.read_bytes().splitlines()))
    line = encode(RunEnded("Completed", "too late", scene.clock.now()), last.checksum)
    with scene.fate.outside(), path.open("ab") as file:
        file.write(line)


def has_ignored(folder: Path) -> bool:
    """Whether a file of the journal has more than what counts of it."""
    return any(part.size_bytes != part.path.stat().st_size for part in journal_parts(folder)[:-1])
