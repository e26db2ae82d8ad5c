"""What a task folder says of its containers, as an environment."""

from __future__ import annotations

import pytest

from securebench.run.plan.environment import Environment, EnvironmentLimits, in_image
from securebench.sizes import GIB, MIB


@pytest.mark.parametrize(
    ("wanted", "changes"),
    [
        ({}, {}),
        ({"image": "", "cpus": None, "env": None}, {}),
        ({"image": "own:2"}, {"image": "own:2"}),
        ({"user": "app"}, {"user": "app"}),
        ({"user": 1000}, {"user": "1000"}),
        ({"workdir": "/root"}, {"workdir": "/root"}),
        ({"env": {"A": "$(B)"}}, {"env": {"A": "$(B)"}}),
        (
            {"cpus": 0.5, "memory_mb": 2048, "storage_mb": 10},
            {"limits": EnvironmentLimits(0.5, 2 * GIB, 10 * MIB)},
        ),
    ],
)
def test_what_a_task_does_not_say_is_as_image_and_run_have_it(wanted, changes):
    plain = {
        "image": "task:1",
        "workspace": "",
        "workdir": "",
        "timeout_seconds": 7.0,
        "writable_root": True,
    }
    assert in_image(wanted, 7.0, "task:1") == Environment(**{**plain, **changes})
