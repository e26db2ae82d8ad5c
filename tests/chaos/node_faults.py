"""What is done to runs on the local node, by the kind's name: to Pods, to objects, to daemons."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random

import yaml

from chaos.kit.node_run import NodeRun
from securebench.clock import rfc3339
from securebench.names import ROLE_LABEL
from support.node import Process, kill_process, restart_daemon
from support.release import CHART, OPERATOR, RELEASE, Raw, call, condition
from support.waiting import KUBECTL_TIMEOUT, until

Fault = Callable[[NodeRun, Random], None]

ATTEMPT_ROLES = ("harness", "verifier")
CRD = "benchmarkruns.securebench.dev"
COLUMN = {"name": "Chaos", "type": "string", "jsonPath": ".metadata.uid", "priority": 1}
FIELD = "chaos"
"""A field of spec that no version of the CustomResourceDefinition has."""


def kill_operator(run: NodeRun, _: Random) -> None:
    kill_process(lambda: run.own.pod_uid(OPERATOR), lambda process: process.has(b"operator"))


def evict_operator(run: NodeRun, _: Random) -> None:
    _evict(run, OPERATOR)
    run.own.kubectl("rollout", "status", f"statefulset/{RELEASE}", KUBECTL_TIMEOUT)


def upgrade_operator(run: NodeRun, random: Random) -> None:
    setting = f"settings.relistSeconds={random.randint(100, 999)}"
    words = ("upgrade", RELEASE, str(CHART), "-n", run.own.namespace, "--reuse-values")
    call("helm", *words, "--set", setting, "--wait", "--timeout=3m", seconds=240)


def delete_pod(run: NodeRun, random: Random) -> None:
    run.own.kubectl("delete", "pod", _chosen(run, random), "--wait=false")


def remove_pod(run: NodeRun, random: Random) -> None:
    words = ("--force", "--grace-period=0", "--wait=false")
    run.own.kubectl("delete", "pod", _chosen(run, random), *words)


def evict_pod(run: NodeRun, random: Random) -> None:
    _evict(run, _chosen(run, random))


def _chosen(run: NodeRun, random: Random) -> str:
    return str(run.running(random.choice(ATTEMPT_ROLES))["metadata"]["name"])


def _evict(run: NodeRun, pod: str) -> None:
    metadata = {"name": pod, "namespace": run.own.namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{run.own.namespace}/pods/{pod}/eviction"
    call("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body).encode())


def kill_sandbox(run: NodeRun, random: Random) -> None:
    """Kill the process that holds the namespaces of a running Pod."""
    _kill_in(run, random.choice(ATTEMPT_ROLES), lambda process: process.words == (b"/pause",))


def kill_courier(run: NodeRun, _: Random) -> None:
    _kill_in(run, "harness", lambda process: process.has(b"courier"))


def kill_gateway(run: NodeRun, _: Random) -> None:
    """Kill the gateway's process while agents read through it."""
    run.running("harness")
    _kill_in(run, "gateway", lambda process: process.has(b"securebench.gateway"))


def _kill_in(run: NodeRun, role: str, is_meant: Callable[[Process], bool]) -> None:
    kill_process(lambda: str(run.running(role)["metadata"]["uid"]), is_meant)


def fill_quota(run: NodeRun, _: Random) -> None:
    """Refuse new Pods until the run says so."""
    metadata = {"name": "chaos"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata}
    run.own.create({**quota, "spec": {"hard": {"pods": "1"}}})
    try:
        run.wait_for(lambda seen: condition(seen)["reason"] == "QuotaExceeded")
    finally:
        run.own.kubectl("delete", "resourcequota", "chaos")


def delete_policies(run: NodeRun, _: Random) -> None:
    """Delete the network policies of the run; they come back before its next Pod."""
    selector = f"securebench.dev/run={run.name}"
    run.own.kubectl("delete", "networkpolicies", "-l", selector)
    words = ("get", "networkpolicies", "-l", selector, "-o", "name")
    until(lambda: run.own.kubectl(*words), "the policies do not come back")


def delete_service(run: NodeRun, _: Random) -> None:
    selector = f"securebench.dev/run={run.name},{ROLE_LABEL}=gateway"
    run.own.kubectl("delete", "service", "-l", selector)


