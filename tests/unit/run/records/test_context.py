"""What the isolation label of a record says, by what is known of the networks."""

from dataclasses import replace

import pytest

from securebench.run.records.labels import IsolationLabel
from securebench.run.records.record import record_context
from securebench.run.state.attempts import ProducerNetwork
from securebench.run.state.entries import IsolationResult

VERIFIED, DECLARED = IsolationLabel.VERIFIED, IsolationLabel.DECLARED
ENFORCED, NOT_ENFORCED = (
    IsolationResult(verified=verified, user_namespaces=True, message="")
    for verified in (True, False)
)
OPEN_NODE = replace(ENFORCED, node_reachable=True)
THERE = ProducerNetwork(verified=True)
CASES = {
    "before the canary": (None, None, DECLARED, False),
    "before the canary, a candidate of a run that proved it": (None, THERE, DECLARED, False),
    "proven": (ENFORCED, None, VERIFIED, False),
    "declared": (NOT_ENFORCED, None, DECLARED, False),
    "proven beside an open node": (OPEN_NODE, None, VERIFIED, True),
    "proven by both runs": (ENFORCED, THERE, VERIFIED, False),
    "only here": (ENFORCED, ProducerNetwork(), DECLARED, False),
    "only there": (NOT_ENFORCED, THERE, DECLARED, False),
    "the node was open there": (ENFORCED, replace(THERE, node_reachable=True), VERIFIED, True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_label_holds_for_every_network_that_the_candidate_saw(name):
    isolation, producer, want_label, want_reachable = CASES[name]
    context = record_context(isolation, producer, 5.0, 3, 2, "linux-arm64")
    assert (context.isolation, context.node_reachable) == (want_label, want_reachable)
    assert (context.finished_at, context.run_ordinal, context.resume_generation) == (5.0, 3, 2)
    assert context.platform == "linux-arm64"
