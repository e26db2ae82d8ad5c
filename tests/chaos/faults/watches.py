"""What a watch shows: cut, expired, lost, doubled, late and out of order."""

from __future__ import annotations

from chaos.kit.cluster import Mangle
from chaos.kit.registry import LAUNCHES, fault
from chaos.kit.scene import Scene
from securebench.cluster.port import WatchEvent
from securebench.errors import TransientClusterError
from securebench.run.observe.pods import PodView

EVENTS = 6
"""So many are changed by one fault."""


@fault("watch-cut")
def cut(scene: Scene, _: PodView) -> None:
    scene.cluster.end_watches(TransientClusterError("connection reset"))


@fault("watch-ended")
def ended(scene: Scene, _: PodView) -> None:
    scene.cluster.end_watches()


@fault("watch-410")
def expired(scene: Scene, _: PodView) -> None:
    scene.cluster.expire_history()


@fault("watch-events-lost", LAUNCHES)
def lost(scene: Scene, _: PodView) -> None:
    scene.cluster.lose_events(scene.random.randint(1, 4))


def mangle(scene: Scene, change: Mangle) -> None:
    """Change the next events."""
    weather = scene.cluster.weather
    last = weather.mangled + EVENTS

    def bounded(event: WatchEvent) -> list[WatchEvent]:
        if weather.mangled > last:
            weather.mangle = None
            return [event]
        return change(event)

    weather.mangle = bounded
    scene.must_feel.append(lambda: weather.mangled > last - EVENTS)


@fault("watch-events-doubled")
def doubled(scene: Scene, _: PodView) -> None:
    mangle(scene, lambda event: [event, event])


@fault("watch-events-stale", LAUNCHES)
def stale(scene: Scene, _: PodView) -> None:
    """Show each event once more after the next one, as a late server would."""
    before: list[WatchEvent] = []

    def change(event: WatchEvent) -> list[WatchEvent]:
        late = [*before]
        before[:] = [event]
        return [event, *late]

    mangle(scene, change)


@fault("watch-events-reordered", LAUNCHES)
def reordered(scene: Scene, _: PodView) -> None:
    """Show pairs of events the wrong way round."""
    kept: list[WatchEvent] = []

    def change(event: WatchEvent) -> list[WatchEvent]:
        if not kept:
            kept.append(event)
            return []
        return [event, kept.pop()]

    mangle(scene, change)
