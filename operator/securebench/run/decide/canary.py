"""Decides about the canary of a run from observation, memory and time. Pure.

A canary and a control Pod beside it try the same targets. If one is lost before it gave an answer,
the next number replaces it, a few times. The first ones start beside the run's gateway, if the run
has one; later ones start when the gateway is ready. The memory of the process is rebuilt after a
restart, at the cost of a wait.

First comes what is to be proven and how the answer of a probing Pod is read, then the decision,
then the judgement of what canary and control reached.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from securebench.clock import Instant, backoff
from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.supervise import CANARY_QUIET_SECONDS, GATEWAY_TARGET, ProbeTarget
from securebench.run.api.status import Reason
from securebench.run.decide.gateway import pod_trouble
from securebench.run.layout import PROBE, numbered, probe_name
from securebench.run.observe.pods import KUBELETS_SECONDS, PodView
from securebench.run.observe.stage import CONTAINER_WAITS
from securebench.run.observe.termination import BadMessageError, decode, kernel_release
from securebench.run.observe.waiting import WaitReason, pod_waiting
from securebench.run.plan.model import ClusterFacts, PodUserNamespaces, Role
from securebench.run.state.attempts import Runtime, runtime_of
from securebench.run.state.entries import IsolationResult

MARGIN = 2.0
"""A canary listens so many times as long as the control needed for its answers: what came up late
for the one may come up late for the other, and would look closed before."""


@dataclass(frozen=True, slots=True)
class CanaryCheck:
    """What to prove and how long it may take.

    Attributes:
        targets: What no Pod of a run may reach.
        timeout_seconds: For the whole check, from the first Pod that may be made.
        may_have_user_namespaces: Whether a canary with a user namespace is tried first.
        must_have_user_namespaces: Whether there is no proof without one.
        runtime_class: Runtime class of the run's Pods, or empty.
        must_be_sandboxed: Whether the administrator requires a sandbox of that class.
        is_node_allowed: Whether targets of the node may be reached all the same.
        has_gateway: Whether the run has a gateway, which the canary must reach.
    """

    targets: Sequence[ProbeTarget]
    timeout_seconds: float
    may_have_user_namespaces: bool = True
    must_have_user_namespaces: bool = False
    runtime_class: str = ""
    must_be_sandboxed: bool = False
    is_node_allowed: bool = False
    has_gateway: bool = False


class Probe(NamedTuple):
    """A probing Pod to make.

    Attributes:
        role: Canary or control.
        number: Counts from 1.
        user_namespaces: ON only for a canary.
        quiet_seconds: How long a canary listens.
    """

    role: Role
    number: int
    user_namespaces: PodUserNamespaces = PodUserNamespaces.OFF
    quiet_seconds: float = CANARY_QUIET_SECONDS


class CanaryAnswer(NamedTuple):
    """What a probing Pod found.

    Attributes:
        states: State by target.
        kernel: Release of the kernel below it, or empty.
        user_namespace: Whether it had one of its own.
        seconds: Of a canary, how long what it found closed had been silent; of a control, after how
            long the last of what it found open answered. None where it does not say.
    """

    states: Mapping[str, str]
    kernel: str
    user_namespace: bool = False
    seconds: float | None = None


PROBING = (Role.CONTROL, Role.CANARY)


START_SECONDS = 30.0
"""A canary with a user namespace that its node could not start for so long cannot start at all."""


LOST_LIMIT = 5
"""Probing Pods that give no answer, after which there is no proof."""


RETRY_SECONDS = 2.0


RETRY_LIMIT_SECONDS = 30.0
"""Pause before a lost one is replaced; doubled each time up to the limit."""


CANARY_MESSAGE = "waiting for the isolation canary"


NO_GATEWAY = "it did not reach the gateway, which was still being started"


UNGUARDED = "a network policy or the gateway of the run was missing while it ran"


NO_CANARY = IsolationResult(
    verified=False,
    user_namespaces=False,
    message="spec.isolation.require is Declared: no canary ran",
    declared=True,
)


NODE_ADVICE = (
    "; spec.isolation.allow: [Node] accepts addresses of the node, and every record then says"
    " labels.node_reachable: true"
)


@dataclass(frozen=True, slots=True)
class ObservedCanary:
    """What the cluster shows.

    Attributes:
        pods: All Pods of the run, by name.
        last_vanished: Number of the latest Pod of a role that is gone.
        is_network_ready: Whether all policies are there, and an address of the gateway, if the run
            needs one.
        is_ready: Whether the gateway is there, too.
        create_blocked: Why a create has to wait, for room in a quota, for rights or for an answer;
            or empty.
        listed_at: Start of the latest list of Pods, monotonic seconds.
        answered_at: Start of the list of Pods that was answered after others had failed.
    """

    run_uid: str
    pods: Mapping[str, PodView]
    last_vanished: Mapping[Role, int]
    is_network_ready: bool
    is_ready: bool
    create_blocked: str = ""
    listed_at: float = math.inf
    answered_at: float = -math.inf

    def newest(self, role: Role) -> tuple[int, PodView | None]:
        """Return the number of the latest Pod of a role, 0 before the first, and the Pod."""
        shown = (numbered(view.name) for view in self.pods.values() if view.role is role)
        number = max((*shown, self.last_vanished.get(role, 0)))
        return number, self.pods.get(self.name(role, number))

    def name(self, role: Role, number: int) -> str:
        """Return the name of a Pod."""
        return probe_name(self.run_uid, role, number)


@dataclass(frozen=True, slots=True)
class CanaryMemory:
    """What a process remembers of a canary between two looks; times are monotonic seconds.

    Attributes:
        since: When the check began, or None while it cannot, or the gateway is still started; an
            outage begins it anew.
        stuck_since: Since when a canary with a user namespace cannot start, or None.
        lacks_user_namespaces: Whether those with a user namespace do not start here.
        answers: What was found, by role.
        lost_pods: Names of the Pods that give no answer any more.
        last_lost: Why the latest of them gives none, in one sentence.
        next_at: Earliest time of the next create.
    """

    since: float | None = None
    stuck_since: float | None = None
    lacks_user_namespaces: bool = False
    answers: Mapping[Role, CanaryAnswer] = field(default_factory=dict)
    lost_pods: frozenset[str] = frozenset()
    last_lost: str = ""
    next_at: float = 0.0


@dataclass(frozen=True, slots=True)
class CanaryStep:
    """What to do now.

    Attributes:
        memory: What to remember.
        start: Pods to make.
        delete: Pods to delete: of those that were replaced.
        found: Result to journal, or None while undecided.
        wake_at: When to decide again without an event, monotonic seconds, or None.
        needs_list: Whether Pods are to be listed: an event about them may have been lost.
    """

    memory: CanaryMemory
    start: tuple[Probe, ...] = ()
    delete: tuple[PodView, ...] = ()
    found: IsolationResult | None = None
    wake_at: float | None = None
    needs_list: bool = False


def decide(
    seen: ObservedCanary, check: CanaryCheck | None, known: CanaryMemory, now: Instant
) -> CanaryStep:
    """Decide about the canary of an active run that has no finding yet.

    Args:
        seen: What the cluster shows.
        check: What to prove; None if the user waived the proof.
        known: What was decided before, by the same process.
        now: This moment.
    """
    if check is None:
        return CanaryStep(known, found=NO_CANARY if seen.is_ready else None)
    at = now.monotonic
    if known.since is not None:
        known = replace(known, since=max(known.since, seen.answered_at))
    if not seen.is_network_ready or (known.since is not None and not seen.is_ready):
        known = _unguarded(seen, known, at)
        return CanaryStep(known, delete=tuple(_replaced(seen, known)))
    if seen.is_ready and (known.since is None or seen.create_blocked):
        known = replace(known, since=at)
    for role in PROBING:
        known = _update_from_pod(seen, check, known, role, now)
    known = _discard_short_silence(seen, known, at)
    found = _finding(seen, check, known, now) if seen.is_ready else None
    return CanaryStep(
        known,
        start=tuple(_starts(seen, check, known, at)),
        delete=tuple(_replaced(seen, known)),
        found=found,
        wake_at=_wake_at(seen, check, known, at),
        needs_list=found is None
        and (_is_late(check, known, at) or at >= _hopeless_at(seen, known)),
    )


def canary_waiting(pods: Iterable[PodView], known: CanaryMemory, now: Instant) -> WaitReason:
    """Return what the canary, or the control Pod beside it, waits for.

    Args:
        known: What the process remembers.
        now: This moment.
    """
    probing = (view for view in pods if view.role in PROBING and view.name not in known.lost_pods)
    waits = (pod_waiting(view, now.wall) for view in sorted(probing, key=lambda view: view.name))
    found = next((each for each in waits if each is not None), None)
    if found is not None:
        return WaitReason(Reason.PROBING, f"{CANARY_MESSAGE}: {found.message}", found.changes_at)
    is_again = now.monotonic < known.next_at
    message = f"{CANARY_MESSAGE}: {known.last_lost}" if is_again else CANARY_MESSAGE
    return WaitReason(Reason.PROBING, message)


def _unguarded(seen: ObservedCanary, known: CanaryMemory, now: float) -> CanaryMemory:
    """Return what to remember while a policy or the gateway is not there.

    What a canary found meanwhile says nothing of the run's network, good or bad.
    """
    answers = dict(known.answers)
    answers.pop(Role.CANARY, None)
    known = replace(known, since=None, stuck_since=None, answers=answers)
    number, _ = seen.newest(Role.CANARY)
    name = seen.name(Role.CANARY, number)
    return known if _is_spent(known, number, name) else _lost(known, name, UNGUARDED, now)


def _update_from_pod(
    seen: ObservedCanary, check: CanaryCheck, known: CanaryMemory, role: Role, now: Instant
) -> CanaryMemory:
    """Update the memory from the state of the role's latest Pod."""
    at = now.monotonic
    number, view = seen.newest(role)
    name = seen.name(role, number)
    if role in known.answers or _is_spent(known, number, name):
        return known
    if view is None:
        return _lost(known, name, "it disappeared", at)
    if _is_superseded(view, check, known):
        return known
    answer = probe_answer(view)
    if answer is not None:
        is_early = _came_early(seen, check, role, number, answer)
        taken = replace(known, answers={**known.answers, role: answer})
        return _lost(known, name, NO_GATEWAY, at) if is_early else taken
    if view.deleting_since is not None:
        return _lost(known, name, "somebody deletes it", at)
    if not view.is_terminal:
        return _stuck(seen, view, known, at) if role is Role.CANARY else known
    if view.facts.user_namespace and not (view.disrupted or view.reason):
        return replace(known, lacks_user_namespaces=True)
    return _lost(known, name, pod_trouble(view, now.wall), at)


