"""What the command line takes for the end of a run."""

import pytest

from securebench.client.follow import run_state


def of(status, reason, message=""):
    condition = {"type": "Succeeded", "status": status, "reason": reason, "message": message}
    return run_state({"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": [condition]}})


@pytest.mark.parametrize("reason", ["Internal", "StorageUnavailable", "GatewayFailed", "Running"])
def test_a_run_goes_on_while_succeeded_is_unknown(reason):
    assert of("Unknown", reason).end is None


def test_a_run_without_conditions_goes_on():
    assert run_state({"metadata": {"name": "n", "uid": "u"}}).end is None


ENDS = {
    "good": ("True", "Completed", 0),
    "in part": ("False", "Incomplete", 0),
    "bad": ("False", "Internal", 1),
    "good with a reason of a newer operator": ("True", "Brilliant", 0),
    "bad with a reason of a newer operator": ("False", "Unheard", 1),
}


@pytest.mark.parametrize("name", ENDS)
def test_a_run_has_ended_when_succeeded_is_known(name):
    status, reason, exit_code = ENDS[name]
    end = of(status, reason).end
    assert end is not None
    assert end.exit_code == exit_code
