"""The containers from which launch Pods are put together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.run import layout
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import POD_SUPERVISE, collect_spec, supervise_argv
from securebench.run.pods.parts.frame import TASK_IMAGE_PULL_POLICY, Manifest
from securebench.run.pods.parts.security import trusted, untrusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.protocol.supervise import CollectSpec, SealSpec, SuperviseSpec
    from securebench.run.plan.model import LaunchKey, PodPolicy, RunPlan

TERMINATION = {"terminationMessagePolicy": "File"}
"""Without the fallback to logs: those are untrusted text."""


@dataclass(frozen=True, slots=True)
class CourierJob:
    """What the courier of a launch does.

    Attributes:
        spec: Its specification.
        mounts: Sub-paths of the results volume and the workspace, where it needs it.
    """

    spec: SealSpec | CollectSpec
    mounts: Sequence[Manifest]


def courier(policy: PodPolicy, job: CourierJob) -> Manifest:
    """Return the native sidecar that is there first and keeps the results last."""
    mounts = (
        volumes.mount(volumes.OUTPUT, layout.COURIER_OUTPUT, read_only=True),
        *job.mounts,
    )
    resources = sizes.container_resources(sizes.COURIER_REQUESTS, sizes.COURIER_LIMITS)
    container = trusted_container(policy, layout.COURIER, resources, mounts)
    container["restartPolicy"] = "Always"
    container["command"] = supervise_argv(POD_SUPERVISE, job.spec)
    return container


def verifier_courier(
    plan: RunPlan, launch: LaunchKey, folders: Sequence[str] = (), mounts: Sequence[Manifest] = ()
) -> Manifest:
    """Return the courier of a verifier Pod, which collects what the verifier writes.

    Args:
        plan: The run.
        launch: The verifier's.
        folders: Made at once for containers that wait for them, relative to its root.
        mounts: Where they are.
    """
    verification = volumes.mount(
        volumes.RESULTS,
        layout.COURIER_VERIFICATION,
        sub_path=f"{layout.launch_folder(plan.identity.uid, launch)}/{layout.VERIFICATION_NAME}",
    )
    return courier(plan.pods, CourierJob(collect_spec(plan, folders), [verification, *mounts]))


def trusted_container(
    policy: PodPolicy, name: str, resources: Manifest, mounts: Sequence[Manifest]
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
        tools: Mount of our programs.
        mounts: Besides tools and /dev/shm.
        shared_memory: Whose /dev/shm it gets.
        read_only_root: Whether only mounts can be written.
        capabilities: Added for a check, or for supervise itself.
        user: User and group; None for the image's own.
    """

    name: str
    image: str
    resources: Manifest
    tools: Manifest
    mounts: Sequence[Manifest]
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
