"""The how-to on suites, followed on the node: a cell runs once, and again when somebody asks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cluster.shell import kubeconfig
from securebench.names import SUITE_CELL_ANNOTATION, SUITE_LABEL
from support.documented import Reader
from support.release import ROOT, Raw, Release, condition
from support.waiting import KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.e2e


@pytest.fixture
def page(shared: Release, tmp_path: Path) -> Iterator[Reader]:
    """The page, with one row of each pack, too few for a comparison of two rounds."""
    one_row = [
        {"op": "add", "path": "/spec/template", "value": {"taskSelector": {"limit": 1}}},
        {"op": "remove", "path": "/spec/baseline"},
        {"op": "remove", "path": "/spec/gates/notWorse"},
    ]
    overlay = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(ROOT / "benchmarks/suites/nightly", tmp_path.resolve())],
        "patches": [{"target": {"kind": "BenchmarkSuite"}, "patch": json.dumps(one_row)}],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
    config = kubeconfig(tmp_path / "kubeconfig", namespace=shared.namespace)
    yield Reader(
        "how-to/suites.md",
        ROOT,
        {"KUBECONFIG": str(config)},
        {"benchmarks/suites/nightly": str(tmp_path)},
    )
    shared.kubectl("delete", "bsuite", "nightly")


def test_a_suite_is_applied_and_run_again(shared: Release, page: Reader) -> None:
    page.run_next()
    shared.kubectl("wait", "--for=condition=Ready", "bsuite/nightly", KUBECTL_TIMEOUT)
    first = runs(shared)
    assert len(first) == 4
    assert {cell.split("/")[0] for cell in first.values()} == {"sums", "words"}
    assert gates(shared)["status"] == "True"
    shared.kubectl("apply", "-k", page.filled_in["benchmarks/suites/nightly"])

    page.run_next()
    until(lambda: "the same was run before" in gates(shared)["message"], "eight runs are judged")
    (message,) = page.run_all()

    assert "the same was run before" in message
    both = runs(shared)
    assert first.items() < both.items()
    assert sorted(both.values()) == sorted([*first.values()] * 2)


def gates(shared: Release) -> Raw:
    """Return what the suite says of its gates."""
    return condition(shared.get("bsuite", "nightly"), "GatesPassed")


def runs(shared: Release) -> dict[str, str]:
    """Return the cells of the suite's runs by the runs' names."""
    selector = f"{SUITE_LABEL}=nightly"
    found = json.loads(shared.kubectl("get", "brun", "-l", selector, "-o", "json"))
    return {
        each["metadata"]["name"]: each["metadata"]["annotations"][SUITE_CELL_ANNOTATION]
        for each in found["items"]
    }
