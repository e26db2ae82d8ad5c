"""Manifests compared with their golden files, and the same manifests on a real API server."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.manifest_samples import FOLDER, golden, golden_text

MANIFESTS = golden()
OF_OUR_IMAGE_ONLY = (
    *("text_verifier", "text_batch", "canary", "control"),
    *("egress_canary", "gateway", "provider_gateway"),
)
OF_THE_CLUSTER = ("runtimeClassName", "priorityClassName")
"""Fields whose objects the local node need not have."""


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_is_as_reviewed(name: str) -> None:
    expected = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")

    assert golden_text(MANIFESTS[name]) == expected


def test_every_golden_file_has_its_manifest() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(MANIFESTS)


def kubectl(*arguments: str, body: object = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", *arguments],
        input=None if body is None else json.dumps(body),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


def dry_run(manifest: dict[str, Any], namespace: str) -> subprocess.CompletedProcess[str]:
    body = json.loads(json.dumps(manifest))
    body["metadata"]["namespace"] = namespace
    for field in OF_THE_CLUSTER:
        body["spec"].pop(field, None)
    return kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", body=body)


def namespace(level: str) -> Iterator[str]:
    name = f"sb-golden-{level}-{uuid.uuid4().hex[:6]}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
    made = kubectl("create", "-f", "-", body=body)
    assert made.returncode == 0, made.stderr
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "securebench-runs"},
    }
    kubectl("-n", name, "create", "-f", "-", body=account)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def baseline() -> Iterator[str]:
    yield from namespace("baseline")


@pytest.fixture(scope="module")
def restricted() -> Iterator[str]:
    yield from namespace("restricted")


@pytest.mark.cluster
@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", MANIFESTS)
def test_api_server_accepts_it_at_level_baseline(name: str, baseline: str) -> None:
    answer = dry_run(MANIFESTS[name], baseline)

    assert answer.returncode == 0, answer.stderr
    assert "created (server dry run)" in answer.stdout


@pytest.mark.cluster
@pytest.mark.timeout(90)
@pytest.mark.parametrize("name", [*OF_OUR_IMAGE_ONLY, "terminal_harness"])
def test_api_server_accepts_it_at_level_restricted(name: str, restricted: str) -> None:
    answer = dry_run(MANIFESTS[name], restricted)

    assert answer.returncode == 0, answer.stderr


@pytest.mark.cluster
@pytest.mark.timeout(90)
def test_tests_beside_the_candidate_need_level_baseline(restricted: str) -> None:
    assert dry_run(MANIFESTS["code_verifier"], restricted).returncode == 0

    answer = dry_run(MANIFESTS["shared_code_verifier"], restricted)

    assert answer.returncode != 0
    assert 'violates PodSecurity "restricted:latest": unrestricted capabilities' in answer.stderr
    assert 'container "verifier" must not include "KILL", "SETGID", "SETUID"' in answer.stderr


@pytest.mark.cluster
@pytest.mark.timeout(90)
def test_level_restricted_is_enforced_at_all(restricted: str) -> None:
    answer = dry_run(MANIFESTS["text_harness"], restricted)

    assert answer.returncode != 0
    assert "violates PodSecurity" in answer.stderr
    assert 'container "courier"' not in answer.stderr
