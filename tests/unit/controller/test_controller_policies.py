"""The network policies of a run: there before its first Pod, restored before its next one."""

from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.core.errors import PermanentClusterError, TransientClusterError

DOMAINS = {
    "type": "command",
    "config": {"command": "echo B", "allowed_domains": ["docs.example.org"]},
}


def policies(world):
    return sorted(world.cluster.objects(ObjectKind.NETWORK_POLICY))


def created(world):
    return [call.kind for call in world.cluster.calls if call.verb == "create"]


def lose_policies(world, *, watched=True):
    """Delete the policies of a run as somebody else would."""
    for name in policies(world):
        if not watched:
            world.cluster.lose_events(1)
        world.cluster.remove(ObjectKind.NETWORK_POLICY, name)


def test_policies_come_before_pods(world):
    world.apply()
    kinds = [kind for kind in created(world) if kind in {ObjectKind.POD, ObjectKind.NETWORK_POLICY}]
    assert kinds[0] is ObjectKind.NETWORK_POLICY
    assert ObjectKind.NETWORK_POLICY not in kinds[1:]


def test_a_run_with_a_way_out_has_three_before_its_gateway(world):
    uid = world.apply(harness=DOMAINS)
    short = f"sb-{uid.replace('-', '')[:12]}"
    assert policies(world) == [f"{short}-deny", f"{short}-egress", f"{short}-gateway"]
    kinds = [kind for kind in created(world) if kind is not ObjectKind.EVENT]
    assert kinds[:4] == [ObjectKind.BENCHMARK_RUN, *[ObjectKind.NETWORK_POLICY] * 3]


def test_a_policy_that_somebody_deletes_is_restored_before_anything_starts(world):
    uid = world.apply(parallelism=1)
    before = policies(world)
    (first,) = world.pods()
    lose_policies(world)
    world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
    world.cluster.calls.clear()
    world.wait(1)
    assert policies(world) == before
    kinds = [kind for kind in created(world) if kind is not ObjectKind.EVENT]
    assert kinds == [ObjectKind.NETWORK_POLICY, ObjectKind.POD]
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_deletion_that_nobody_told_of_is_found_by_the_next_list(world):
    world.apply(parallelism=1)
    before = policies(world)
    lose_policies(world, watched=False)
    world.wait(59)
    assert policies(world) == []
    world.wait(2)
    assert policies(world) == before


def test_nothing_starts_while_a_policy_cannot_be_restored(world):
    uid = world.apply(parallelism=1)
    (first,) = world.pods()
    for _ in range(8):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("create", lost, kind=ObjectKind.NETWORK_POLICY)
    lose_policies(world)
    world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
    world.wait(10)
    assert world.pods() == []
    assert "no answer" in world.condition()["message"]
    world.wait(10)
    assert len(world.pods()) == 1


def test_a_launch_without_an_answer_is_not_repeated_without_policies(world):
    world.apply(parallelism=1, suspend=True)
    lost = TransientClusterError("no answer")
    world.cluster.fail_next("create", lost, kind=ObjectKind.POD)
    world.edit(suspend=False)
    assert world.pods() == []
    lose_policies(world)
    world.cluster.fail_next("create", lost, kind=ObjectKind.NETWORK_POLICY)
    world.cluster.calls.clear()
    world.wait(5)
    kinds = [kind for kind in created(world) if kind is not ObjectKind.EVENT]
    assert kinds[:2] == [ObjectKind.NETWORK_POLICY] * 2
    assert ObjectKind.POD in kinds[2:]


def test_a_full_quota_of_policies_is_waited_for(world):
    error = QuotaExceeded("exceeded quota: networkpolicies")
    world.cluster.fail_next("create", error, kind=ObjectKind.NETWORK_POLICY)
    world.apply()
    assert world.condition()["reason"] == "QuotaExceeded"
    assert world.pods() == []
    world.wait(15)
    assert len(world.pods()) == 2


def test_a_policy_that_is_refused_for_good_ends_the_run(world):
    error = PermanentClusterError("forbidden", status=403)
    world.cluster.fail_next("create", error, kind=ObjectKind.NETWORK_POLICY)
    world.apply()
    world.wait(5)
    found = world.condition()
    assert (found["status"], found["reason"]) == ("False", "PodRefused")
    assert "forbidden" in found["message"]
    assert world.pods() == []


def test_a_policy_of_that_name_that_is_somebody_elses_ends_the_run(world):
    name = "sb-000000010000-deny"
    manifest = {"metadata": {"name": name}, "spec": {"podSelector": {}}}
    world.runner.run(world.cluster.create(ObjectKind.NETWORK_POLICY, manifest))
    world.apply()
    world.wait(5)
    assert world.condition()["reason"] == "PodRefused"
    assert f"a NetworkPolicy named {name} exists that is not this run's" in str(world.condition())


def test_an_operator_that_starts_again_finds_them(world):
    world.apply()
    world.restart()
    world.cluster.calls.clear()
    world.observe(None)
    assert ObjectKind.NETWORK_POLICY not in created(world)


def test_a_suspended_run_that_rests_needs_none(world):
    uid = world.apply(parallelism=1)
    world.edit(suspend=True)
    world.work(uid, rounds=2)
    assert world.condition()["reason"] == "Suspended"
    lose_policies(world)
    world.wait(200)
    assert policies(world) == []
    world.edit(suspend=False)
    assert len(policies(world)) == 1
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
