"""The kubelet and the agents of the machine model: what a Pod that ends leaves behind."""

from __future__ import annotations

from pathlib import Path

from securebench.protocol.gateway import LaunchReport, RelayReport, encode
from securebench.protocol.supervise import GATEWAY_TARGET, ProbeTarget
from securebench.run.api.field_types import Outcome
from securebench.run.decide.canary import PROBING
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import LaunchKey, Role
from support.build import (
    Status,
    batch_done,
    ended,
    pod_status,
    probe_done,
    running,
    seal_message,
    supervise_message,
    text_message,
)
from support.places import launch_folder
from support.pod_ends import hand_in

SCRIPTS: dict[str, tuple[Outcome, bool]] = {
    "right": (Outcome.SCORED, True),
    "wrong": (Outcome.SCORED, False),
    "slow": (Outcome.AGENT, False),
    "nothing": (Outcome.AGENT, False),
    "greedy": (Outcome.RESOURCE, False),
    "unjudged": (Outcome.VERIFIER, False),
    "unsealable": (Outcome.AGENT, False),
    "unjudgeable": (Outcome.AGENT, False),
    "hiccup": (Outcome.SCORED, True),
}
"""What the agent of a task does, and how its attempts have to end. Of the last ones the courier
never seals, the verifier never ends, and both fail once."""


PROVIDER_SCRIPTS: dict[str, tuple[Outcome, bool]] = {
    "outage": (Outcome.PROVIDER, False),
    "flaky": (Outcome.SCORED, True),
    "stubborn": (Outcome.SCORED, True),
    "thirsty": (Outcome.AGENT, False),
}
"""The same where a model provider is asked: it never answers, not the first launch, not in the end
although there is a candidate, and not beyond the budget."""

ALL_SCRIPTS = SCRIPTS | PROVIDER_SCRIPTS
REQUESTS = 3
"""That every launch sends to its provider."""

ERROR = '{"v":1,"error":"TimeoutError"}'
"""Of a member of a batch that has no verdict."""

VERDICTS = "verification/verdicts.json"
SPOILED = {
    "": None,
    "missing": None,
    "unnamed": None,
    "empty": b"",
    "torn": b'{"v":1,"verdicts":{"0-1-',
    "edited": b'{"v":1,"verdicts":{"0-1-1":"{\\"v\\":1,\\"passed\\":true}"}}',
    "oversized": b" " * (1 << 20),
}
"""What lies in the place of a batch's verdicts."""

NOTHING = seal_message(problem="candidate_missing", file=None, digest="", message="none")
"""What the courier says of an agent that handed nothing in."""

PASSING = frozenset(name for name, (_, passes) in ALL_SCRIPTS.items() if passes)
TARGET = ProbeTarget("dns", "10.96.0.10", 53, "udp")
READY = {"type": "Ready", "status": "True"}


