"""What an API server makes of the policies of a run, and of edits of them."""

from dataclasses import replace

import pytest

from securebench.cluster.port import ObjectKind
from securebench.names import RUN_UID_LABEL
from securebench.run.decide.network import ObservedPolicies, Repair
from securebench.run.observe.pods import object_view
from securebench.run.pods.isolation import run_policies
from support.build import DOMAINS, plan_of

NAMESERVERS = ["10.96.0.10", "fd00::a"]
KIND = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}


def bare(policy):
    """Return a policy without the run that owns it: there is none here."""
    metadata = {key: policy["metadata"][key] for key in ("name", "labels")}
    return {**KIND, "metadata": metadata, "spec": policy["spec"]}


PLAN = replace(plan_of(), egress=DOMAINS)
WANTED = {item["metadata"]["name"]: bare(item) for item in run_policies(PLAN, NAMESERVERS)}
DENY, EGRESS, GATEWAY = WANTED
OF_THE_RUN = f"{RUN_UID_LABEL}={PLAN.identity.uid}"


async def repairs(world):
    listing = await world.cluster.list(ObjectKind.NETWORK_POLICY, OF_THE_RUN)
    found = {view.name: view for view in map(object_view, listing.items)}
    return found, list(ObservedPolicies(WANTED, found, {}).repairs())


@pytest.fixture
async def made(world):
    for policy in WANTED.values():
        await world.cluster.create(ObjectKind.NETWORK_POLICY, policy)
    return world


async def test_policies_are_as_they_were_made(made):
    assert (await repairs(made))[1] == []


EDITS = {
    "everything out": (DENY, {"egress": [{}]}),
    "everything in": (DENY, {"ingress": [{}]}),
    "one direction": (DENY, {"policyTypes": ["Ingress"]}),
    "nobody": (DENY, {"podSelector": {"matchLabels": {"nobody": "here"}}}),
    "every peer": (EGRESS, {"egress": [{"ports": [{"port": 8443}]}]}),
    "no rule": (GATEWAY, {"ingress": None}),
}


@pytest.mark.parametrize("name", EDITS)
async def test_an_edit_is_found(made, name):
    policy, spec = EDITS[name]
    assert await made.cluster.patch(ObjectKind.NETWORK_POLICY, policy, {"spec": spec})
    found, left = await repairs(made)
    assert left == [Repair(policy, found[policy].uid)]


async def test_what_the_server_writes_for_a_default_is_no_edit(made):
    rule = WANTED[EGRESS]["spec"]["egress"][0]
    ports = [{"port": each["port"]} for each in rule["ports"]]
    body = {"spec": {"egress": [{**rule, "ports": ports}], "ingress": []}}
    assert await made.cluster.patch(ObjectKind.NETWORK_POLICY, EGRESS, body)
    assert (await repairs(made))[1] == []


async def test_a_policy_that_is_deleted_is_gone_at_once(made):
    found, _ = await repairs(made)
    uid = found[DENY].uid
    assert await made.cluster.delete(ObjectKind.NETWORK_POLICY, DENY, uid=uid, grace_seconds=None)
    again = await made.cluster.create(ObjectKind.NETWORK_POLICY, WANTED[DENY])
    assert again["metadata"]["uid"] != uid
    assert not await made.cluster.delete(
        ObjectKind.NETWORK_POLICY, DENY, uid=uid, grace_seconds=None
    )
    assert (await repairs(made))[1] == []
