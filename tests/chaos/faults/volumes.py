"""The results volume."""

from __future__ import annotations

import errno

from chaos.kit.registry import fault
from chaos.kit.scene import Scene
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import VOLUME_SILENT

TROUBLE_SECONDS = 45.0


def feel(scene: Scene) -> None:
    """Ask that the operator meets the fault."""
    before = scene.volume.hits
    scene.must_feel.append(lambda: scene.volume.hits > before)


@fault("volume-full")
def full(scene: Scene, _: PodView) -> None:
    scene.volume.room_bytes = scene.random.randint(0, 4096)
    scene.later(TROUBLE_SECONDS, scene.volume.heal)
    feel(scene)


@fault("volume-read-only")
def read_only(scene: Scene, _: PodView) -> None:
    scene.volume.trouble = errno.EROFS
    scene.later(TROUBLE_SECONDS, scene.volume.heal)
    feel(scene)


@fault("volume-away")
def away(scene: Scene, _: PodView) -> None:
    scene.volume.trouble = errno.ESTALE
    scene.later(TROUBLE_SECONDS, scene.volume.heal)
    feel(scene)


@fault("volume-hangs")
def hangs(scene: Scene, _: PodView) -> None:
    """Let no call return for a while; the run says so, unless something else goes wrong too."""
    told: list[str] = []

    def heal() -> None:
        told.append(scene.told()[1])
        scene.volume.heal()

    scene.volume.is_hanging = True
    scene.later(TROUBLE_SECONDS, heal)
    feel(scene)
    if len(scene.injections) == 1:
        scene.must_feel.append(lambda: told[0].startswith(VOLUME_SILENT))


@fault("short-writes")
def short(scene: Scene, _: PodView) -> None:
    scene.volume.piece_bytes = scene.random.choice([1, 7, 100])
    scene.later(TROUBLE_SECONDS, scene.volume.heal)
    feel(scene)


@fault("sync-fails")
def unsynced(scene: Scene, _: PodView) -> None:
    scene.volume.is_syncing = False
    scene.later(TROUBLE_SECONDS, scene.volume.heal)
    feel(scene)


@fault("cut-write-stays")
def cut_write_stays(scene: Scene, _: PodView) -> None:
    """Let the volume fill up within a line and fail to cut that off; then all is well again."""
    scene.volume.room_bytes = scene.random.randint(1, 300)
    scene.volume.is_truncating = False
    feel(scene)


@fault("journal-torn")
def torn(scene: Scene, _: PodView) -> None:
    """Kill the operator while it appends: any number of bytes of that reach the disk."""
    scene.volume.tear = lambda data: scene.random.randint(0, len(data))
    feel(scene)


@fault("journal-torn-often")
def torn_often(scene: Scene, view: PodView) -> None:
    for number in range(4):
        scene.later(2.0 * number, lambda: torn(scene, view))
