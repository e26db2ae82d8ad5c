import importlib
import importlib.metadata
import time

import pytest

from securebench import version
from securebench.clock import SystemClock, rfc3339


def test_the_clock_tells_the_time():
    before = time.time()
    assert before <= SystemClock().now() <= time.time()


def test_times_are_written_as_kubernetes_does():
    assert rfc3339(0.999) == "1970-01-01T00:00:00Z"


@pytest.fixture
def reloaded(monkeypatch):
    def reload(installed):
        monkeypatch.setattr(importlib.metadata, "version", installed)
        return importlib.reload(version).VERSION

    yield reload
    monkeypatch.undo()
    importlib.reload(version)


def test_the_version_is_that_of_the_installed_package(reloaded):
    assert reloaded(lambda name: f"{name} 1.2") == "securebench 1.2"


def test_a_tree_that_is_not_installed_has_no_version(reloaded):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    assert reloaded(missing) == "unknown"
