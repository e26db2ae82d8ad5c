"""How far a launch Pod has come: container states first, the Pod's phase second.

Source: design 12.1 to 12.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Protocol

from securebench.protocol.messages import PHASES, STORAGE_FAILED, VERDICTS, Code
from securebench.reasons import (
    DISK_LIMIT_EXCEEDED,
    EGRESS_SETUP_FAILED,
    EXTRACTION_FAILED,
    IMAGE_PULL_FAILED,
    MATERIALIZATION_FAILED,
    NODE_LOST,
    OOM_KILLED,
    POD_LOST,
    PREFLIGHT_FAILED,
    SUPERVISOR_KILLED,
)
from securebench.run.layout import COURIER, EGRESS_PROXY, HARNESS, MATERIALIZE, SERVICE_PREFIX
from securebench.run.observe.pods import ContainerView, PodView, Terminated
from securebench.run.observe.termination import command_report, error_words
from securebench.run.plan.environment import HEALTHCHECK
from securebench.run.plan.model import RunPolicy
from securebench.run.state.attempts import CommandReport
from securebench.run.state.entries import OOM_REASON

STAGED_CANDIDATE = "candidate"
"""Phase in supervise's message when staging failed at what a candidate holds: before it ran."""
HOPELESS_WAITS = frozenset({"InvalidImageName", "ErrImageNeverPull"})
"""Nothing but a change of the pack, or of the node by hand, can end these: no further launch."""
IMAGE_WAITS = frozenset({"ImagePullBackOff", "ErrImagePull", "ImageInspectError"}) | HOPELESS_WAITS
CONTAINER_WAITS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
)
NO_SUCH_IMAGE = re.compile(
    r"code = NotFound|manifest unknown|manifest for \S+ not found|name unknown|pull access denied",
    re.IGNORECASE,
)
"""What registries say, through containerd, CRI-O or cri-dockerd, of an image that is not there or
that they hide: an answer, and no trouble on the way to one. Source: decision 0033."""

SIDECAR_RESTARTS = 3
DEADLINE_REASON = "DeadlineExceeded"
ENDED_BY_ITSELF = "Error"
"""The kubelet's reason for a non-zero exit that it saw; what it did not see has other reasons."""


NETWORK_WORDS = (
    "an address that must be closed accepts connections: the network policy was not in force, or "
    "another policy opens the Pod"
)
"""supervise looks before its command and after it."""

HALTED_WORDS = (
    "the node stopped the container, and the Pod does not say why: its sandbox was killed, or "
    "somebody stopped the container by hand"
)


@dataclass(frozen=True, slots=True)
class InProgress:
    """Nothing to decide yet.

    Attributes:
        wake_at: When to decide again without an event, or None.
    """

    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The launch ended without a result.

    Attributes:
        reason: A failure_reason of outcome infrastructure.
        message: One plain sentence.
        is_final: Whether another launch would meet the same.
        is_suspect: Whether what the agent left may have caused it, rather than the cluster.
    """

    reason: str
    message: str
    is_final: bool = False
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The launch ended definitely; what it left can be captured.

    Attributes:
        code: Exit code of the untrusted container's PID 1, or of the text verifier.
        problem: ``oom_killed``, ``disk_limit_exceeded``, ``supervisor_killed``,
            ``verifier_error`` or empty.
        message: One plain sentence where there is a problem.
    """

    code: int
    problem: str = ""
    message: str = ""


Stage = InProgress | Interrupted | Ended


class Work(Protocol):
    """What the Pod of a launch is for, as far as its end is concerned."""

    @property
    def has_courier(self) -> bool:
        """Whether a courier seals what the Pod left."""
        ...

    def main(self, view: PodView) -> ContainerView | None:
        """Return the container whose end is the launch's end."""
        ...

    def ended(self, view: PodView, end: Terminated) -> Interrupted | Ended:
        """Return how a launch ended whose container ended."""
        ...