def _came_early(
    seen: ObservedCanary, check: CanaryCheck, role: Role, number: int, answer: CanaryAnswer
) -> bool:
    """Whether a canary missed a gateway that may not have been ready for all of its time."""
    is_missed = check.has_gateway and answer.states.get(GATEWAY_TARGET) != OPEN
    return role is Role.CANARY and is_missed and (number == 1 or not seen.is_ready)


def _discard_short_silence(seen: ObservedCanary, known: CanaryMemory, now: float) -> CanaryMemory:
    """Discard the answer of a canary that listened for too short a time."""
    canary = known.answers.get(Role.CANARY)
    if canary is None or canary.seconds is None or canary.seconds >= quiet_seconds(known.answers):
        return known
    answers = dict(known.answers)
    del answers[Role.CANARY]
    number, _ = seen.newest(Role.CANARY)
    message = (
        f"it heard nothing for {canary.seconds:g} seconds, which says nothing where the control"
        f" had its answers after {quiet_seconds(known.answers) / MARGIN:g}"
    )
    return _lost(replace(known, answers=answers), seen.name(Role.CANARY, number), message, now)


def _stuck(seen: ObservedCanary, view: PodView, known: CanaryMemory, now: float) -> CanaryMemory:
    if not view.facts.user_namespace or not _cannot_start(view):
        return replace(known, stuck_since=None)
    known = replace(known, stuck_since=now if known.stuck_since is None else known.stuck_since)
    is_hopeless = min(now, seen.listed_at) >= _hopeless_at(seen, known)
    return replace(known, lacks_user_namespaces=is_hopeless)


