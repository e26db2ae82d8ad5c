"""Converts raw Pods into PodView, the input of decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from securebench.clock import seconds_since_epoch
from securebench.json_values import object_at, text_at
from securebench.names import (
    ATTEMPT_ANNOTATION,
    LAUNCH_ANNOTATION,
    MEMBERS_ANNOTATION,
    QUEUE_LABEL,
    ROLE_LABEL,
    TASK_INDEX_ANNOTATION,
)
from securebench.run.layout import CHECK, CONTROL_CHECK, HARNESS, PROBE, VERIFIER
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import PodFacts

Raw = Mapping[str, object]

KUBELETS_SECONDS = 45.0
"""After an API server was away, until kubelets have told what became of their Pods meanwhile.

Decision 0097 measured up to 41 s; a list before shows Pods as they were."""


@dataclass(frozen=True, slots=True)
class Terminated:
    """The end of a container as the kubelet reports it.

    Attributes:
        exit_code: From 0 to 255.
        reason: ``Completed``, ``Error``, ``OOMKilled`` …
        message: The termination message.
        started_at: Seconds since the epoch, or None.
        finished_at: Seconds since the epoch, or None.
    """

    exit_code: int
    reason: str
    message: str
    started_at: float | None
    finished_at: float | None


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container of a Pod.

    Attributes:
        waiting_reason: Why it does not run yet, or empty.
        waiting_message: The kubelet's message, or empty.
        running: Whether it runs.
        terminated: How it ended, or None.
        restarts: How often it was started again.
        image_id: Resolved image, or empty.
        previous: How it ended before it was started again, or None.
        image: As the Pod names it, or empty.
        started_at: Since when it runs, seconds since the epoch, or None.
        requests: Its resource requests, by name.
        limits: Its resource limits, by name.
    """

    name: str
    waiting_reason: str
    waiting_message: str
    running: bool
    terminated: Terminated | None
    restarts: int
    image_id: str
    previous: Terminated | None = None
    image: str = ""
    started_at: float | None = None
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodView:
    """One Pod of a run.

    Attributes:
        role: What it is for.
        launch: Its launch, None for canary and control Pods; the first one of a batch.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``.
        reason: The Pod's own reason such as ``Evicted``.
        message: The Pod's own message.
        deleting_since: When its deletion was asked for plus its grace, or None.
        disrupted: Whether the cluster or a queue ends it (``DISRUPTIONS``).
        unschedulable: The scheduler's message, or empty.
        without_sandbox_since: When the Pod got a node on which it has no sandbox yet, or None.
        created_at: Seconds since the epoch.
        containers: By name, init containers and sidecars included.
        facts: For the record; of the untrusted container.
        is_ready: Whether its condition Ready says so; a lost node takes it away.
        has_silent_node: Whether its node does not answer: Ready was taken away from a Pod whose
            containers were ready when the kubelet reported last.
        sandbox_since: When the Pod got its sandbox, seconds since the epoch, or None.
        members: The launches of a batch; empty for a Pod with one launch.
        scheduled_at: When the Pod got its node, seconds since the epoch, or None.
        gates: Names of its scheduling gates; the scheduler ignores the Pod until all are gone.
        queue: Name of the queue that it is in, or empty; it says nothing of whether it waits there.
        taken_back: Why a queue takes its place back, or empty.
        volume_images: Images of its volumes, which are pulled before its containers begin.
    """

    name: str
    uid: str
    role: Role
    launch: LaunchKey | None
    phase: str
    reason: str
    message: str
    deleting_since: float | None
    disrupted: bool
    unschedulable: str
    without_sandbox_since: float | None
    created_at: float
    containers: Mapping[str, ContainerView]
    facts: PodFacts
    is_ready: bool = False
    has_silent_node: bool = False
    sandbox_since: float | None = None
    members: tuple[LaunchKey, ...] = ()
    scheduled_at: float | None = None
    gates: tuple[str, ...] = ()
    queue: str = ""
    taken_back: str = ""
    volume_images: tuple[str, ...] = ()

    @property
    def launches(self) -> tuple[LaunchKey, ...]:
        """All launches that the Pod is for."""
        return self.members or ((self.launch,) if self.launch is not None else ())

    @property
    def is_terminal(self) -> bool:
        """Whether the kubelet has ended the Pod."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_living(self) -> bool:
        """Whether the Pod runs or may come to run: it has not ended, and nobody deletes it."""
        return not self.is_terminal and self.deleting_since is None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the Pod runs any more.

        The kubelet reports the end of the last container before that of the Pod, which follows
        within some seconds.
        """
        containers = self.containers.values()
        is_over = bool(containers) and all(each.terminated is not None for each in containers)
        return self.is_terminal or is_over


