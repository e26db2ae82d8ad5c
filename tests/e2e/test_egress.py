"""Runs with egress, on the fake internet: what they reach, and what is left of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from e2e.egress import (
    OFFERED,
    begin_agent,
    decisions,
    egress_release,
    objects,
    published,
    secret,
)
from outside import journal, places
from securebench.run.state.entries import LaunchLost, Opened
from support.release import OPERATOR, Raw, Release, condition
from support.runs import begin, rows
from support.waiting import KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.e2e

FETCH = f"""
sys.stderr.write(f"tunnel: {{status('https://{places.FILES}/')}}\\n")
sys.stderr.write(f"plain: {{status('http://{places.FILES}/')}}\\n")
text = get('https://{places.DOCS}/%s')
print(4 if '"path": "/%s"' in text else text)
"""

READ_SLOWLY = f"""
status('https://{places.FILES}/')
try:
    print(4 if len(get('https://{places.DOCS}/bytes/%d?slow&%s')) == %d else 'cut')
except Exception as error:
    print(error)
"""
PIECE = 16 * 1024
PIECES = 40
"""A download takes eight seconds: the test acts while it goes on."""

CLOSED = f"""\
python3 -c 'import os, socket
print([name for name in os.environ if "PROXY" in name.upper()] or 4)
socket.create_connection(("{places.WEB}", 443), 2)'
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Release]:
    """A release of its own: its operator is restarted."""
    with egress_release("sb-e2e-egress") as installed:
        yield installed


def test_an_agent_reaches_what_is_listed_and_nothing_else(own: Release) -> None:
    marker = uuid.uuid4().hex
    run = begin_agent(own, FETCH % (marker, marker), isolation={"require": "Verified"})
    uid = own.uid(run)
    ended = own.wait_ended(run)
    assert condition(ended)["reason"] == "Completed"
    (record,) = published(own.records(run))
    assert record["passed"] is True, record
    assert record["labels"]["network"] == "egress"
    assert record["labels"]["network_confidential"] is False
    metadata = record["producer_metadata"]
    assert metadata["allowed_domains"] == ["allowed.test"]
    assert (metadata["egress_requests"], metadata["egress_blocked"]) == (1, 2)
    assert "Tunnel connection failed: 403" in record["producer_stderr"]
    assert "plain: 403" in record["producer_stderr"]
    (asked,) = journal.entries("http", marker)
    assert (asked["scheme"], asked["name"]) == ("https", places.DOCS)
    seen = [(line["host"], line["verdict"], line["task_id"]) for line in decisions(own, run)]
    refused = (places.FILES, "refused", "task-0")
    assert seen == [refused, refused, (places.DOCS, "allowed", "task-0")]
    isolation = condition(ended, "IsolationVerified")
    assert isolation["status"] == "True"
    assert isolation["message"].startswith("closed: ")
    assert "; open: gateway" in isolation["message"]
    until(lambda: not left(own, uid), "the gateway is taken away")
    assert len(objects(own, "networkpolicy", uid)) == 3
    own.kubectl("delete", "benchmarkrun", run, KUBECTL_TIMEOUT)
    until(lambda: not objects(own, "networkpolicy", uid), "the policies are taken away")


def left(own: Release, uid: str) -> list[str]:
    """Return the gateway's objects that are there."""
    return objects(own, "pod", uid, "gateway") + objects(own, "service", uid)


def test_a_run_without_domains_has_no_gateway_and_no_network(own: Release) -> None:
    run = begin(own, rows(1), CLOSED)
    ended = own.wait_ended(run)
    assert condition(ended)["reason"] == "Completed"
    (record,) = published(own.records(run))
    assert record["passed"] is True, record
    assert record["labels"]["network"] == "none"
    assert "egress_requests" not in record["producer_metadata"]
    assert record["producer_metadata"]["exit_code"] == 1, "it connected"
    folder = own.operator("ls", f"/var/lib/securebench/runs/{own.uid(run)}").decode().split()
    assert "gateway" not in folder
    assert "egress.jsonl" not in folder