def _hopeless_at(seen: ObservedCanary, known: CanaryMemory) -> float:
    """Return when a list that still shows the canary stuck says that it cannot start."""
    if known.stuck_since is None or known.lacks_user_namespaces or Role.CANARY in known.answers:
        return math.inf
    return max(known.stuck_since + START_SECONDS, seen.answered_at + KUBELETS_SECONDS)


def _lost(known: CanaryMemory, name: str, message: str, now: float) -> CanaryMemory:
    pause = backoff(RETRY_SECONDS, RETRY_LIMIT_SECONDS, len(known.lost_pods) + 1)
    return replace(
        known,
        lost_pods=known.lost_pods | {name},
        last_lost=f"Pod {name} gave no answer: {message}",
        next_at=now + pause,
        stuck_since=None,
    )


def _is_spent(known: CanaryMemory, number: int, name: str) -> bool:
    """Whether there is no Pod of a role that may still give an answer."""
    return number == 0 or name in known.lost_pods


def _is_superseded(view: PodView, check: CanaryCheck, known: CanaryMemory) -> bool:
    """Whether a canary has a user namespace where the run goes without."""
    has_none = known.lacks_user_namespaces or not check.may_have_user_namespaces
    return view.facts.user_namespace and has_none


def _starts(
    seen: ObservedCanary, check: CanaryCheck, known: CanaryMemory, now: float
) -> Iterator[Probe]:
    if now < known.next_at:
        return
    is_on = check.may_have_user_namespaces and not known.lacks_user_namespaces
    canary = PodUserNamespaces.ON if is_on else PodUserNamespaces.OFF
    for role in PROBING:
        number, view = seen.newest(role)
        is_over = view is not None and _is_superseded(view, check, known)
        is_needed = is_over or _is_spent(known, number, seen.name(role, number))
        if not is_needed or role in known.answers or (number and not seen.is_ready):
            continue
        if role is Role.CANARY:
            listen_seconds = max(CANARY_QUIET_SECONDS, quiet_seconds(known.answers))
            yield Probe(role, number + 1, canary, listen_seconds)
        else:
            yield Probe(role, number + 1)


