"""The packages of supervise import what decision 0082 lets them."""

import re

import pytest

from support.supervise_build import SOURCES

INTERNAL = SOURCES / "internal"
IMPORT = re.compile(r'^\t"securebench\.dev/supervise/internal/(\w+)"$', re.MULTILINE)
MAY_IMPORT = {
    "outcome": set(),
    "network": set(),
    "cgroup": {"outcome"},
    "specs": {"outcome"},
    "untrusted": {"outcome", "specs"},
    "bundle": {"untrusted"},
    "rootfs": {"bundle", "outcome", "specs", "untrusted"},
    "staging": {"outcome", "rootfs", "specs", "untrusted"},
    "process": {"outcome", "specs", "untrusted"},
    "repository": {"outcome", "specs", "untrusted", "process"},
    "run": {
        "outcome",
        "specs",
        "untrusted",
        "process",
        "repository",
        "rootfs",
        "staging",
        "network",
        "cgroup",
    },
    "courier": {"bundle", "rootfs", "outcome", "specs", "untrusted", "cgroup"},
    "egress": {"outcome", "specs", "process", "cgroup"},
    "canary": {"outcome", "specs", "network"},
}
FOR_TESTS = "fixtures"
"""Only files that end in ``_test.go`` import it."""


def test_every_package_has_its_place() -> None:
    assert {folder.name for folder in INTERNAL.iterdir()} == {*MAY_IMPORT, FOR_TESTS}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports(package: str) -> None:
    sources = [path for path in (INTERNAL / package).glob("*.go") if "_test" not in path.stem]
    found = {name for path in sources for name in IMPORT.findall(path.read_text())}

    assert sources
    assert found <= MAY_IMPORT[package]