class HarnessWork:
    """An agent's turn."""

    has_courier = True

    def main(self, view: PodView) -> ContainerView | None:
        """Return the container of the agent."""
        return view.containers.get(HARNESS)

    def ended(self, view: PodView, end: Terminated) -> Interrupted | Ended:
        """Return how the agent's turn ended."""
        return _preflight_end(end) or supervised_end(view, end)


HARNESS_WORK = HarnessWork()


def launch_stage(view: PodView, work: Work, since: float, policy: RunPolicy, now: float) -> Stage:
    """Return the stage of a launch Pod.

    Args:
        work: What it is for.
        since: When the launch was journalled, seconds since the epoch.
        policy: Numbers of the loop.
        now: Seconds since the epoch.
    """
    main = work.main(view)
    if main is not None and main.terminated is not None:
        stage: Stage = work.ended(view, main.terminated)
        if work.has_courier and isinstance(stage, Ended):
            stage = _after_courier(view, stage)
        if isinstance(stage, InProgress) and view.deleting_since is not None:
            return _deleting(view, view.deleting_since + policy.lost_after_seconds, now)
        return stage
    if view.is_terminal:
        return _ended_before_main(view)
    return _waiting(view, main, since, policy, now)


def _after_courier(view: PodView, verdict: Ended) -> Stage:
    courier = view.containers.get(COURIER)
    if not view.is_terminal and not _have_ended(view, COURIER, EGRESS_PROXY):
        return InProgress()
    end = courier.terminated if courier is not None else None
    proxy_end = _proxy_end(view)
    if proxy_end is not None:
        return _disk_limit(view, verdict.code) or proxy_end
    is_limit = verdict.problem not in {"", SUPERVISOR_KILLED}
    if is_limit or (end is not None and end.exit_code == 0):
        return verdict
    return _disk_limit(view, verdict.code) or _unsealed(view, end)


def _unsealed(view: PodView, end: Terminated | None) -> Interrupted:
    if end is None:
        return Interrupted(EXTRACTION_FAILED, "the courier was gone before it sealed")
    if end.exit_code == STORAGE_FAILED:
        return Interrupted(EXTRACTION_FAILED, f"the courier could not seal: {end.message}")
    message = f"the courier ended with exit code {end.exit_code} ({end.reason}) before it sealed"
    return Interrupted(EXTRACTION_FAILED, message, is_suspect=ended_alone(view, end))


def ended_alone(view: PodView, end: Terminated) -> bool:
    """Whether nothing but what a container does, or its memory limit, ended it."""
    is_asked_for = view.deleting_since is not None or view.disrupted or bool(view.reason)
    return not is_asked_for and end.reason in {OOM_REASON, ENDED_BY_ITSELF}


def _have_ended(view: PodView, *sidecars: str) -> bool:
    """Whether those of the sidecars that the Pod has were ended, and it has one."""
    found = [view.containers[name] for name in sidecars if name in view.containers]
    return bool(found) and all(container.terminated is not None for container in found)


def _proxy_end(view: PodView) -> Interrupted | None:
    """Return the trouble of the egress of a Pod that has ended, or None."""
    proxy = view.containers.get(EGRESS_PROXY)
    if proxy is None:
        return None
    if proxy.restarts:
        return _proxy_restarted(proxy)
    if proxy.terminated is None:
        return Interrupted(EGRESS_SETUP_FAILED, "the egress proxy was gone before it reported")
    if proxy.terminated.exit_code:
        words = f"the egress proxy failed: {_words(proxy.terminated)}"
        return Interrupted(EGRESS_SETUP_FAILED, words)
    return None


def _proxy_restarted(proxy: ContainerView) -> Interrupted:
    how = f": {_words(proxy.previous)}" if proxy.previous is not None else ""
    return Interrupted(EGRESS_SETUP_FAILED, f"the egress proxy did not stay up{how}")


