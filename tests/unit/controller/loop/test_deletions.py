"""A run some of whose Pods may not be deleted."""

from __future__ import annotations

from securebench.cluster.port import Forbidden, ObjectKind


def test_a_pod_that_may_not_be_deleted_holds_no_attempt_up(world, monkeypatch):
    uid = world.apply(parallelism=2)
    both = held, _ = world.pods()
    delete = world.cluster.delete

    async def guarded(kind, name, **options):
        if name == held:
            raise Forbidden("the webhook denied it", status=403)
        return await delete(kind, name, **options)

    async def denied(*_):
        raise Forbidden("the webhook denied it", status=403)

    monkeypatch.setattr(world.cluster, "delete", guarded)
    monkeypatch.setattr(world.cluster, "delete_collection", denied)
    lists = world.cluster.requests["list", ObjectKind.POD]
    for name in both:
        world.cluster.set_pod_status(name, world.ending(uid, world.launch(name)))
    world.wait(40)
    (verifier,) = (name for name in world.pods() if name != held)
    world.cluster.set_pod_status(verifier, world.ending(uid, world.launch(verifier)))
    world.wait(15)
    assert world.run()["status"]["tasks"]["done"] == 2
    assert held in world.pods()
    assert world.cluster.requests["list", ObjectKind.POD] == lists, "the loop began again"
    monkeypatch.undo()
    world.work(uid)
    assert world.condition()["status"] == "True"
