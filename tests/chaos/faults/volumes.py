"""The results volume."""

from __future__ import annotations

import errno

from chaos.kit.registry import fault
from chaos.kit.scene import Scene
from securebench.run.observe.pods import PodView

TROUBLE_SECONDS = 45.0


@fault("volume-full")
def full(scene: Scene, _: PodView) -> None:
    scene.volume.room_bytes = scene.random.randint(0, 4096)
    scene.later(TROUBLE_SECONDS, scene.volume.heal)


@fault("volume-read-only")
def read_only(scene: Scene, _: PodView) -> None:
    scene.volume.trouble = errno.EROFS
    scene.later(TROUBLE_SECONDS, scene.volume.heal)


@fault("volume-away")
def away(scene: Scene, _: PodView) -> None:
    scene.volume.trouble = errno.ESTALE
    scene.later(TROUBLE_SECONDS, scene.volume.heal)


@fault("short-writes")
def short(scene: Scene, _: PodView) -> None:
    scene.volume.piece_bytes = scene.random.choice([1, 7, 100])
    scene.later(TROUBLE_SECONDS, scene.volume.heal)


@fault("sync-fails")
def unsynced(scene: Scene, _: PodView) -> None:
    scene.volume.is_syncing = False
    scene.later(TROUBLE_SECONDS, scene.volume.heal)


@fault("cut-write-stays")
def cut_write_stays(scene: Scene, _: PodView) -> None:
    """Let the volume fill up within a line, and refuse to cut what was written of it."""
    scene.volume.room_bytes = scene.random.randint(1, 300)
    scene.volume.is_truncating = False
    hits = scene.volume.hits

    def heal() -> None:
        if scene.volume.hits > hits + 1:
            scene.volume.heal()
        else:
            scene.later(0.1, heal)

    scene.later(0.1, heal)


@fault("journal-torn")
def torn(scene: Scene, _: PodView) -> None:
    """Kill the operator while it appends: any number of bytes of that reach the disk."""
    scene.volume.tear = lambda data: scene.random.randint(0, len(data))


@fault("journal-torn-often")
def torn_often(scene: Scene, view: PodView) -> None:
    for number in range(4):
        scene.later(5.0 * number, lambda: torn(scene, view))