def _preflight_end(end: Terminated) -> Interrupted | None:
    """Return the end of a harness whose own command was never started, or None."""
    if end.exit_code != Code.PHASE_FAILED:
        return None
    report = command_report(end.message)
    if report.phase == HEALTHCHECK:
        how = report.error or f"exit code {report.exit_code}"
        message = f"the health check of the task does not succeed: {how}"
        return Interrupted(MATERIALIZATION_FAILED, message)
    if report.timed_out:
        return Interrupted(PREFLIGHT_FAILED, "it ran into the time limit")
    return Interrupted(PREFLIGHT_FAILED, report.error or f"exit code {report.exit_code}")


def supervised_end(view: PodView, end: Terminated) -> Interrupted | Ended:
    """Return how a launch ended whose container supervise ran."""
    code = end.exit_code
    if code in VERDICTS or code in PHASES:
        return Ended(code)
    if code == Code.STAGING_FAILED:
        is_suspect = command_report(end.message).phase == STAGED_CANDIDATE
        words = f"staging failed: {_words(end)}"
        return Interrupted(MATERIALIZATION_FAILED, words, is_suspect=is_suspect)
    if code == Code.NETWORK_OPEN:
        return Interrupted(EGRESS_SETUP_FAILED, NETWORK_WORDS)
    if code == Code.OWN_FAULT:
        return Interrupted(MATERIALIZATION_FAILED, f"supervise failed: {_words(end)}")
    if code == Code.HALTED:
        return _disk_limit(view, code) or interruption(view, end)
    return _limit(view, end) or _killed_from_inside(view, end) or interruption(view, end)


def _killed_from_inside(view: PodView, end: Terminated) -> Ended | None:
    """Return the end of a PID 1 that nobody outside of its container asked for, else None.

    It must not buy another launch: what ran in the container did it (A-076).
    """
    if not ended_alone(view, end):
        return None
    message = f"supervise was ended from inside its container (exit code {end.exit_code})"
    return Ended(end.exit_code, SUPERVISOR_KILLED, message)


def _limit(view: PodView, end: Terminated) -> Ended | None:
    if end.reason == OOM_REASON:
        return Ended(end.exit_code, OOM_KILLED, "the memory limit ended the container")
    return _disk_limit(view, end.exit_code)


def memory_kills(end: Terminated) -> int:
    """Return how many processes of a container were killed at its memory limit, at least.

    supervise counts them where it can read the events of its cgroup. The kubelet says ``OOMKilled``
    also where PID 1 outlived them.
    """
    return max(command_report(end.message).memory_kills, int(end.reason == OOM_REASON))


def container_report(view: PodView, container: str, code: int) -> CommandReport:
    """Return what supervise reports of the command in a container.

    Args:
        container: Its name; without one that ended the report is empty.
        code: Exit code of the launch.
    """
    seen = view.containers.get(container)
    end = seen.terminated if seen is not None else None
    report = command_report(end.message if end is not None else "")
    kills = memory_kills(end) if end is not None else 0
    return replace(report, timed_out=code == Code.TIMED_OUT, memory_kills=kills)


def _disk_limit(view: PodView, code: int) -> Ended | None:
    """Return the end of a Pod that was evicted for a limit of its own, else None."""
    if view.reason == "Evicted" and not view.disrupted:
        return Ended(code, DISK_LIMIT_EXCEEDED, view.message or "a disk limit was hit")
    return None


def interruption(view: PodView, end: Terminated | None) -> Interrupted:
    """Return the loss of a launch that ended before a result."""
    if end is not None and end.reason == ENDED_BY_ITSELF and ended_alone(view, end):
        return Interrupted(POD_LOST, HALTED_WORDS)
    ended = end.reason if end is not None else ""
    cause = view.reason or view.taken_back or ended or "no reason given"
    if "NodeLost" in cause or "NodeShutdown" in cause or "TerminationByKubelet" in cause:
        return Interrupted(NODE_LOST, f"the node gave the Pod up: {cause}")
    return Interrupted(POD_LOST, f"Pod {view.name} ended before a result: {cause}")


