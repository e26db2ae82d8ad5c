"""How Pods of text tasks end well: what they leave on the volume, and their status.

For whoever stands for the kubelet and for what runs inside the Pods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from securebench.grading.verify_text import decode, judge
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import LaunchKey
from support.build import (
    Status,
    batch_done,
    ended,
    pod_status,
    seal_message,
    supervise_message,
    text_message,
)
from support.places import launch_folder


def hand_in(root: Path, uid: str, launch: LaunchKey, text: str) -> str:
    """Leave a text as the sealed candidate of a launch and return what its courier says.

    Args:
        root: Of the volume.
        uid: The run's.
        launch: A harness launch, whose folders are there.
        text: The candidate.
    """
    content = text.encode()
    (root / launch_folder(uid, launch) / "candidate" / "candidate.txt").write_bytes(content)
    return seal_message(digest=f"sha256:{hashlib.sha256(content).hexdigest()}")


def handed_in(root: Path, uid: str, launch: LaunchKey, text: str) -> Status:
    """Return the status of a harness Pod whose agent handed in a text, and leave that."""
    seal = hand_in(root, uid, launch, text)
    courier, harness = (
        ended("courier", 0, message=seal),
        ended("harness", 0, message=supervise_message()),
    )
    return pod_status("Succeeded", courier, harness)


def judged(
    root: Path, uid: str, view: PodView, passes: Callable[[LaunchKey], bool] = lambda _: True
) -> Status:
    """Return the status of a verifier Pod that has judged all, and leave its verdicts."""
    messages = {each: text_message(passed=passes(each)) for each in view.launches}
    if view.members:
        return batch_done(root, uid, messages)
    return pod_status("Succeeded", ended("verifier", 0, message=next(iter(messages.values()))))


def graded(root: Path, uid: str, raw: Mapping[str, Any]) -> Status:
    """Return the status of a text verifier's Pod whose real verifier judged what it mounts.

    Args:
        root: Of the volume.
        uid: The run's.
        raw: The Pod.
    """
    (container,) = raw["spec"]["containers"]
    places = {mount["mountPath"]: root / mount["subPath"] for mount in container["volumeMounts"]}

    def on_volume(path: Path) -> Path:
        place = next(each for each in (path, *path.parents) if str(each) in places)
        return places[str(place)] / path.relative_to(place)

    jobs = (
        replace(job, candidate=on_volume(job.candidate), hidden=on_volume(job.hidden))
        for job in decode(container["command"][-1])
    )
    messages = [judge(job).decode() for job in jobs]
    view = pod_view(raw)
    assert view is not None
    if view.members:
        return batch_done(root, uid, dict(zip(view.launches, messages, strict=True)))
    return pod_status("Succeeded", ended("verifier", 0, message=messages[0]))
