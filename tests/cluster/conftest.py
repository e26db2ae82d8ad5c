"""One release and one administrator's namespace for the tests of the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from xdist.remote import Producer

from cluster.shell import Shell, kubeconfig
from support.lanes import LaneScheduling
from support.release import Release, release

VALUES = {"settings.launch.retryBackoffSeconds": 1, "viewers.enabled": True}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LaneScheduling:
    """Let each lane be a process."""
    return LaneScheduling(config, log)


@pytest.fixture(scope="session")
def place() -> Iterator[Release]:
    """Install a release; its namespace has an account for each role and one without any right."""
    with release("sb-cli", VALUES) as installed:
        for role in ("tester", "submitter", "viewer"):
            installed.kubectl("create", "serviceaccount", role)
            account = f"--serviceaccount={installed.namespace}:{role}"
            binding = ("rolebinding", role, f"--role=securebench-{role}", account)
            installed.kubectl("create", *binding)
        installed.kubectl("create", "serviceaccount", "nobody")
        yield installed


@pytest.fixture(scope="session")
def user(
    place: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Shell]]:
    """Make a terminal of an account in a folder of its own."""
    made: list[Shell] = []

    def make(account: str = "tester", **changes: str) -> Shell:
        folder = tmp_path_factory.mktemp(account)
        token = place.token(account)
        config = kubeconfig(folder / "kubeconfig", token=token, **changes)
        made.append(Shell(folder, place.namespace, config))
        return made[-1]

    yield make
    for shell in made:
        for command in shell.commands:
            command.stop()