def change_crd(_run: NodeRun, _: Random) -> None:
    """Add a printer column or take it away: the API server ends all watches of the kind."""
    found: Raw = json.loads(call("kubectl", "get", "crd", CRD, "-o", "json"))
    columns = found["spec"]["versions"][0]["additionalPrinterColumns"]
    kept = [column for column in columns if column["name"] != COLUMN["name"]]
    changed = kept if len(kept) < len(columns) else [*columns, COLUMN]
    path = "/spec/versions/0/additionalPrinterColumns"
    patch = [{"op": "replace", "path": path, "value": changed}]
    call("kubectl", "patch", "crd", CRD, "--type=json", "-p", json.dumps(patch))


def upgrade_crd(_run: NodeRun, _: Random) -> None:
    """Apply a version with one more field in spec; the next time that of the chart, without it."""
    file = CHART / "crds" / "securebench.dev_benchmarkruns.yaml"
    crd: Raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    if FIELD not in _fields(json.loads(call("kubectl", "get", "crd", CRD, "-o", "json"))):
        _fields(crd)[FIELD] = {"type": "string"}
    words = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    call("kubectl", *words, stdin=json.dumps(crd).encode())


def _fields(crd: Raw) -> Raw:
    schema: Raw = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    fields: Raw = schema["properties"]["spec"]["properties"]
    return fields


def fill_volume(run: NodeRun, _: Random) -> None:
    with run.disk.filled():
        run.wait_for(_says_storage)


def freeze_volume(run: NodeRun, _: Random) -> None:
    with run.disk.frozen():
        run.wait_for(_says_storage)


def lock_volume(run: NodeRun, random: Random) -> None:
    """Make the volume read-only while the operator is away, and writable once it complains."""
    began = rfc3339(time.time())
    with run.disk.read_only(lambda: kill_operator(run, random)):
        words, complaint = ("logs", OPERATOR, f"--since-time={began}"), "Read-only file system"
        until(lambda: complaint in run.own.kubectl(*words), "nobody complains")


def _says_storage(seen: Raw) -> bool:
    return str(condition(seen)["reason"]) == "StorageUnavailable"


def cordon(run: NodeRun, _: Random) -> None:
    """Let the node take no Pods until the run says that one finds no node."""
    nodes = call("kubectl", "get", "nodes", "-o", "name").decode().split()
    call("kubectl", "cordon", *nodes)
    try:
        run.wait_for(lambda seen: condition(seen)["reason"] == "Unschedulable")
    finally:
        call("kubectl", "uncordon", *nodes)


def restart(name: str, seconds: float) -> Fault:
    """Return the fault that kills a daemon and starts it again after so many seconds."""

    def restarted(run: NodeRun, random: Random) -> None:
        run.running(random.choice(ATTEMPT_ROLES))
        restart_daemon(name, seconds)

    return restarted


NODE_FAULTS: dict[str, Fault] = {
    "node-operator-killed": kill_operator,
    "node-operator-evicted": evict_operator,
    "node-operator-upgraded": upgrade_operator,
    "node-pod-deleted": delete_pod,
    "node-pod-removed": remove_pod,
    "node-pod-evicted": evict_pod,
    "node-sandbox-killed": kill_sandbox,
    "node-courier-killed": kill_courier,
    "node-gateway-killed": kill_gateway,
    "node-service-deleted": delete_service,
    "node-policies-deleted": delete_policies,
    "node-quota": fill_quota,
    "node-crd-changed": change_crd,
    "node-crd-upgraded": upgrade_crd,
    "node-volume-full": fill_volume,
    "node-volume-frozen": freeze_volume,
    "node-volume-read-only": lock_volume,
}
DAEMON_FAULTS: dict[str, Fault] = {
    "node-cordoned": cordon,
    "daemon-kubelet": restart("kubelet", 5),
    "daemon-containerd": restart("containerd", 5),
    "daemon-cilium": restart("cilium-agent", 5),
    "daemon-kube-proxy": restart("kube-proxy", 5),
    "daemon-scheduler": restart("kube-scheduler", 20),
    "daemon-controller-manager": restart("kube-controller-manager", 5),
    "daemon-api-server": restart("kube-apiserver", 60),
}