class Kubelet:
    """Ends the Pods of one run.

    Args:
        root: Where the volume is mounted.
        uid: The run.
        scripts: Of the tasks, in pack order.
        way_out: Empty, ``domains`` or ``provider``.
    """

    def __init__(self, root: Path, uid: str, scripts: list[str], way_out: str) -> None:
        self._root, self._uid = root, uid
        self._folder = root / "runs" / uid
        self._scripts = scripts
        self._way_out = way_out
        self._failed: set[str] = set()
        self.spoil = ""
        """What becomes of the next verdict file of a batch; a key of ``SPOILED``."""

    def started(self, view: PodView) -> Status:
        """Return the status of a Pod whose containers run."""
        if view.role is Role.GATEWAY:
            return pod_status("Running", running("gateway"), conditions=[READY])
        if view.role in PROBING:
            return pod_status("Running", running("probe"))
        main = "harness" if view.role is Role.HARNESS else "verifier"
        return pod_status("Running", running("courier"), running(main))

    def ended(self, view: PodView) -> Status:
        """Return the status of a Pod that ended by itself, and leave what it leaves."""
        if view.role in PROBING:
            return probe_done(self._states(view.role))
        if view.launch is None:
            return pod_status("Failed", ended("gateway", 1))
        script = self._scripts[view.launch.task]
        if view.role is Role.VERIFIER:
            return self._verdicts(view) if view.members else self._verdict(script)
        status = self._candidate(view.launch, script)
        if self._way_out:
            self._report(view, script)
            sidecars = status["initContainerStatuses"]
            assert isinstance(sidecars, list)
            sidecars.append(ended("egress-proxy"))
        return status

    def _states(self, role: Role) -> dict[str, str]:
        """Return what a Pod of this cluster reaches."""
        if role is Role.CONTROL:
            return {TARGET.name: "open"}
        return {TARGET.name: "closed"} | ({GATEWAY_TARGET: "open"} if self._way_out else {})

    def reports(self, task: int, attempt: int) -> int:
        """Return how many launches of an attempt have the gateway's last word."""
        return len(list(self._folder.glob(f"gateway/launches/sb-*-{task}-{attempt}h*.json")))

    def _candidate(self, launch: LaunchKey, script: str) -> Status:
        """Leave on the volume what the agent of a task always leaves."""
        if script == "unsealable" or self._hiccups(script, "courier"):
            return pod_status("Failed", ended("courier", 137, "OOMKilled"), ended("harness", 0))
        if script == "greedy":
            end = ended("harness", 137, "OOMKilled")
            return pod_status("Failed", ended("courier", 0, message=NOTHING), end)
        code = 124 if script == "slow" else 0
        is_silent = script in {"nothing", "outage"} or self._fails_first(launch, script)
        seal = NOTHING if is_silent else hand_in(self._root, self._uid, launch, f"{script}\n")
        courier = ended("courier", 0, message=seal)
        harness = ended("harness", code, message=supervise_message(code))
        return pod_status("Failed" if code else "Succeeded", courier, harness)

    def _report(self, view: PodView, script: str) -> None:
        assert view.launch is not None
        fails = script in {"outage", "stubborn"} or self._fails_first(view.launch, script)
        relay = RelayReport(
            requests=REQUESTS,
            failures=int(fails),
            failure="provider_unavailable" if fails else "",
            budget_exhausted=script == "thirsty",
        )
        known = relay if self._way_out == "provider" else None
        report = LaunchReport(view.name, view.uid, closed=True, relay=known)
        folder = self._folder / "gateway/launches"
        (folder / f"{view.name}.json").write_bytes(encode(report))
        (folder / f"{view.name}.jsonl").write_text('{"host":"docs.example.org"}\n')

    def _verdicts(self, view: PodView) -> Status:
        """Return the end of a batch: one member's crash is the end of all of them."""
        scripts = {each: self._scripts[each.task] for each in view.launches}
        if any(
            name == "unjudgeable" or self._hiccups(name, "verifier") for name in scripts.values()
        ):
            return pod_status("Failed", ended("verifier", 137, "OOMKilled"))
        messages = {
            each: ERROR if name == "unjudged" else text_message(passed=name in PASSING)
            for each, name in scripts.items()
        }
        spoil, self.spoil = self.spoil, ""
        done = batch_done(self._root, self._uid, messages, file=SPOILED.get(spoil))
        if spoil == "missing":
            (self._root / launch_folder(self._uid, view.launches[0]) / VERDICTS).unlink()
        if spoil == "unnamed":
            return pod_status("Succeeded", ended("verifier", 0))
        return done

    def _verdict(self, script: str) -> Status:
        if script == "unjudged":
            return pod_status("Failed", ended("verifier", 1))
        if script == "unjudgeable" or self._hiccups(script, "verifier"):
            return pod_status("Failed", ended("verifier", 137, "OOMKilled"))
        message = text_message(passed=script in PASSING)
        return pod_status("Succeeded", ended("verifier", 0, message=message))

    def _hiccups(self, script: str, container: str) -> bool:
        """Whether a container fails for no reason of its own: once in a run."""
        if script != "hiccup" or container in self._failed:
            return False
        self._failed.add(container)
        return True

    @staticmethod
    def _fails_first(launch: LaunchKey, script: str) -> bool:
        return script == "flaky" and launch.launch == 1
