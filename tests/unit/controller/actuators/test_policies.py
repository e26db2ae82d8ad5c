"""The network policies of a run: there before its first Pod, restored before its next one."""

from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.names import RUN_UID_LABEL

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
    for _ in range(3):
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
    error = PermanentClusterError("forbidden", status=422)
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


# What somebody edits

EDITS = {
    "a door in it": {"egress": [{}]},
    "another selector": {"podSelector": {"matchLabels": {"nobody": "here"}}},
    "one direction less": {"policyTypes": ["Ingress"]},
}


def edit(world, spec, kind="deny"):
    (name,) = (name for name in policies(world) if name.endswith(kind))
    world.cluster.edit(ObjectKind.NETWORK_POLICY, name, {"spec": spec})
    return name


def content(world, name):
    return world.cluster.objects(ObjectKind.NETWORK_POLICY)[name]["spec"]


@pytest.mark.parametrize("change", EDITS)
def test_a_policy_that_somebody_edits_is_as_it_was_before_anything_starts(world, change):
    uid = world.apply(parallelism=1)
    (first,) = world.pods()
    (name,) = policies(world)
    before = content(world, name)
    world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
    edit(world, EDITS[change])
    world.cluster.calls.clear()
    world.wait(1)
    assert content(world, name) == before
    effects = [(call.verb, call.kind) for call in world.cluster.calls]
    kinds = {ObjectKind.NETWORK_POLICY, ObjectKind.POD}
    done = [each for each in effects if each[0] in {"create", "delete"} and each[1] in kinds]
    assert done[:2] == [(verb, ObjectKind.NETWORK_POLICY) for verb in ("delete", "create")]
    assert ("create", ObjectKind.POD) in done[2:]
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_an_edit_that_nobody_told_of_is_found_by_the_next_list(world):
    world.apply(parallelism=1)
    world.cluster.lose_events(1)
    name = edit(world, {"egress": [{}]})
    world.wait(59)
    assert content(world, name)["egress"] == [{}]
    world.wait(2)
    assert "egress" not in content(world, name)


def test_an_edit_while_no_operator_was_there_is_found_by_the_next_one(world):
    world.apply(parallelism=1)
    world.restart()
    name = edit(world, {"egress": [{}]})
    world.observe(None)
    world.wait(1)
    assert "egress" not in content(world, name)


def test_who_edits_again_and_again_holds_the_run_up_and_costs_little(world):
    uid = world.apply(parallelism=1)
    (first,) = world.pods()
    world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
    edit(world, {"egress": [{}]})
    world.cluster.calls.clear()
    for _ in range(400):
        edit(world, {"egress": [{}]})
        world.wait(0.05)
    verbs = [call.verb for call in world.cluster.calls if call.kind is ObjectKind.NETWORK_POLICY]
    assert verbs.count("create") <= 12
    world.wait(5)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_what_the_server_makes_of_a_policy_is_as_it_was_made(world):
    """An admission policy may change what is created; the canary says whether that holds."""
    real = world.cluster.create

    async def create(kind, manifest):
        if kind is ObjectKind.NETWORK_POLICY:
            selector = {"matchLabels": {"nobody": "here"}}
            manifest = {**manifest, "spec": {**manifest["spec"], "podSelector": selector}}
        return await real(kind, manifest)

    with mock.patch.object(world.cluster, "create", create):
        uid = world.apply(parallelism=1)
        world.wait(30)
        assert world.cluster.requests["create", ObjectKind.NETWORK_POLICY] == 1
        assert len(world.pods()) == 1
        name = edit(world, {"egress": [{}]})
        world.wait(3)
        assert "egress" not in content(world, name)
        world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_a_delete_without_an_answer_is_repeated(world):
    world.apply(parallelism=1)
    lost = TransientClusterError("no answer")
    world.cluster.fail_next("delete", lost, kind=ObjectKind.NETWORK_POLICY)
    name = edit(world, {"egress": [{}]})
    world.wait(5)
    assert "egress" not in content(world, name)


def test_one_that_left_the_runs_label_behind_is_found_and_made_again(world):
    uid = world.apply(parallelism=1)
    (name,) = policies(world)
    before = world.cluster.objects(ObjectKind.NETWORK_POLICY)[name]
    hidden = {"metadata": {"labels": {RUN_UID_LABEL: None}}, "spec": {"egress": [{}]}}
    world.cluster.edit(ObjectKind.NETWORK_POLICY, name, hidden)
    world.wait(10)
    after = world.cluster.objects(ObjectKind.NETWORK_POLICY)[name]
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
