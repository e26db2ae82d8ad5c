"""The containers from which launch Pods are put together: command lines, specifications, manifests.

Source: docs/reference/protocol.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from securebench.protocol.candidate import KINDS, CandidateBounds
from securebench.protocol.messages import encode_spec
from securebench.protocol.supervise import CourierSpec, RunSpec, SealSpec, StreamsSpec
from securebench.run import layout
from securebench.run.artifacts import Part
from securebench.run.pods import volumes
from securebench.run.pods.frame import TASK_IMAGE_PULL_POLICY, Manifest, trusted, untrusted
from securebench.run.pods.volumes import tail_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from securebench.protocol.supervise import SuperviseSpec
    from securebench.run.artifacts import Mount, Taken
    from securebench.run.plan.model import ClusterFacts, LaunchKey, PodPolicy, RunPlan, TaskPlan

PYTHON = "python3"
POD_SUPERVISE = "/usr/local/bin/supervise"
"""In our Pod image; task images get a copy of it."""

PROBE_TIMEOUT_SECONDS = 20
"""How long supervise waits for the probes to be closed."""


def module_argv(module: str, spec: DataclassInstance) -> list[str]:
    """Return the command line of a module in our Pod image, ``grading.verify_text`` for one."""
    return [PYTHON, "-I", "-m", f"securebench.{module}", "--spec", encode_spec(spec)]


def supervise_argv(program: str, spec: SuperviseSpec) -> list[str]:
    """Return the command line of supervise.

    Args:
        program: Where it lies in the container.
        spec: What to do.
    """
    return [program, spec.verb, "--spec", encode_spec(spec)]


def base_spec(plan: RunPlan, facts: ClusterFacts, head: int) -> RunSpec:
    """Return what the specifications of every ``supervise run`` share.

    Args:
        plan: The run.
        facts: How many processes there may be.
        head: How much of the beginning of a stream is kept.
    """
    return RunSpec(
        streams=StreamsSpec(layout.OUTPUT, head, tail_bytes(plan.limits)),
        temporary=layout.TEMPORARY,
        probes=tuple(plan.pods.probes),
        probe_timeout_seconds=PROBE_TIMEOUT_SECONDS,
        max_processes=facts.max_processes,
    )


def seal_spec(plan: RunPlan, task: TaskPlan, exclude: Sequence[str]) -> CourierSpec:
    """Return the courier's job in a harness Pod.

    An agent's output can be watched, unless it may hold values that a tester exposes: these are
    taken out of whole texts only.

    Args:
        plan: The run.
        task: The task.
        exclude: Paths of the workspace that never belong to a candidate.
    """
    is_live = not plan.harness.env
    bounds = _bounds(plan)
    limit = KINDS[task.extraction.kind].limit(bounds)
    return CourierSpec(bounds, SealSpec(task.extraction, limit, tuple(exclude), is_live))


def _bounds(plan: RunPlan) -> CandidateBounds:
    """Return the bounds that the courier keeps: a record's length is none of them."""
    return CandidateBounds(
        **{each.name: getattr(plan.limits, each.name) for each in fields(CandidateBounds)}
    )


TERMINATION = {"terminationMessagePolicy": "File"}
"""Without the fallback to logs: those are untrusted text."""


@dataclass(frozen=True, slots=True)
class CourierJob:
    """What the courier of a launch does.

    Attributes:
        spec: Its specification.
        mounts: What it gives, and the workspace where it needs it.
    """

    spec: CourierSpec
    mounts: Sequence[Mount]


def courier(policy: PodPolicy, job: CourierJob) -> Manifest:
    """Return the native sidecar that is there first and keeps the results last."""
    mounts = (
        volumes.mount(volumes.OUTPUT, layout.COURIER_OUTPUT, read_only=True),
        *job.mounts,
    )
    resources = volumes.container_resources(volumes.COURIER_REQUESTS, volumes.COURIER_LIMITS)
    container = trusted_container(policy, layout.COURIER, resources, mounts)
    container["restartPolicy"] = "Always"
    container["command"] = supervise_argv(POD_SUPERVISE, job.spec)
    return container


def verifier_courier(
    plan: RunPlan, launch: LaunchKey, folders: Sequence[str] = (), mounts: Sequence[Mount] = ()
) -> Manifest:
    """Return the courier of a verifier Pod, which collects what the verifier writes.

    Args:
        plan: The run.
        launch: The verifier's.
        folders: Made at once for containers that wait for them, relative to its root.
        mounts: Where they are.
    """
    verification = volumes.part_mount(plan, launch, Part.VERIFICATION, layout.COURIER_VERIFICATION)
    spec = CourierSpec(_bounds(plan), folders=tuple(folders))
    return courier(plan.pods, CourierJob(spec, [verification, *mounts]))


def trusted_container(
    policy: PodPolicy, name: str, resources: Manifest, mounts: Sequence[Mount]
) -> Manifest:
    """Return a container of our Pod image, still without a command.

    Args:
        policy: Image and how it is pulled.
        name: Unique in the Pod.
        resources: Requests and limits.
        mounts: All of them; the Pod's /dev/shm is left to containers like this one.
    """
    return {
        "name": name,
        "image": policy.image,
        "imagePullPolicy": policy.image_pull_policy,
        "resources": resources,
        "volumeMounts": list(mounts),
        "securityContext": trusted(),
        **TERMINATION,
    }


@dataclass(frozen=True, slots=True)
class TaskContainer:
    """A container of the task image; supervise is its PID 1.

    Attributes:
        name: ``harness``, ``materialize`` or ``check``.
        image: Task image.
        resources: Requests and limits.
        tools: Our programs.
        mounts: Besides tools and /dev/shm.
        shared_memory: Whose /dev/shm it gets.
        read_only_root: Whether only mounts can be written.
        capabilities: Added for a check, or for supervise itself.
        user: User and group; None for the image's own.
    """

    name: str
    image: str
    resources: Manifest
    tools: Taken
    mounts: Sequence[Mount]
    shared_memory: str
    read_only_root: bool = True
    capabilities: Sequence[str] = ()
    user: int | None = None


def task_container(container: TaskContainer, spec: SuperviseSpec) -> Manifest:
    """Return a container of the task image in which supervise does what ``spec`` says.

    It starts in ``/``: the image's own working folder may be missing, supervise enters the right
    one.
    """
    return {
        "name": container.name,
        "image": container.image,
        "imagePullPolicy": TASK_IMAGE_PULL_POLICY,
        "command": supervise_argv(layout.SUPERVISE, spec),
        "workingDir": "/",
        "resources": container.resources,
        "volumeMounts": [
            *container.mounts,
            container.tools,
            volumes.shared_memory_mount(container.shared_memory),
        ],
        "securityContext": untrusted(
            read_only_root=container.read_only_root,
            capabilities=container.capabilities,
            user=container.user,
        ),
        **TERMINATION,
    }
