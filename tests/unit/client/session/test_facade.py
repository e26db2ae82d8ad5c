"""The package root (contract 2.3)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import securebench

ROOT = Path(__file__).parents[4] / "operator"
CLUSTER_LIBRARIES = {"kubernetes", "kopf", "pydantic", "aiohttp"}


def modules_after(statement):
    """Return the modules that a fresh interpreter has loaded."""
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); {statement}"
    program += "; import json; print(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True
    )
    return set(json.loads(done.stdout))


def ours(modules):
    return {name for name in modules if name.partition(".")[0] == "securebench"}


FOUNDATIONS = {
    *("clock", "digests", "errors", "json_values", "names", "plugins", "reasons", "sizes", "text")
}
"""Modules below all packages."""


def test_importing_the_package_loads_nothing():
    modules = modules_after("import securebench")
    assert ours(modules) == {"securebench"}
    assert not modules & CLUSTER_LIBRARIES


def test_a_name_is_loaded_when_it_is_used():
    modules = modules_after("import securebench; securebench.task_from_spec")
    assert "securebench.benchmark.pack.task" in modules
    assert not modules & CLUSTER_LIBRARIES


def test_programs_inside_pods_load_no_part_that_their_image_lacks():
    modules = modules_after("import securebench.grading.verify_text")
    packages = {name.split(".")[1] for name in ours(modules) if "." in name}
    assert packages <= {"protocol", "files", "benchmark", "grading"} | FOUNDATIONS
    parts = {name.split(".")[2] for name in ours(modules) if ".benchmark." in name}
    assert parts <= {"families", "patch", "resources", "scorers"}
    assert not modules & CLUSTER_LIBRARIES


def test_the_module_lists_its_facade():
    assert set(securebench.__all__) <= set(dir(securebench))


@pytest.mark.parametrize("name", securebench.__all__)
def test_every_name_is_what_it_is_called(name):
    assert getattr(securebench, name).__name__ == name


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'verify'"):
        _ = securebench.verify
