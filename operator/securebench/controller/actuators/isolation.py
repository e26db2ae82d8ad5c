"""Proves, before the first task, that the run's Pods reach nothing (design 2, 6)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw
from securebench.controller.actuators.pod_mirror import PodMirror
from securebench.controller.loop.desired_state import DesiredState
from securebench.controller.process.context import Context
from securebench.controller.process.settings import UserNamespaces as UserNamespaceSetting
from securebench.controller.reporting.obstacles import CANARY_WORDS, canary_words, while_telling
from securebench.controller.reporting.publish import Publisher
from securebench.core.clock import Clock
from securebench.core.errors import TransientClusterError
from securebench.protocol.messages import CLOSED, OPEN
from securebench.run.api.conditions import Reason
from securebench.run.layout import probe_name
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import CONTAINER_WAITS
from securebench.run.observe.termination import BadMessageError, decode, kernel_release
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan
from securebench.run.pods.canary import GATEWAY_TARGET, ProbeTarget, canary_pod, control_pod
from securebench.run.records.labels import Runtime, runtime_of
from securebench.run.state.entries import Isolated

logger = logging.getLogger(__name__)

START_SECONDS = 30.0
"""A canary with a user namespace that its node could not start for so long cannot start at all."""

POLL_SECONDS = 0.2

NO_CANARY = Isolated(
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
class IsolationCheck:
    """What to prove and how long it may take.

    Attributes:
        targets: What no Pod of a run may reach.
        user_namespaces: The operator's setting.
        timeout_seconds: For the whole check.
        must_be_sandboxed: Whether the administrator requires a sandbox of the run's runtime class.
        is_node_allowed: Whether targets of the node may be reached all the same.
    """

    targets: Sequence[ProbeTarget]
    user_namespaces: UserNamespaceSetting
    timeout_seconds: float
    must_be_sandboxed: bool = False
    is_node_allowed: bool = False


def isolation_check(context: Context, plan: RunPlan, desired: DesiredState) -> IsolationCheck:
    """Return what to prove for a run."""
    settings = context.settings
    sandboxed = settings.pod_template.sandboxed_runtime_class_names
    return IsolationCheck(
        context.targets,
        settings.user_namespaces,
        settings.canary.timeout_seconds,
        must_be_sandboxed=plan.pods.runtime_class in sandboxed,
        is_node_allowed=desired.is_node_allowed,
    )


async def probed(
    context: Context, desired: DesiredState, mirror: PodMirror, publisher: Publisher, plan: RunPlan
) -> Isolated:
    """Find out how far the run's Pods are cut off, and say meanwhile what that waits for."""
    check = isolation_check(context, plan, desired)
    if desired.is_isolation_declared and not check.must_be_sandboxed:
        return NO_CANARY
    prober = Prober(context.cluster, plan, mirror, context.clock)

    async def tell() -> None:
        await publisher.announce(Reason.PROBING, prober.words())

    return await while_telling(prober.prove(check), tell)


class CanaryAnswer(NamedTuple):
    """What a probing Pod found.

    Attributes:
        states: State by target.
        kernel: Release of the kernel below it, or empty.
    """

    states: Mapping[str, str]
    kernel: str


