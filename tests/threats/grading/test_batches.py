"""F2: candidates of text families that share a verifier Pod."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from securebench.controller.capture import LaunchLeft
from securebench.controller.volume.store import RunStore
from securebench.digests import content_digest
from securebench.files import tree_digest
from securebench.grading import verify_text
from securebench.protocol.grading import decode_verdicts
from securebench.run.decide.attempt import Capture, attempt_step
from securebench.run.observe.stage import Ended
from securebench.run.observe.termination import text_verdict
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import Lost
from securebench.run.verification.base import SharedPodLostError
from securebench.run.verification.text import TextVerification
from support.build import (
    NOW,
    RUN_UID,
    VERIFIER,
    batch_done,
    ended,
    live,
    many_tasks,
    plan_of,
    pod_status,
    production,
    text_message,
    verification,
    view_of,
)
from support.manifest_samples import golden
from support.places import launch_place

pytestmark = pytest.mark.short

OTHER = LaunchKey(1, 1, Role.VERIFIER, 1)
MISDEEDS = ["memory", "time", "state"]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hidden/public").mkdir(parents=True)
    (tmp_path / "hidden/answer.json").write_text('"B"')
    (tmp_path / "hidden/public/choices.json").write_text('["red", "green"]')
    (tmp_path / "wrong.txt").write_text("Answer: A\n")
    (tmp_path / "right.txt").write_text("Answer: B\n")
    monkeypatch.setattr(verify_text, "MEMBER_SECONDS", 1)
    real = verify_text.text_verifier
    monkeypatch.setattr(
        verify_text,
        "text_verifier",
        lambda name: SimpleNamespace(verify=misdeed(name)) if name in MISDEEDS else real(name),
    )
    return tmp_path


def misdeed(what: str) -> Callable[..., object]:
    """Return a scorer in which a candidate does the worst that it could."""

    def verify(*_: object) -> object:
        if what == "memory":
            return bytearray(1 << 40)
        while what == "time":
            pass
        always = SimpleNamespace(passed=True, score=1.0, metadata={})
        verify_text.text_verifier = lambda _: SimpleNamespace(verify=lambda *_: always)  # type: ignore[assignment]
        return always

    return verify


def judged(inputs: Path, family: str) -> dict[str, Any]:
    """Judge a right answer behind what another candidate does, and before a wrong one."""
    members = [
        {
            "name": name,
            "family": kind,
            "candidate": {
                "path": str(inputs / f"{name}.txt"),
                "digest": content_digest((inputs / f"{name}.txt").read_bytes()),
            },
            "hidden": {"path": str(inputs / "hidden"), "digest": tree_digest(inputs / "hidden")},
        }
        for name, kind in (("hostile", family), ("right", CHOICE), ("wrong", CHOICE))
    ]
    words = ["--spec", json.dumps({"version": 1, "members": members})]
    code = verify_text.main(words, log=inputs / "log", verdicts=inputs)
    if code:
        return {}
    verdicts = decode_verdicts((inputs / "verdicts.json").read_bytes())
    return {name: json.loads(text).get("passed") for name, text in verdicts.items()}


CHOICE = "multiple_choice"


@pytest.mark.parametrize("what", MISDEEDS)
def test_a_374_attack(inputs: Path, what: str) -> None:
    (inputs / "hostile.txt").write_text("Answer: B\n")
    found = judged(inputs, what)
    assert (found["right"], found["wrong"]) == (True, False)


def test_a_374_twin(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process the state that a candidate left decides about the others."""
    (inputs / "hostile.txt").write_text("Answer: B\n")
    monkeypatch.setattr(verify_text, "judge_isolated", lambda judge, _: judge())
    assert judged(inputs, "state")["wrong"] is True


def test_a_374_honest(inputs: Path) -> None:
    (inputs / "hostile.txt").write_text("Answer: B\n")
    assert judged(inputs, CHOICE) == {"hostile": True, "right": True, "wrong": False}


def reach(manifest: Any) -> tuple[set[str], set[str]]:
    """Return what of the volume the Pod reads and what it writes."""
    (container,) = manifest["spec"]["containers"]
    mounts = [each for each in container["volumeMounts"] if each["name"] == "results"]
    places = {each.get("subPath", ""): each.get("readOnly", False) for each in mounts}
    reads = {place for place, is_read_only in places.items() if is_read_only}
    return reads, set(places) - reads


def is_bounded(manifest: Any) -> bool:
    """Whether all that is read are candidates and hidden lanes, and one folder is written."""
    reads, writes = reach(manifest)
    tasks = f"runs/{RUN_UID}/tasks"
    return writes == {f"{tasks}/0/attempts/1/launches/1/verification"} and all(
        place.startswith(f"{tasks}/") and place.endswith(("/candidate", "/lanes/hidden"))
        for place in reads
    )


def test_a_375_attack() -> None:
    assert is_bounded(golden()["text_batch"])
    (container,) = golden()["text_batch"]["spec"]["containers"]  # type: ignore[index]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_375_twin() -> None:
    manifest: Any = golden()["text_batch"]
    manifest["spec"]["containers"][0]["volumeMounts"][0].pop("readOnly")
    assert not is_bounded(manifest)


def test_a_375_honest() -> None:
    reads, _ = reach(golden()["text_batch"])
    assert len(reads) == 2 * 2


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path, RUN_UID)
    made.make_launch_folders(VERIFIER)
    return made


def batch(store: RunStore) -> tuple[str, Path]:
    """Leave a batch in which the other candidate failed; return its message and its file."""
    messages = {each: text_message(passed=False) for each in (VERIFIER, OTHER)}
    status: Any = batch_done(store.root, RUN_UID, messages)
    path = launch_place(store, VERIFIER) / "verification/verdicts.json"
    return status["containerStatuses"][0]["state"]["terminated"]["message"], path


def member_passes(store: RunStore, launch: LaunchKey, message: str) -> bool:
    """Return a member's verdict from the batch's file and the message of its Pod."""
    view = view_of(VERIFIER, pod_status("Succeeded", ended("verifier", 0, message=message)))
    left = LaunchLeft(store, Capture(launch, view, Ended(0), VERIFIER))
    return TextVerification().verdict(verification(passed=False), left).passed


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"false", b"true"))


def test_a_376_attack(store: RunStore) -> None:
    message, path = batch(store)
    edit(path)
    with pytest.raises(SharedPodLostError, match="has digest"):
        member_passes(store, OTHER, message)


def test_a_376_twin(store: RunStore) -> None:
    """Whoever believes the file without the message believes the forger."""
    _, path = batch(store)
    edit(path)
    assert text_verdict(decode_verdicts(path.read_bytes())["1-1-1"])[0] is True


def test_a_376_honest(store: RunStore) -> None:
    message, _ = batch(store)
    assert member_passes(store, OTHER, message) is False


def after_crash(first: LaunchKey | None) -> Lost:
    plan = plan_of(*many_tasks(2))
    status = pod_status("Failed", ended("verifier", 137, "OOMKilled"))
    history = live(OTHER, production=production(), batch=first)
    step = attempt_step(plan, history, view_of(first or OTHER, status), NOW)
    assert isinstance(step, Lost)
    return step


def test_a_377_attack() -> None:
    lost = after_crash(VERIFIER)
    assert (lost.is_shared, lost.is_suspect) == (True, False)


def test_a_377_twin() -> None:
    """Judged as if it had been alone, the neighbour's memory is held against the candidate."""
    assert after_crash(None).is_suspect


def test_a_377_honest(store: RunStore) -> None:
    message, _ = batch(store)
    assert member_passes(store, VERIFIER, message) is False
