"""What becomes of Pods without their doing."""

from __future__ import annotations

from chaos.kit.registry import GATEWAY, LAUNCHES, RUNNING, WAITING, fault
from chaos.kit.scene import Moment, Scene
from securebench.clock import rfc3339
from securebench.cluster.port import ObjectKind
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import Role
from support.build import (
    DISRUPTED,
    UNSCHEDULABLE,
    ended,
    pod_status,
    waiting,
)

GOING = tuple(moment for moment in LAUNCHES if moment.stage != "ended")
CANARY = (Moment("canary", "created"), Moment("canary", "started"))
PREEMPTED = DISRUPTED | {"reason": "PreemptionByScheduler"}


@fault("pod-deleted", GOING)
def deleted(scene: Scene, view: PodView) -> None:
    scene.cluster.begin_deletion(view.name)


@fault("pod-removed", LAUNCHES)
def removed(scene: Scene, view: PodView) -> None:
    scene.cluster.remove(ObjectKind.POD, view.name)


@fault("canary-removed", CANARY)
def canary_removed(scene: Scene, view: PodView) -> None:
    scene.cluster.remove(ObjectKind.POD, view.name)


@fault("canary-evicted", CANARY)
def canary_evicted(scene: Scene, view: PodView) -> None:
    scene.report(view, pod_status("Failed", reason="Evicted", conditions=[DISRUPTED]))


@fault("pod-evicted", GOING)
def evicted(scene: Scene, view: PodView) -> None:
    scene.report(view, pod_status("Failed", reason="Evicted", conditions=[DISRUPTED]))


@fault("pod-preempted", GOING)
def preempted(scene: Scene, view: PodView) -> None:
    containers = (ended("courier", 143), ended(_main(view), 143))
    status = pod_status("Running", *containers, conditions=[PREEMPTED])
    scene.report(view, status)
    scene.cluster.begin_deletion(view.name)


@fault("node-lost", GOING)
def node_lost(scene: Scene, view: PodView) -> None:
    scene.report(view, pod_status("Failed", reason="NodeLost", conditions=[DISRUPTED]))


@fault("node-shut-down", GOING)
def node_shut_down(scene: Scene, view: PodView) -> None:
    status = pod_status("Failed", reason="NodeShutdown", conditions=[DISRUPTED])
    scene.report(view, status)


@fault("node-silent", RUNNING)
def node_silent(scene: Scene, view: PodView) -> None:
    """Delete a Pod whose node does not answer any more."""
    scene.cluster.begin_deletion(view.name)
    scene.held[view.name] = ({}, scene.clock.now() + 1000)
    scene.silent.add(view.name)


@fault("memory-of-the-courier", RUNNING)
def courier_killed(scene: Scene, view: PodView) -> object:
    if not scene.is_first(view):
        return False
    containers = (ended("courier", 137, "OOMKilled"), ended(_main(view), 0))
    if view.role is Role.VERIFIER:
        containers = (ended("verifier", 137, "OOMKilled"),)
    scene.report(view, pod_status("Failed", *containers))
    return True


@fault("image-late", WAITING)
def image_late(scene: Scene, view: PodView) -> None:
    words = "Back-off pulling image: dial tcp: i/o timeout"
    scene.hold(view, pod_status("Pending", waiting(_main(view), "ImagePullBackOff", words)), 40)


@fault("image-missing", WAITING)
def image_missing(scene: Scene, view: PodView) -> None:
    words = "rpc error: code = NotFound desc = failed to pull: not found"
    scene.hold(view, pod_status("Pending", waiting(_main(view), "ErrImagePull", words)), 1000)


@fault("image-away", WAITING)
def image_away(scene: Scene, view: PodView) -> None:
    words = "dial tcp: connection refused"
    scene.hold(view, pod_status("Pending", waiting(_main(view), "ImagePullBackOff", words)), 1000)


@fault("container-refused", WAITING)
def container_refused(scene: Scene, view: PodView) -> None:
    status = pod_status("Pending", waiting(_main(view), "CreateContainerError", "busy"))
    scene.hold(view, status, 1000)


@fault("container-late", WAITING)
def container_late(scene: Scene, view: PodView) -> None:
    status = pod_status("Pending", waiting(_main(view), "CreateContainerError", "busy"))
    scene.hold(view, status, 30)


def without_sandbox(scene: Scene, view: PodView, seconds: float) -> None:
    """Leave a Pod without a sandbox."""
    at = rfc3339(scene.clock.now())
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at},
        {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": at},
    ]
    containers = (waiting(_main(view), "ContainerCreating"),)
    status = pod_status("Pending", *containers, conditions=conditions)
    scene.hold(view, status, seconds)


@fault("sandbox-late", WAITING)
def sandbox_late(scene: Scene, view: PodView) -> None:
    without_sandbox(scene, view, 30)


@fault("sandbox-never", WAITING)
def sandbox_never(scene: Scene, view: PodView) -> None:
    without_sandbox(scene, view, 1000)


@fault("sandbox-killed", RUNNING)
def sandbox_killed(scene: Scene, view: PodView) -> None:
    """Stop the containers of a Pod as a kubelet does whose sandbox is gone: without a word."""
    halted = 96 if view.role is Role.HARNESS else 137
    containers = (ended("courier", 0, message=""), ended(_main(view), halted))
    scene.report(view, pod_status("Failed", *containers))


@fault("unschedulable", WAITING)
def unschedulable(scene: Scene, view: PodView) -> None:
    scene.hold(view, pod_status("Pending", conditions=[UNSCHEDULABLE]), 120)


@fault("gateway-killed", GATEWAY)
def gateway_killed(scene: Scene, _: PodView) -> None:
    for each in scene.views():
        if each.role is Role.GATEWAY and not each.is_terminal:
            scene.report(each, pod_status("Failed", ended("gateway", 137)))


@fault("gateway-deleted", GATEWAY)
def gateway_deleted(scene: Scene, _: PodView) -> None:
    for each in scene.views():
        if each.role is Role.GATEWAY:
            scene.cluster.remove(ObjectKind.POD, each.name)


@fault("service-deleted", GATEWAY)
def service_deleted(scene: Scene, _: PodView) -> None:
    for name in scene.cluster.objects(ObjectKind.SERVICE):
        scene.cluster.remove(ObjectKind.SERVICE, name)


@fault("policy-deleted")
def policy_deleted(scene: Scene, _: PodView) -> None:
    names = sorted(scene.cluster.objects(ObjectKind.NETWORK_POLICY))
    scene.cluster.lose_policy(scene.random.choice(names))


@fault("policy-opened")
def policy_opened(scene: Scene, _: PodView) -> None:
    names = sorted(scene.cluster.objects(ObjectKind.NETWORK_POLICY))
    scene.cluster.edit_policy(scene.random.choice(names))


@fault("status-wiped")
def status_wiped(scene: Scene, _: PodView) -> None:
    """Remove the status of the run as a careless tool would."""
    nothing = {"status": {"conditions": None, "tasks": None, "results": None}}
    with scene.fate.outside():
        scene.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", nothing)
    scene.later(0.0, lambda: scene.observe("MODIFIED"))


def _main(view: PodView) -> str:
    return "harness" if view.role is Role.HARNESS else "verifier"