class Prober:
    """Runs the canary and the control Pod of one run.

    Args:
        cluster: The run's namespace.
        plan: The run.
        mirror: Shows the run's Pods.
        clock: For the time limit.
    """

    def __init__(self, cluster: Cluster, plan: RunPlan, mirror: PodMirror, clock: Clock) -> None:
        self._cluster = cluster
        self._plan = plan
        self._mirror = mirror
        self._clock = clock

    def words(self) -> str:
        """Return what is waited for."""
        words = canary_words(self._mirror.pods.values(), self._clock.now())
        return f"{CANARY_WORDS}: {words}" if words else CANARY_WORDS

    async def prove(self, check: IsolationCheck) -> Isolated:
        """Probe and decide; the probing Pods are deleted afterwards.

        Args:
            check: What to prove.

        Returns:
            The finding; ``verified`` only where at least one target answered the control alone and
            none answered the canary but those of the node that may, where the run's gateway, if it
            has one, did, and where a required sandbox was seen.
        """
        try:
            async with asyncio.timeout(check.timeout_seconds):
                return await self._prove(check)
        except TimeoutError:
            message = f"no answer within {check.timeout_seconds:g} seconds: {self.words()}"
            return self._refused(check, message)
        finally:
            await self._clean()

    async def _prove(self, check: IsolationCheck) -> Isolated:
        control = asyncio.create_task(
            self._run(control_pod(self._plan, 1, check.targets), Role.CONTROL, 1)
        )
        try:
            answer, namespaced = await self._canary(check)
            if answer is None:
                message = "Pods with a user namespace do not start here, and the setting is Require"
                return self._refused(check, message)
            if check.must_be_sandboxed and runtime_of(answer.kernel) is not Runtime.GVISOR:
                return self._refused(check, self._no_sandbox(answer.kernel))
            found = await control
            return judge(
                found.states,
                answer.states,
                user_namespaces=namespaced,
                has_gateway=self._plan.egress is not None,
                node=[target for target in check.targets if target.is_node],
                is_node_allowed=check.is_node_allowed,
            )
        finally:
            control.cancel()

    @staticmethod
    def _refused(check: IsolationCheck, message: str) -> Isolated:
        return Isolated(
            verified=False,
            user_namespaces=False,
            message=message,
            sandboxed=not check.must_be_sandboxed,
        )

    def _no_sandbox(self, kernel: str) -> str:
        return (
            f"Pods of runtime class {self._plan.pods.runtime_class!r} must run in gVisor, but the "
            f"canary found the kernel {kernel or '(unknown)'}; correct the handler of the "
            "RuntimeClass, or take it off settings.podTemplate.sandboxedRuntimeClassNames"
        )

    async def _canary(self, check: IsolationCheck) -> tuple[CanaryAnswer | None, bool]:
        setting = check.user_namespaces
        if setting is not UserNamespaceSetting.NEVER:
            body = canary_pod(self._plan, 1, check.targets, PodUserNamespaces.ON)
            answer = await self._try(body, Role.CANARY, 1, may_not_start=True)
            if answer is not None or setting is UserNamespaceSetting.REQUIRE:
                return answer, True
        body = canary_pod(self._plan, 2, check.targets, PodUserNamespaces.OFF)
        return await self._run(body, Role.CANARY, 2), False

    async def _run(self, body: Raw, role: Role, number: int) -> CanaryAnswer:
        """Run one probing Pod that has to give an answer.

        Raises:
            TransientClusterError: It broke or went away; that is no finding.
        """
        answer = await self._try(body, role, number)
        if answer is None:
            raise TransientClusterError(f"the {role.value} Pod ended without an answer")
        return answer

    async def _try(
        self, body: Raw, role: Role, number: int, *, may_not_start: bool = False
    ) -> CanaryAnswer | None:
        """Run one probing Pod; None when it breaks, or when it may fail to start and does."""
        try:
            self._mirror.saw(await self._cluster.create(ObjectKind.POD, body))
        except AlreadyExists:
            logger.debug("probe %s %d exists", role, number)
        name = probe_name(self._plan.identity.uid, role, number)
        stuck_since: float | None = None
        while True:
            view = self._mirror.pods.get(name)
            if view is not None and view.is_terminal:
                return probe_answer(view)
            if name in self._mirror.vanished:
                raise TransientClusterError(f"Pod {name} went away before it gave an answer")
            now = self._clock.now()
            if view is None or not cannot_start(view):
                stuck_since = None
            elif stuck_since is None:
                stuck_since = now
            elif may_not_start and now - stuck_since > START_SECONDS:
                return None
            await asyncio.sleep(POLL_SECONDS)

    async def _clean(self) -> None:
        for view in list(self._mirror.pods.values()):
            if view.role in {Role.CANARY, Role.CONTROL}:
                await self._cluster.delete(ObjectKind.POD, view.name, uid=view.uid, grace_seconds=1)


def cannot_start(view: PodView) -> bool:
    """Return whether a probing Pod has a node that has no sandbox for it or refuses its container.

    A Pod that waits for a node or an image says nothing of what the node can do.
    """
    container = view.containers.get("probe")
    is_refused = container is not None and container.waiting_reason in CONTAINER_WAITS
    return view.without_sandbox_since is not None or is_refused


def probe_answer(view: PodView) -> CanaryAnswer | None:
    """Return what a probing Pod found, or None when it broke."""
    container = view.containers.get("probe")
    if container is None or container.terminated is None or container.terminated.exit_code != 0:
        return None
    message = container.terminated.message
    try:
        targets = decode(message).get("targets")
    except BadMessageError:
        return None
    if not isinstance(targets, Mapping):
        return None
    states = {str(name): str(state) for name, state in targets.items()}
    return CanaryAnswer(states, kernel_release(message))


def judge(
    control: Mapping[str, str],
    canary: Mapping[str, str],
    *,
    user_namespaces: bool,
    has_gateway: bool = False,
    node: Sequence[ProbeTarget] = (),
    is_node_allowed: bool = False,
) -> Isolated:
    """Compare what the control reached with what the canary reached.

    Args:
        control: State by target without the policy.
        canary: State by target with the policy.
        user_namespaces: Whether the canary had a user namespace.
        has_gateway: Whether the run has a gateway, the only target that the canary must reach.
        node: The targets of the node.
        is_node_allowed: Whether the canary may reach these.
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
    return Isolated(
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
