"""Journals of earlier releases still open."""

from pathlib import Path

from securebench.controller.volume.journal import Journal
from securebench.run.state.attempts import Lost, Usage
from securebench.run.state.history import Finished, LaunchLost, Produced
from support.build import HARNESS, KEY, lost_launch

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
    journal.append([LaunchLost(lost_launch())])
    journal.close()
    again = Journal(path, "uid")
    assert again.entries[-1] == LaunchLost(lost_launch())
    again.close()
