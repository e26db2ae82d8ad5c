"""What a run says while it waits, and what returns when it has ended."""

from __future__ import annotations

import pytest

from support.release import Raw, Release, benchmark_run, condition, keyed_pack
from support.runs import MANIFEST, NO_IMAGE, begin, row, rows
from support.waiting import KUBECTL_TIMEOUT

pytestmark = pytest.mark.e2e

TOLD_SECONDS = 420
"""That a wait is told within five seconds is tested by a clock of the tests' own (test_waits.py);
here a dozen runs begin at once, and the node has room for some of their Pods."""


def names_image(image: str, seen: Raw) -> bool:
    return image in condition(seen)["message"]


def test_an_image_that_cannot_be_pulled_is_told_before_the_run_ends(shared: Release) -> None:
    """What becomes of a run that waits for it longer: the scenario ``missing-image``."""
    image = "registry.invalid/nowhere:1"
    given = [row("late", environment={"image": image})]
    run = begin(shared, given, "echo 4", infrastructureRetries=0)
    seen = shared.wait(run, lambda run: names_image(image, run), TOLD_SECONDS)
    assert condition(seen)["status"] == "Unknown"
    shared.patch(run, {"cancel": "Immediate"})
    shared.kubectl("wait", "--for=condition=Complete", f"brun/{run}", KUBECTL_TIMEOUT)
    assert condition(shared.get("brun", run))["reason"] == "Cancelled"


def test_a_name_that_is_no_image_ends_at_once(shared: Release) -> None:
    given = [row("wrong", environment={"image": NO_IMAGE})]
    run = begin(shared, given, "echo 4")
    ended = shared.wait_ended(run)
    assert "InvalidImageName" in condition(ended)["message"]
    assert [record["launches"] for record in shared.records(run)] == [1]


def test_a_run_that_is_there_before_its_pack(shared: Release) -> None:
    name = "before-its-pack"
    files = {"manifest.yaml": MANIFEST, "tasks.jsonl": b'{"id":"a","input":{"question":"2 + 2?"},'}
    files["tasks.jsonl"] += b'"eval":{"accepted_answers":["4"]}}\n'
    pack, source = keyed_pack("ConfigMap", f"{name}-pack", files)
    harness = {"type": "command", "config": {"command": "echo 4"}}
    spec = {"pack": source, "harness": harness, "isolation": {"require": "Declared"}}
    shared.create(benchmark_run(name, spec))
    held = shared.wait(name, lambda run: condition(run)["reason"] == "InputMissing", TOLD_SECONDS)
    assert f"ConfigMap '{name}-pack' does not exist" in condition(held)["message"]
    shared.create(pack)
    assert condition(shared.wait_ended(name))["reason"] == "Completed"


def test_observed_generation_follows_a_finished_run(shared: Release) -> None:
    run = begin(shared, rows(1), "echo 4")
    shared.wait_ended(run)
    shared.patch(run, {"parallelism": 7})
    generation = shared.get("brun", run)["metadata"]["generation"]
    seen = shared.wait(run, lambda now: now["status"]["observedGeneration"] == generation)
    assert condition(seen)["reason"] == "Completed"


def test_describe_shows_what_happened(shared: Release) -> None:
    isolation = {"require": "Verified"}
    run = begin(shared, rows(1), "sleep 5; echo 4", isolation=isolation)
    shared.wait(run, lambda _: harness_pods(shared, run))
    (pod,) = harness_pods(shared, run)
    shared.kubectl("delete", "pod", pod, "--grace-period=1")
    shared.wait_ended(run)
    _, events = shared.kubectl("describe", "brun", run).split("Events:")
    told = [line.split()[:2] for line in events.splitlines() if "securebench-operator" in line]
    assert ["Normal", "Started"] in told, events
    assert ["Normal", "IsolationVerified"] in told, events
    assert ["Warning", "LaunchLost"] in told, events
    assert ["Normal", "Completed"] in told, events
    assert "1 of 1 passed" in events


def harness_pods(release: Release, run: str) -> list[str]:
    pods = (pod["metadata"] for pod in release.pods(run))
    return [meta["name"] for meta in pods if meta["labels"]["securebench.dev/role"] == "harness"]