def _replaced(seen: ObservedCanary, known: CanaryMemory) -> Iterator[PodView]:
    views = (seen.pods[name] for name in known.lost_pods if name in seen.pods)
    return (view for view in views if view.deleting_since is None)


def _finding(
    seen: ObservedCanary, check: CanaryCheck, known: CanaryMemory, now: Instant
) -> IsolationResult | None:
    canary, control = known.answers.get(Role.CANARY), known.answers.get(Role.CONTROL)
    problem = _problem(check, known, canary)
    if problem:
        return _refused(check, problem)
    if canary is not None and control is not None:
        return judge(
            control.states,
            canary.states,
            user_namespaces=canary.user_namespace,
            has_gateway=check.has_gateway,
            node=[target for target in check.targets if target.is_node],
            is_node_allowed=check.is_node_allowed,
        )
    if len(known.lost_pods) >= LOST_LIMIT:
        return _refused(check, f"{len(known.lost_pods)} probing Pods were lost: {known.last_lost}")
    if _is_late(check, known, now.monotonic) and _is_late(check, known, seen.listed_at):
        message = canary_waiting(seen.pods.values(), known, now).message
        return _refused(check, f"no answer within {check.timeout_seconds:g} seconds: {message}")
    return None


def _is_late(check: CanaryCheck, known: CanaryMemory, at: float) -> bool:
    """Whether a moment is after the time for the whole check."""
    return known.since is not None and at >= known.since + check.timeout_seconds


def _problem(check: CanaryCheck, known: CanaryMemory, canary: CanaryAnswer | None) -> str:
    """Return why there is no proof, whatever the control says, or empty."""
    lacks_user_namespaces = known.lacks_user_namespaces or (
        canary is not None and not canary.user_namespace
    )
    if lacks_user_namespaces and check.must_have_user_namespaces:
        return "Pods with a user namespace do not start here, and the setting is Require"
    if canary is None or not check.must_be_sandboxed:
        return ""
    return "" if runtime_of(canary.kernel) is Runtime.GVISOR else _no_sandbox(check, canary.kernel)


def _refused(check: CanaryCheck, message: str) -> IsolationResult:
    return IsolationResult(
        verified=False,
        user_namespaces=False,
        message=message,
        sandboxed=not check.must_be_sandboxed,
    )


def _no_sandbox(check: CanaryCheck, kernel: str) -> str:
    return (
        f"Pods of runtime class {check.runtime_class!r} must run in gVisor, but the "
        f"canary found the kernel {kernel or '(unknown)'}; correct the handler of the "
        "RuntimeClass, or take it off settings.podTemplate.sandboxedRuntimeClassNames"
    )


def _wake_at(
    seen: ObservedCanary, check: CanaryCheck, known: CanaryMemory, now: float
) -> float | None:
    times = [known.next_at, _hopeless_at(seen, known)]
    if known.since is not None:
        times.append(known.since + check.timeout_seconds)
    return min((at for at in times if now < at < math.inf), default=None)


