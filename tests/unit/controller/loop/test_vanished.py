"""What a run remembers of Pods that are gone does not grow with its attempts that have ended."""

from __future__ import annotations

from unittest import mock

from securebench.controller import run_loop
from securebench.controller.run_loop import FULL_RESYNC_SECONDS
from support.build import pod_status, question, running, write_pack
from support.operator_world import World


def test_a_resync_forgets_the_pods_of_attempts_that_have_ended(world: World) -> None:
    remembered = []

    def reconcile(observed, controls, decisions):
        remembered.append(set(observed.vanished))
        return real(observed, controls, decisions)

    real = run_loop.reconcile
    write_pack(world.root / "packs/many", [question(f"q{n}") for n in range(3)])
    with mock.patch.object(run_loop, "reconcile", reconcile):
        uid = world.apply(pack={"volume": {"path": "many"}}, parallelism=1)
        (first,) = world.pods()
        world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
        world.wait(FULL_RESYNC_SECONDS / 4)
        (second,) = set(world.pods()) - {first}
        world.cluster.set_pod_status(second, pod_status("Running", running("verifier")))
        world.wait(2 * FULL_RESYNC_SECONDS)
        assert remembered[-1] == {first}, "its attempt is open"
        world.cluster.set_pod_status(second, world.ending(uid, world.launch(second)))
        world.wait(FULL_RESYNC_SECONDS / 4)
        (third,) = set(world.pods()) - {second}
        world.cluster.set_pod_status(third, pod_status("Running", running("harness")))
        world.wait(2 * FULL_RESYNC_SECONDS)
        assert world.run()["status"]["tasks"]["done"] == 1
        assert remembered[-1] == set()
