"""What of an entry's JSON is kept in memory, and what is passed over."""

from dataclasses import replace

import pytest

from securebench.controller.volume.journal import decode, encode, first_link, whole_line
from securebench.run.api.field_types import Outcome
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import (
    ContainerEvidence,
    ContainerUsage,
    Finished,
    LaunchEvidence,
    LaunchLost,
    ResourceNoise,
    entry_noise,
)
from support.build import KEY, NOW, lost_launch


@pytest.mark.parametrize(
    "entry",
    [
        LaunchLost(lost_launch()),
        Finished(Finish(KEY, Outcome.CANCELLED, "cancelled"), "a" * 64, NOW),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_evidence_is_on_the_disk_and_not_in_memory(entry):
    told = replace(entry, evidence=LaunchEvidence("pod-1", node="node-1"))
    line = whole_line(encode(told, first_link("uid")).removesuffix(b"\n"))
    assert b'"node":"node-1"' in line.body
    assert decode(line.body) == entry


def test_what_met_a_limit_is_counted_again_from_the_disk():
    usage = ContainerUsage(1, cpu_periods=100, cpu_throttled=40)
    containers = (ContainerEvidence("harness", usage=usage), ContainerEvidence("courier"))
    told = LaunchLost(lost_launch(), LaunchEvidence("pod-1", containers=containers))
    line = whole_line(encode(told, first_link("uid")).removesuffix(b"\n"))
    assert entry_noise(decode(line.body)) == entry_noise(told) == {ResourceNoise.CPU_THROTTLED}


def test_a_field_of_a_later_version_is_passed_over():
    line = whole_line(encode(LaunchLost(lost_launch()), first_link("uid")).removesuffix(b"\n"))
    later = line.body.replace(b'"evidence":null', b'"evidence":null,"later":{"a":1}')
    assert later != line.body
    assert decode(later) == LaunchLost(lost_launch())