def _cannot_start(view: PodView) -> bool:
    """Return whether a probing Pod has a node that has no sandbox for it or refuses its container.

    A Pod that waits for a node or an image says nothing of what the node can do.
    """
    container = view.containers.get(PROBE)
    is_refused = container is not None and container.waiting_reason in CONTAINER_WAITS
    return view.without_sandbox_since is not None or is_refused


def probe_answer(view: PodView) -> CanaryAnswer | None:
    """Return what a probing Pod found, or None when it has not, or broke."""
    container = view.containers.get(PROBE)
    if container is None or container.terminated is None or container.terminated.exit_code != 0:
        return None
    message = container.terminated.message
    try:
        fields = decode(message)
    except BadMessageError:
        return None
    targets, seconds = fields.get("targets"), fields.get("seconds")
    if not isinstance(targets, Mapping):
        return None
    states = {str(name): str(state) for name, state in targets.items()}
    told = float(seconds) if isinstance(seconds, int | float) else None
    return CanaryAnswer(states, kernel_release(message), view.facts.user_namespace, told)


def quiet_seconds(answers: Mapping[Role, CanaryAnswer]) -> float:
    """Return how long a canary has to listen, as far as the control says."""
    control = answers.get(Role.CONTROL)
    return MARGIN * control.seconds if control is not None and control.seconds is not None else 0.0


def cluster_facts(found: IsolationResult | None, gateway: str, process_limit: int) -> ClusterFacts:
    """Return what the cluster has told of a run so far.

    Args:
        found: What the canary found, or None before that.
        gateway: Address of the run's gateway, or empty.
        process_limit: Processes of a Pod with a user namespace.
    """
    if found is None or not found.user_namespaces:
        return ClusterFacts(gateway, PodUserNamespaces.OFF, 0)
    return ClusterFacts(gateway, PodUserNamespaces.ON, process_limit)


def judge(
    control: Mapping[str, str],
    canary: Mapping[str, str],
    *,
    user_namespaces: bool,
    has_gateway: bool = False,
    node: Sequence[ProbeTarget] = (),
    is_node_allowed: bool = False,
) -> IsolationResult:
    """Compare what the control reached with what the canary reached.

    Args:
        control: State by target without the policy.
        canary: State by target with the policy.
        user_namespaces: Whether the canary had a user namespace.
        has_gateway: Whether the run has a gateway, the only target that the canary must reach.
        node: The targets of the node.
        is_node_allowed: Whether the canary may reach these.

    Returns:
        The finding; ``verified`` only where at least one target answered the control alone and none
        answered the canary but those of the node that may, and where the run's gateway, if it has
        one, did.
    """
    at_node = [target for target in node if canary.get(target.name) == OPEN]
    names = {target.name for target in at_node}
    may_open = names if is_node_allowed else set()
    must_open = {GATEWAY_TARGET} if has_gateway else set()
    proven = sorted({name for name, state in control.items() if state == OPEN} - may_open)
    must_close = {*canary, *proven} - must_open - may_open
    reached = sorted(name for name in must_close if canary.get(name, "not probed") != CLOSED)
    problem = ""
    if reached:
        policies = "the run's policies" if has_gateway else "the deny-all policy"
        advice = NODE_ADVICE if names.issuperset(reached) else ""
        problem = f"a Pod under {policies} reached: {', '.join(reached)}{advice}"
    elif any(canary.get(name) != OPEN for name in must_open):
        problem = "a Pod of the run did not reach the run's gateway"
    elif not proven:
        problem = "no target answered without the policy, so closed targets prove nothing"
    unproven = sorted({*control}.difference(proven, may_open))
    return IsolationResult(
        verified=not problem,
        user_namespaces=user_namespaces,
        message=problem or _proof(proven, unproven, at_node, has_gateway=has_gateway),
        node_reachable=bool(at_node),
    )


def _proof(
    proven: Sequence[str],
    unproven: Sequence[str],
    at_node: Sequence[ProbeTarget],
    *,
    has_gateway: bool,
) -> str:
    """Return the sentence of a run whose Pods are cut off."""
    parts = [f"closed: {', '.join(proven)}"]
    if has_gateway:
        parts.append("open: gateway")
    if at_node:
        places = ", ".join(f"{target.name} ({target.authority})" for target in at_node)
        parts.append(f"open on the node, which spec.isolation.allow accepts: {places}")
    if unproven:
        parts.append(f"unproven (do not answer without the policy either): {', '.join(unproven)}")
    return "; ".join(parts)
