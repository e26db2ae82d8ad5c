"""Whether a network policy is as a run needs it, whatever the API server writes for defaults."""

import copy
from dataclasses import replace

import pytest

from securebench.run.decide.network import ObservedPolicies, Repair, normalized
from securebench.run.observe.pods import object_view
from securebench.run.pods.isolation import run_policies
from support.build import DOMAINS, plan_of

PLAN = replace(plan_of(), egress=DOMAINS)
WANTED = {item["metadata"]["name"]: item for item in run_policies(PLAN)}
DENY, EGRESS, GATEWAY = WANTED


def repairs(name, spec=None, stored=None):
    """Return what there is to do where one policy has this content."""
    changed = {**WANTED, name: {**WANTED[name], "spec": spec}} if spec is not None else WANTED
    found = {
        key: object_view({**item, "metadata": {**item["metadata"], "uid": f"uid-{key}"}})
        for key, item in changed.items()
    }
    return list(ObservedPolicies(WANTED, found, stored or {}).repairs())


def spec_of(name):
    return copy.deepcopy(WANTED[name]["spec"])


def test_what_is_as_it_should_be_stays():
    assert repairs(DENY) == []


@pytest.mark.parametrize("name", WANTED)
def test_what_is_missing_is_made(name):
    found = {key: object_view(item) for key, item in WANTED.items() if key != name}
    assert list(ObservedPolicies(WANTED, found, {}).repairs()) == [Repair(name)]


def without(spec, *path):
    """Return a content without one of its keys."""
    spec, place = copy.deepcopy(spec), None
    place = spec
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return spec


GATE, DOOR, OUT = spec_of(DENY), spec_of(EGRESS), spec_of(GATEWAY)
ALIKE = {
    "empty lists": (DENY, GATE | {"ingress": [], "egress": []}),
    "empty parts of a selector": (DENY, GATE | {"podSelector": {**GATE["podSelector"]}}),
    "a protocol that is the default": (
        EGRESS,
        DOOR | {"egress": [{**DOOR["egress"][0], "ports": [{"port": 8443}]}]},
    ),
    "empty lists of a rule": (
        GATEWAY,
        OUT | {"egress": [rule | {"from": []} for rule in OUT["egress"]]},
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_other_ways_to_write_the_same_are_no_edit(name):
    policy, spec = ALIKE[name]
    assert repairs(policy, spec) == []


RULE = DOOR["egress"][0]
EDITS = {
    "a rule that lets everything out": (DENY, GATE | {"egress": [{}]}),
    "a rule that lets everything in": (DENY, GATE | {"ingress": [{}]}),
    "nobody is selected": (DENY, GATE | {"podSelector": {"matchLabels": {"a": "b"}}}),
    "everybody is selected": (DENY, GATE | {"podSelector": {}}),
    "a role less": (DENY, without(GATE, "podSelector", "matchExpressions")),
    "one direction": (DENY, GATE | {"policyTypes": ["Ingress"]}),
    "no direction": (DENY, without(GATE, "policyTypes")),
    "no peers": (EGRESS, DOOR | {"egress": [without(RULE, "to")]}),
    "every peer": (EGRESS, DOOR | {"egress": [RULE | {"to": []}]}),
    "every Pod": (EGRESS, DOOR | {"egress": [RULE | {"to": [{"podSelector": {}}]}]}),
    "every namespace": (
        EGRESS,
        DOOR | {"egress": [RULE | {"to": [RULE["to"][0] | {"namespaceSelector": {}}]}]},
    ),
    "every port": (EGRESS, DOOR | {"egress": [without(RULE, "ports")]}),
    "another port": (EGRESS, DOOR | {"egress": [RULE | {"ports": [{"port": 1}]}]}),
    "more ports": (
        EGRESS,
        DOOR | {"egress": [RULE | {"ports": [RULE["ports"][0] | {"endPort": 65535}]}]},
    ),
    "another protocol": (
        EGRESS,
        DOOR | {"egress": [RULE | {"ports": [RULE["ports"][0] | {"protocol": "UDP"}]}]},
    ),
    "a network less is left out": (
        GATEWAY,
        without(OUT, "egress", 0, "to", 0, "ipBlock", "except", 0),
    ),
    "a key that nobody knows": (DENY, GATE | {"open": True}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(name):
    policy, spec = EDITS[name]
    assert repairs(policy, spec) == [Repair(policy, f"uid-{policy}")]


def test_what_the_server_made_of_it_is_no_edit():
    stored = GATE | {"newDefault": "x"}
    assert repairs(DENY, stored, {DENY: stored}) == []
    assert repairs(DENY, GATE, {DENY: stored}) == []
    assert repairs(DENY, GATE | {"egress": [{}]}, {DENY: stored}) != []


def test_no_content_is_like_what_was_never_stored():
    assert repairs(DENY, {}) == [Repair(DENY, f"uid-{DENY}")]


def test_one_way_to_write_it_is_its_own():
    for item in WANTED.values():
        assert normalized(normalized(item["spec"])) == normalized(item["spec"])
