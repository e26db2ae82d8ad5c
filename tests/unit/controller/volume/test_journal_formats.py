"""Journals of earlier releases still open."""

from dataclasses import replace
from pathlib import Path

import pytest

from securebench.controller.volume.journal import Journal, decode, encode, first_link, whole_line
from securebench.run.api.field_types import Outcome
from securebench.run.state.attempts import Finish, Lost, Usage
from securebench.run.state.entries import (
    ContainerEvidence,
    ContainerUsage,
    Finished,
    LaunchEvidence,
    LaunchLost,
    Produced,
    ResourceNoise,
    entry_noise,
)
from support.build import HARNESS, KEY, NOW, lost_launch

BEFORE_NETWORKS = Path(__file__).parents[3] / "golden/journals/before_networks.jsonl"


def test_a_journal_from_before_there_were_networks(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_bytes(BEFORE_NETWORKS.read_bytes())
    journal = Journal(path, "uid")
    lines = len(BEFORE_NETWORKS.read_bytes().splitlines())
    assert len(journal.entries) == lines
    (lost,) = (each.lost for each in journal.entries if isinstance(each, LaunchLost))
    (produced,) = (each for each in journal.entries if isinstance(each, Produced))
    (finished,) = (each for each in journal.entries if isinstance(each, Finished))
    assert lost == Lost(HARNESS, "pod_lost", "gone", 3.0)
    assert (produced.key, produced.production.egress) == (KEY, None)
    assert (finished.finish.key, finished.usage) == (KEY, Usage())
    assert finished.evidence is None
    journal.append([LaunchLost(lost_launch())])
    journal.close()
    again = Journal(path, "uid")
    assert again.entries[-1] == LaunchLost(lost_launch())
    again.close()


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
