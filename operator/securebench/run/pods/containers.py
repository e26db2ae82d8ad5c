"""The containers from which launch Pods are put together: command lines, specifications, manifests.

Source: docs/reference/protocol.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from securebench.protocol.candidate import KINDS, CandidateBounds
from securebench.protocol.messages import encode_spec
from securebench.protocol.supervise import SOURCES, CourierSpec, RunSpec, SealSpec, StreamsSpec
from securebench.run import layout
from securebench.run.artifacts import Given, Part, Taken, TaskPrograms
from securebench.run.pods import volumes
from securebench.run.pods.frame import TASK_IMAGE_PULL_POLICY, Manifest, trusted, untrusted
from securebench.run.pods.volumes import tail_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from securebench.protocol.supervise import SuperviseSpec
    from securebench.run.plan.environment import Environment
    from securebench.run.plan.model import ClusterFacts, LaunchKey, PodPolicy, RunPlan, TaskPlan
    from securebench.run.pods.frame import PodMount

PYTHON = "python3"
POD_SUPERVISE = "/usr/local/bin/supervise"
"""In our Pod image; task images get a copy of it."""

ROOT = 0
ROOT_NAMES = frozenset({"root", str(ROOT)})
"""Names that this user has in every image."""

BECOMING = ("SETUID", "SETGID")
"""With which supervise becomes another user, for good, before the first command; no command has
them. Pod Security level *baseline* allows them, *restricted* does not."""

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
    left_out = SOURCES[task.extraction.mode].excluded or tuple(exclude)
    return CourierSpec(bounds, SealSpec(task.extraction, limit, left_out, is_live))


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
    mounts: Sequence[PodMount]


def courier(policy: PodPolicy, job: CourierJob) -> Manifest:
    """Return the native sidecar that is there first and keeps the results last."""
    mounts = (
        volumes.mount(volumes.OUTPUT, layout.COURIER_OUTPUT, read_only=True),
        *job.mounts,
    )
    resources = volumes.container_resources(volumes.COURIER_REQUESTS, volumes.COURIER_LIMITS)
    container = trusted_container(policy, layout.COURIER, resources, mounts)
    container["restartPolicy"] = "Always"
    given = [each for each in job.mounts if isinstance(each, Given)]
    container["command"] = supervise_argv(POD_SUPERVISE, policy.medium.courier(job.spec, given))
    return container


def verifier_courier(
    plan: RunPlan, launch: LaunchKey, folders: Sequence[str] = (), mounts: Sequence[PodMount] = ()
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
    policy: PodPolicy, name: str, resources: Manifest, mounts: Sequence[PodMount]
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
        environment: Its image, its limits, and whether its root can be written.
        mounts: Besides our programs and /dev/shm; their sizes are part of its limits.
        shared_memory: Whose /dev/shm it gets; empty for its own.
        capabilities: Added for a check, or for supervise itself.
        user: User and group of supervise; None for the image's own. Of an environment with a user
            of its own it is root, which becomes that user.
        ended: Containers that ran to their end before: the disk that they took counts as its own.
    """

    name: str
    environment: Environment
    mounts: Sequence[PodMount]
    shared_memory: str = ""
    capabilities: Sequence[str] = ()
    user: int | None = None
    ended: Sequence[TaskContainer] = ()

    def storage_bytes(self, policy: PodPolicy) -> int:
        """Return what its volumes and roots may hold on the node's disk."""
        everyone = (self, *self.ended)
        own = {
            mount.volume["name"]: mount.size_bytes
            for each in everyone
            for mount in each.mounts
            if isinstance(mount, volumes.OwnVolume)
        }
        roots = sum(volumes.root_bytes(policy, each.environment) for each in everyone)
        return sum(own.values()) + roots + volumes.MARGIN_BYTES


def task_container(policy: PodPolicy, container: TaskContainer, spec: SuperviseSpec) -> Manifest:
    """Return a container of the task image in which supervise does what ``spec`` says.

    It starts in ``/`` where the environment has a working folder: the image's own may be missing,
    supervise enters the right one.
    """
    environment, capabilities, user = container.environment, container.capabilities, container.user
    if environment.user and isinstance(spec, RunSpec):
        user = ROOT
        if environment.user not in ROOT_NAMES:
            spec = replace(spec, user=environment.user)
            capabilities = (*capabilities, *BECOMING)
    return {
        "name": container.name,
        "image": environment.image,
        "imagePullPolicy": TASK_IMAGE_PULL_POLICY,
        "command": supervise_argv(layout.SUPERVISE, spec),
        **({"workingDir": "/"} if environment.workdir else {}),
        "resources": volumes.task_resources(
            policy, environment.limits, container.storage_bytes(policy)
        ),
        "volumeMounts": [
            *container.mounts,
            Taken(TaskPrograms(policy.tools), layout.TOOLS),
            volumes.shared_memory(container.shared_memory or container.name),
        ],
        "securityContext": untrusted(
            read_only_root=not environment.writable_root,
            capabilities=capabilities,
            user=user,
        ),
        **TERMINATION,
    }