@dataclass(frozen=True, slots=True)
class ObjectView:
    """One object of a run that is no Pod.

    Attributes:
        created_at: Seconds since the epoch.
        address: Address of a Service inside the cluster, else empty.
        spec: Its content.
    """

    name: str
    created_at: float
    address: str = ""
    uid: str = ""
    spec: Raw = field(default_factory=dict)


TAKEN_BACK = "TerminationTarget"
"""Condition that Kueue writes before it deletes a Pod, for instance one that it has preempted."""

DISRUPTIONS = ("DisruptionTarget", TAKEN_BACK)
"""Conditions of a Pod that is ended from outside."""

MEMBER_NUMBERS = 3
"""In a name of ``MEMBERS_ANNOTATION``."""

MAIN_CONTAINERS = (HARNESS, CHECK, VERIFIER, PROBE, CONTROL_CHECK)


def object_view(raw: Raw) -> ObjectView:
    """Turn a raw object into a view.

    Args:
        raw: A NetworkPolicy or a Service as JSON.
    """
    metadata = object_at(raw, "metadata")
    spec = object_at(raw, "spec")
    address = text_at(spec, "clusterIP")
    return ObjectView(
        name=text_at(metadata, "name"),
        created_at=_time(metadata.get("creationTimestamp")) or 0.0,
        address=address if address != "None" else "",
        uid=text_at(metadata, "uid"),
        spec=spec,
    )


def pod_view(raw: Raw) -> PodView | None:
    """Turn a raw Pod into a view; None for a Pod that is not ours."""
    metadata = object_at(raw, "metadata")
    labels, annotations = object_at(metadata, "labels"), object_at(metadata, "annotations")
    role = _role(text_at(labels, ROLE_LABEL))
    if role is None:
        return None
    status = object_at(raw, "status")
    spec = object_at(raw, "spec")
    conditions = {text_at(c, "type"): c for c in _items(status, "conditions")}
    scheduled = conditions.get("PodScheduled", {})
    containers = _containers(spec, status)
    is_ready = _is_true(conditions.get("Ready", {}))
    return PodView(
        name=text_at(metadata, "name"),
        uid=text_at(metadata, "uid"),
        role=role,
        launch=_launch(annotations, role),
        phase=text_at(status, "phase") or "Pending",
        reason=text_at(status, "reason"),
        message=text_at(status, "message"),
        deleting_since=_time(metadata.get("deletionTimestamp")),
        disrupted=any(_is_true(conditions.get(name, {})) for name in DISRUPTIONS),
        unschedulable=_unschedulable(scheduled),
        without_sandbox_since=_without_sandbox_since(conditions),
        created_at=_time(metadata.get("creationTimestamp")) or 0.0,
        containers=containers,
        facts=_facts(spec, containers),
        is_ready=is_ready,
        # No Pod of ours has a readiness gate.
        has_silent_node=not is_ready and _is_true(conditions.get("ContainersReady", {})),
        sandbox_since=_true_since(conditions.get("PodReadyToStartContainers", {})),
        members=_members(annotations, role),
        scheduled_at=_true_since(scheduled),
        gates=tuple(text_at(gate, "name") for gate in _items(spec, "schedulingGates")),
        queue=text_at(labels, QUEUE_LABEL),
        taken_back=_taken_back(conditions.get(TAKEN_BACK, {})),
        volume_images=_volume_images(spec),
    )


def _volume_images(spec: Raw) -> tuple[str, ...]:
    images = (object_at(volume, "image") for volume in _items(spec, "volumes"))
    return tuple(text_at(image, "reference") for image in images if image)


def _facts(spec: Raw, containers: Mapping[str, ContainerView]) -> PodFacts:
    found = [containers[name] for name in MAIN_CONTAINERS if name in containers]
    main = max(found, key=lambda container: bool(container.image_id), default=None)
    ended = main.terminated if main is not None else None
    return PodFacts(
        image_id=main.image_id if main is not None else "",
        node=text_at(spec, "nodeName"),
        runtime_class=text_at(spec, "runtimeClassName"),
        user_namespace=spec.get("hostUsers") is False,
        started_at=ended.started_at if ended is not None else None,
        finished_at=ended.finished_at if ended is not None else None,
    )


