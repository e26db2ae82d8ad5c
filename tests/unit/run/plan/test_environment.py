"""What a task folder says of its containers, as an environment."""

from __future__ import annotations

import pytest

from securebench.run.plan.environment import (
    Environment,
    EnvironmentLimits,
    EnvironmentService,
    ReadyCheck,
    in_image,
)
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


def test_services_have_what_the_task_says_of_each():
    check = {
        "command": ["pg_isready"],
        "timeout_seconds": 3,
        "interval_seconds": 2.5,
        "retries": 4,
        "start_period_seconds": 1,
    }
    db = {"name": "db", "image": "postgres:16", "env": {"A": "1"}, "memory_mb": 64, "user": 70}
    web = {"name": "web", "image": "nginx", "entrypoint": [], "command": ["x", "y"], "workdir": "/"}
    made = in_image({"services": [{**db, "healthcheck": check}, web]}, None, "task:1")
    assert made.services == (
        EnvironmentService(
            name="db",
            image="postgres:16",
            env={"A": "1"},
            user=70,
            limits=EnvironmentLimits(memory_bytes=64 * MIB),
            ready=ReadyCheck(("pg_isready",), 3.0, 11.0),
        ),
        EnvironmentService(
            name="web", image="nginx", entrypoint=(), command=("x", "y"), workdir="/"
        ),
    )
