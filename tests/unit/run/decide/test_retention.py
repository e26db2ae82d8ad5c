"""Decision 0045: what of runs that have ended goes, and what never does."""

import pytest

from securebench.run.decide.retention import Due, FolderKept, RunKept, due

TTL = 100.0
NOW = 1000.0
OLD = NOW - TTL
ENDED = FolderKept("u1", "first", OLD, OLD)
GONE = FolderKept("u1", "first", None, OLD)
HERE = RunKept("first", "u1")
GOES_ON = FolderKept("u2", "second", None, OLD)

CASES = {
    # runs, folders, what goes
    "the run is gone": ([], [ENDED], Due(folders=("u1",))),
    "the run is there": ([HERE], [ENDED], Due(results=("u1",))),
    "only its end is left": ([HERE], [ENDED._replace(has_results=False)], Due()),
    "only its end is left, the run is gone": (
        [],
        [ENDED._replace(has_results=False)],
        Due(folders=("u1",)),
    ),
    "not yet": ([], [ENDED._replace(ended_at=OLD + 1)], Due()),
    "it goes on": ([HERE], [GONE], Due()),
    "it was deleted before it ended": ([], [GONE], Due(folders=("u1",))),
    "it was deleted a moment ago": ([], [GONE._replace(touched_at=NOW - 1)], Due()),
    "another run of that name goes on": (
        [RunKept("first", "u2")],
        [ENDED, FolderKept("u2", "first", None, NOW)],
        Due(folders=("u1",)),
    ),
    "a run that goes on continues it": (
        [RunKept("second", "u2", needs=("first",))],
        [ENDED, GOES_ON],
        Due(),
    ),
    "a run that waits to begin continues it": (
        [HERE, RunKept("second", "u2", needs=("first",))],
        [ENDED],
        Due(),
    ),
    "a run that has ended continued it": (
        [RunKept("second", "u2", needs=("first",))],
        [ENDED, FolderKept("u2", "second", NOW, NOW)],
        Due(folders=("u1",)),
    ),
    "a run that waits to begin grades it again, by its run id": (
        [HERE, RunKept("second", "u2", needs=("n-1",))],
        [ENDED._replace(run_id="n-1")],
        Due(),
    ),
    "its removal was broken off": (
        [],
        [GONE._replace(touched_at=NOW, is_going=True)],
        Due(folders=("u1",)),
    ),
    "nothing continues a run without a name": (
        [RunKept("second", "u2")],
        [ENDED._replace(run="")],
        Due(folders=("u1",)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes(name):
    runs, folders, want = CASES[name]
    assert due(runs, folders, TTL, NOW) == want


@pytest.mark.parametrize("folder", [ENDED, GONE, GONE._replace(is_going=True)])
def test_what_is_kept_stays(folder):
    assert due([], [folder], TTL, NOW, kept={"u1"}) == Due()
