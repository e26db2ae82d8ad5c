"""What an operator finds that starts again in a long run."""

from __future__ import annotations

from pathlib import Path

from scale.restart import write_finished
from securebench.controller.volume.lead import highest_epoch
from securebench.controller.volume.store import RunStore
from securebench.run.state.entries import Finished
from support.leads import take_volume


def test_the_next_operator_reads_the_finished_attempts(tmp_path: Path) -> None:
    first = RunStore(tmp_path, "run", take_volume(tmp_path, 1, "killed"))
    first.create({})
    first.open_journal().close()

    write_finished(tmp_path, "run", range(3, 6))

    after = take_volume(tmp_path, highest_epoch(tmp_path) + 1, "next")
    journal = RunStore(tmp_path, "run", after).open_journal()
    finished = [each.finish.key.task for each in journal.entries if isinstance(each, Finished)]
    journal.close()
    assert finished == [3, 4, 5]