def _ended_before_main(view: PodView) -> Stage:
    materialize = view.containers.get(MATERIALIZE)
    if materialize is not None and materialize.terminated is not None:
        end = materialize.terminated
        if end.exit_code != 0:
            return Interrupted(
                MATERIALIZATION_FAILED,
                f"failed to materialize benchmark image workdir: {_words(end)}",
            )
    return _disk_limit(view, Code.TERMINATED) or interruption(view, None)


def _waiting(
    view: PodView, main: ContainerView | None, since: float, policy: RunPolicy, now: float
) -> Stage:
    if view.deleting_since is not None:
        return _deleting(view, view.deleting_since + policy.lost_after_seconds, now)
    give_up_at = max(since, view.created_at, view.scheduled_at or 0.0) + policy.image_wait_seconds
    if view.without_sandbox_since is not None and not view.is_terminal:
        return _without_sandbox(view, view.without_sandbox_since + policy.sandbox_wait_seconds, now)
    for container in view.containers.values():
        if container.waiting_reason in HOPELESS_WAITS or _is_no_such_image(container):
            return _pull_failed(container)
        unstable = _unstable(container, has_begun=main is not None and main.running)
        if unstable is not None:
            return unstable
        stuck = container.waiting_reason in IMAGE_WAITS | CONTAINER_WAITS
        if stuck and now >= give_up_at:
            return _pull_failed(container)
        if stuck:
            return InProgress(wake_at=give_up_at)
    return InProgress()


def _unstable(container: ContainerView, *, has_begun: bool) -> Interrupted | None:
    """Return why a Pod cannot go on whose sidecar was started again, or None.

    What becomes of a service once the commands have begun is their work.
    """
    if container.name == COURIER and container.restarts >= SIDECAR_RESTARTS:
        words = "the courier does not stay up"
        return Interrupted(MATERIALIZATION_FAILED, words, is_suspect=has_begun)
    if container.name == EGRESS_PROXY and container.restarts:
        return _proxy_restarted(container)
    if not container.name.startswith(SERVICE_PREFIX) or has_begun or not container.restarts:
        return None
    name = container.name.removeprefix(SERVICE_PREFIX)
    how = f": {_words(container.previous)}" if container.previous is not None else ""
    return Interrupted(MATERIALIZATION_FAILED, f"service {name!r} does not become ready{how}")


def _without_sandbox(view: PodView, lost_at: float, now: float) -> Stage:
    if now >= lost_at:
        return Interrupted(POD_LOST, f"node {view.facts.node} cannot make a sandbox for the Pod")
    return InProgress(wake_at=lost_at)


def _is_no_such_image(container: ContainerView) -> bool:
    is_pull = container.waiting_reason in IMAGE_WAITS
    return is_pull and NO_SUCH_IMAGE.search(container.waiting_message) is not None


def _pull_failed(container: ContainerView) -> Interrupted:
    words = f"{container.waiting_reason}: {container.waiting_message}"
    if container.waiting_reason in IMAGE_WAITS:
        return Interrupted(
            IMAGE_PULL_FAILED,
            f"container {container.name}: {words}",
            is_final=container.waiting_reason in HOPELESS_WAITS,
        )
    return Interrupted(MATERIALIZATION_FAILED, f"container {container.name}: {words}")


def _deleting(view: PodView, lost_at: float, now: float) -> Stage:
    if now >= lost_at:
        return Interrupted(POD_LOST, f"Pod {view.name} was deleted and its node does not answer")
    return InProgress(wake_at=lost_at)


def _words(end: Terminated) -> str:
    return f"exit code {end.exit_code}, {error_words(end.message) or end.reason}"[:500]