def _containers(spec: Raw, status: Raw) -> Mapping[str, ContainerView]:
    resources = {
        text_at(item, "name"): object_at(item, "resources")
        for part in ("initContainers", "containers")
        for item in _items(spec, part)
    }
    views = (
        _container(item, resources.get(text_at(item, "name"), {}))
        for part in ("initContainerStatuses", "containerStatuses")
        for item in _items(status, part)
    )
    return {view.name: view for view in views}


def _container(raw: Raw, resources: Raw) -> ContainerView:
    state = object_at(raw, "state")
    waiting = object_at(state, "waiting")
    return ContainerView(
        name=text_at(raw, "name"),
        waiting_reason=text_at(waiting, "reason"),
        waiting_message=text_at(waiting, "message"),
        running="running" in state,
        terminated=_terminated(object_at(state, "terminated")),
        restarts=_number(raw, "restartCount"),
        image_id=text_at(raw, "imageID"),
        previous=_terminated(object_at(object_at(raw, "lastState"), "terminated")),
        image=text_at(raw, "image"),
        started_at=_time(object_at(state, "running").get("startedAt")),
        requests=_quantities(resources, "requests"),
        limits=_quantities(resources, "limits"),
    )


def _quantities(resources: Raw, key: str) -> Mapping[str, str]:
    return {name: str(amount) for name, amount in object_at(resources, key).items()}


def _terminated(raw: Raw) -> Terminated | None:
    if not raw:
        return None
    return Terminated(
        exit_code=_number(raw, "exitCode"),
        reason=text_at(raw, "reason"),
        message=text_at(raw, "message"),
        started_at=_time(raw.get("startedAt")),
        finished_at=_time(raw.get("finishedAt")),
    )


def _unschedulable(condition: Raw) -> str:
    if text_at(condition, "status") == "False" and text_at(condition, "reason") == "Unschedulable":
        return text_at(condition, "message")
    return ""


def _without_sandbox_since(conditions: Mapping[str, Raw]) -> float | None:
    scheduled = conditions.get("PodScheduled", {})
    sandbox = conditions.get("PodReadyToStartContainers", {})
    if text_at(scheduled, "status") != "True" or text_at(sandbox, "status") != "False":
        return None
    return _time(scheduled.get("lastTransitionTime"))


def _is_true(condition: Raw) -> bool:
    return text_at(condition, "status") == "True"


def _taken_back(condition: Raw) -> str:
    if not _is_true(condition):
        return ""
    return ": ".join(filter(None, (text_at(condition, "reason"), text_at(condition, "message"))))


def _true_since(condition: Raw) -> float | None:
    if not _is_true(condition):
        return None
    return _time(condition.get("lastTransitionTime"))


def _launch(annotations: Raw, role: Role) -> LaunchKey | None:
    numbers = [text_at(annotations, a) for a in (TASK_INDEX_ANNOTATION, ATTEMPT_ANNOTATION)]
    launch = text_at(annotations, LAUNCH_ANNOTATION)
    if not all(number.isdecimal() for number in (*numbers, launch)):
        return None
    return LaunchKey(int(numbers[0]), int(numbers[1]), role, int(launch))


def _members(annotations: Raw, role: Role) -> tuple[LaunchKey, ...]:
    names = [name.split("-") for name in text_at(annotations, MEMBERS_ANNOTATION).split()]
    if not all(len(name) == MEMBER_NUMBERS and all(map(str.isdecimal, name)) for name in names):
        return ()
    return tuple(LaunchKey(int(name[0]), int(name[1]), role, int(name[2])) for name in names)


def _role(text: str) -> Role | None:
    return Role(text) if text in set(Role) else None


def _time(value: object) -> float | None:
    return seconds_since_epoch(value) if isinstance(value, str) else None


def _items(raw: Raw, key: str) -> Sequence[Raw]:
    value = raw.get(key)
    if not isinstance(value, Sequence):
        return ()
    return [item for item in value if isinstance(item, Mapping)]


def _number(raw: Raw, key: str) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) else 0