def test_launches_of_a_gateway_that_dies_are_repeated(own: Release) -> None:
    run, marker = begin_slow(own)
    (gateway,) = objects(own, "pod", own.uid(run), "gateway")
    own.kubectl("delete", "pod", gateway, "--grace-period=1", "--wait=false")
    assert condition(own.wait_ended(run))["reason"] == "Completed"
    records = published(own.records(run))
    assert [(record["passed"], record["launches"]) for record in records] == [(True, 2)] * 2
    lost = [entry.lost for entry in own.entries(run) if isinstance(entry, LaunchLost)]
    assert {loss.reason for loss in lost} == {"egress_setup_failed"}, lost
    assert len(lost) == 2
    assert len(journal.entries("http", marker)) == 4


def test_an_operator_that_starts_again_keeps_gateway_and_counts(own: Release) -> None:
    run, marker = begin_slow(own)
    before = objects(own, "pod", own.uid(run), "gateway")
    own.kubectl("delete", "pod", OPERATOR, "--grace-period=0", "--force", "--wait=false")
    assert condition(own.wait_ended(run))["reason"] == "Completed"
    records = published(own.records(run))
    assert [(record["passed"], record["launches"]) for record in records] == [(True, 1)] * 2
    counts = [record["producer_metadata"] for record in records]
    assert [(each["egress_requests"], each["egress_blocked"]) for each in counts] == [(1, 1)] * 2
    epochs = [entry.epoch for entry in own.entries(run) if isinstance(entry, Opened)]
    assert len(epochs) >= 2, "the operator was not restarted in the middle"
    assert before == [f"sb-{own.uid(run).replace('-', '')[:12]}-gateway-1"]
    assert len(journal.entries("http", marker)) == 2
    assert len(decisions(own, run)) == 4


def begin_slow(own: Release) -> tuple[str, str]:
    """Start two slow downloads; return the run and their marker when both are on their way."""
    marker = uuid.uuid4().hex
    size = PIECES * PIECE
    run = begin_agent(own, READ_SLOWLY % (size, marker, size), tasks=2, parallelism=2)
    until(lambda: len(journal.entries("http", marker)) == 2, f"{run}: both agents are outside")
    return run, marker


CODEX: Raw = {"type": "codex", "config": {"model": "m"}}
UNSERVED: Raw = {"type": "codex", "config": {"model": "m", "version": "9.9.9"}}
BAD_SPECS: dict[str, tuple[list[Raw], Raw, str]] = {
    "no-secret": (
        [],
        CODEX,
        "spec.provider.secretRef: Secret 'no-secret' does not exist in this namespace or lacks the",
    ),
    "unmarked": (
        [secret("unmarked", "OPENAI_API_KEY", is_usable=False)],
        CODEX,
        "spec.provider.secretRef: Secret 'unmarked' does not exist in this namespace or lacks the",
    ),
    "no-entry": (
        [secret("no-entry", "ANTHROPIC_API_KEY")],
        CODEX,
        "spec.provider.secretRef: Secret 'no-entry' has no key OPENAI_API_KEY",
    ),
    "version": (
        [secret("version", "OPENAI_API_KEY")],
        UNSERVED,
        f"spec.harness.config.version: codex 9.9.9 is not installed here; available: {OFFERED}",
    ),
}


@pytest.mark.parametrize("name", BAD_SPECS)
def test_a_run_that_cannot_reach_its_provider_is_refused(name: str, own: Release) -> None:
    given, harness, message = BAD_SPECS[name]
    if given:
        own.create(*given)
    run = begin(own, rows(1), "", harness=harness, provider={"secretRef": {"name": name}})
    seen = condition(own.wait_ended(run))
    assert (seen["status"], seen["reason"]) == ("False", "InvalidSpec")
    assert seen["message"].startswith(message)
    assert "\n" not in seen["message"]
    assert own.pods(run) == []
