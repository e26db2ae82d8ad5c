"""What the answers of canary and control prove."""

import pytest

from securebench.protocol.supervise import ProbeTarget
from securebench.run.decide.canary import judge
from securebench.run.state.entries import IsolationResult

TARGETS = (
    ProbeTarget("api-server", "10.96.0.1", 443, "tcp"),
    ProbeTarget("dns", "10.96.0.10", 53, "udp"),
)
OPEN = {"api-server": "open", "dns": "open"}
CLOSED = {"api-server": "closed", "dns": "closed"}
JUDGEMENTS = {
    "all proven and closed": (OPEN, CLOSED, True, "closed: api-server, dns"),
    "one unproven": (
        OPEN | {"dns": "closed"},
        CLOSED,
        True,
        "closed: api-server; unproven (do not answer without the policy either): dns",
    ),
    "one open": (
        OPEN,
        CLOSED | {"dns": "open"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "an unproven one is open": (
        CLOSED | {"api-server": "open"},
        CLOSED | {"dns": "open"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "nothing proven": (
        CLOSED,
        CLOSED,
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
    "no control": (
        {},
        CLOSED,
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
    "a proven target was not probed": (
        OPEN,
        {"api-server": "closed"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "a state that nobody knows": (
        OPEN,
        CLOSED | {"dns": "maybe"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "nothing at all": (
        {},
        {},
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
}


@pytest.mark.parametrize("name", JUDGEMENTS)
@pytest.mark.parametrize("namespaced", [True, False])
def test_judgement(name, namespaced):
    control, canary, verified, message = JUDGEMENTS[name]
    found = judge(control, canary, user_namespaces=namespaced)
    assert found == IsolationResult(verified=verified, user_namespaces=namespaced, message=message)


REACHED = CLOSED | {"gateway": "open"}
GATEWAY_JUDGEMENTS = {
    "the gateway alone is open": (REACHED, True, "closed: api-server, dns; open: gateway"),
    "the gateway is closed": (
        CLOSED | {"gateway": "closed"},
        False,
        "a Pod of the run did not reach the run's gateway",
    ),
    "the gateway was not tried": (
        CLOSED,
        False,
        "a Pod of the run did not reach the run's gateway",
    ),
    "something else is open too": (
        REACHED | {"dns": "open"},
        False,
        "a Pod under the run's policies reached: dns",
    ),
}


@pytest.mark.parametrize("name", GATEWAY_JUDGEMENTS)
def test_judgement_of_a_run_with_a_gateway(name):
    canary, verified, message = GATEWAY_JUDGEMENTS[name]
    found = judge(OPEN, canary, user_namespaces=True, has_gateway=True)
    assert found == IsolationResult(verified=verified, user_namespaces=True, message=message)


def test_a_run_without_a_gateway_may_reach_none():
    found = judge(OPEN, REACHED, user_namespaces=True)
    assert found.message == "a Pod under the deny-all policy reached: gateway"
    assert not found.verified


# The node

NODE = (
    ProbeTarget("kubelet", "192.0.2.1", 10250, "tcp", is_node=True),
    ProbeTarget("extra-1", "fd00::1", 22, "tcp", is_node=True),
)
BESIDE = OPEN | {"kubelet": "open", "extra-1": "open"}
SHUT = dict.fromkeys(BESIDE, "closed")
WAY = (
    "; spec.isolation.allow: [Node] accepts addresses of the node, and every record then says"
    " labels.node_reachable: true"
)
REACHED_NODE = "a Pod under the deny-all policy reached: "
ACCEPTED = "; open on the node, which spec.isolation.allow accepts: "
UNPROVEN = "; unproven (do not answer without the policy either): "
KUBELET = {"kubelet": "open"}
NODE_JUDGEMENTS = {
    "refused": (False, BESIDE, SHUT | KUBELET, f"{REACHED_NODE}kubelet{WAY}"),
    "refused beside another target": (
        False,
        BESIDE,
        SHUT | KUBELET | {"dns": "open"},
        f"{REACHED_NODE}dns, kubelet",
    ),
    "closed": (False, BESIDE, SHUT, "closed: api-server, dns, extra-1, kubelet"),
    "closed where it may be open": (
        True,
        BESIDE,
        SHUT,
        "closed: api-server, dns, extra-1, kubelet",
    ),
    "accepted": (
        True,
        BESIDE,
        SHUT | KUBELET,
        f"closed: api-server, dns, extra-1{ACCEPTED}kubelet (192.0.2.1:10250)",
    ),
    "all of it accepted": (
        True,
        BESIDE,
        SHUT | KUBELET | {"extra-1": "open"},
        f"closed: api-server, dns{ACCEPTED}kubelet (192.0.2.1:10250), extra-1 ([fd00::1]:22)",
    ),
    "accepted, not reached by the control": (
        True,
        OPEN | {"kubelet": "closed", "extra-1": "closed"},
        SHUT | KUBELET,
        f"closed: api-server, dns{ACCEPTED}kubelet (192.0.2.1:10250){UNPROVEN}extra-1",
    ),
    "accepted beside another target": (
        True,
        BESIDE,
        SHUT | KUBELET | {"api-server": "open"},
        f"{REACHED_NODE}api-server",
    ),
    "a state that nobody knows": (
        True,
        BESIDE,
        SHUT | {"kubelet": "maybe"},
        f"{REACHED_NODE}kubelet",
    ),
    "nothing but the node answers the control": (
        True,
        dict.fromkeys(BESIDE, "closed") | KUBELET,
        SHUT | KUBELET,
        "no target answered without the policy, so closed targets prove nothing",
    ),
}


@pytest.mark.parametrize("name", NODE_JUDGEMENTS)
def test_judgement_of_the_node(name):
    allowed, control, canary, message = NODE_JUDGEMENTS[name]
    found = judge(control, canary, user_namespaces=True, node=NODE, is_node_allowed=allowed)
    assert found == IsolationResult(
        verified=message.startswith("closed: "),
        user_namespaces=True,
        message=message,
        node_reachable=canary["kubelet"] == "open",
    )


def test_a_node_that_is_reached_beside_the_gateway():
    canary = SHUT | KUBELET | {"gateway": "open"}
    refused, accepted = (
        judge(
            BESIDE, canary, user_namespaces=True, has_gateway=True, node=NODE, is_node_allowed=each
        )
        for each in (False, True)
    )
    assert refused.message == f"a Pod under the run's policies reached: kubelet{WAY}"
    assert accepted.verified
    assert accepted.message == (
        f"closed: api-server, dns, extra-1; open: gateway{ACCEPTED}kubelet (192.0.2.1:10250)"
    )
