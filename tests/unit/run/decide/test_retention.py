"""Decision 0045: what of runs that have ended goes, and what never does."""

import pytest

from securebench.run.decide.retention import (
    ObservedRun,
    ResultsFolder,
    RetentionPlan,
    retention_plan,
)

TTL = 100.0
NOW = 1000.0
OLD = NOW - TTL
ENDED = ResultsFolder("u1", "first", OLD, OLD)
GONE = ResultsFolder("u1", "first", None, OLD)
HERE = ObservedRun("first", "u1")
GOES_ON = ResultsFolder("u2", "second", None, OLD)

CASES = {
    # runs, folders, what goes
    "the run is gone": ([], [ENDED], RetentionPlan(folders=("u1",))),
    "the run is there": ([HERE], [ENDED], RetentionPlan(results=("u1",))),
    "only its end is left": ([HERE], [ENDED._replace(has_results=False)], RetentionPlan()),
    "only its end is left, the run is gone": (
        [],
        [ENDED._replace(has_results=False)],
        RetentionPlan(folders=("u1",)),
    ),
    "not yet": ([], [ENDED._replace(ended_at=OLD + 1)], RetentionPlan()),
    "it goes on": ([HERE], [GONE], RetentionPlan()),
    "it was deleted before it ended": ([], [GONE], RetentionPlan(folders=("u1",))),
    "it was deleted a moment ago": ([], [GONE._replace(touched_at=NOW - 1)], RetentionPlan()),
    "another run of that name goes on": (
        [ObservedRun("first", "u2")],
        [ENDED, ResultsFolder("u2", "first", None, NOW)],
        RetentionPlan(folders=("u1",)),
    ),
    "a run that goes on continues it": (
        [ObservedRun("second", "u2", needs=("first",))],
        [ENDED, GOES_ON],
        RetentionPlan(),
    ),
    "a run that waits to begin continues it": (
        [HERE, ObservedRun("second", "u2", needs=("first",))],
        [ENDED],
        RetentionPlan(),
    ),
    "a run that has ended continued it": (
        [ObservedRun("second", "u2", needs=("first",))],
        [ENDED, ResultsFolder("u2", "second", NOW, NOW)],
        RetentionPlan(folders=("u1",)),
    ),
    "a run that waits to begin grades it again, by its run id": (
        [HERE, ObservedRun("second", "u2", needs=("n-1",))],
        [ENDED._replace(run_id="n-1")],
        RetentionPlan(),
    ),
    "its removal was broken off": (
        [],
        [GONE._replace(touched_at=NOW, is_going=True)],
        RetentionPlan(folders=("u1",)),
    ),
    "nothing continues a run without a name": (
        [ObservedRun("second", "u2")],
        [ENDED._replace(run="")],
        RetentionPlan(folders=("u1",)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_goes(name):
    runs, folders, want = CASES[name]
    assert retention_plan(runs, folders, TTL, NOW) == want


@pytest.mark.parametrize("folder", [ENDED, GONE, GONE._replace(is_going=True)])
def test_what_is_kept_stays(folder):
    assert retention_plan([], [folder], TTL, NOW, kept={"u1"}) == RetentionPlan()
