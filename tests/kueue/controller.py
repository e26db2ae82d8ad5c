"""Kueue's controller as a process of this machine, as tests/kueue/build.sh builds it.

It has the rights of Kueue's own service account. The API server reaches its webhooks as in an
installation, by their Service, which has this machine's address in the place of a Pod's. Its
Secret with their certificate is copied to a folder, as the kubelet mounts it for a Pod. Webhooks
and controller are narrowed to one namespace.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import yaml

from cluster.shell import api_server, kubeconfig
from support.release import Raw, call
from support.servers import answers, free_port, serving

BUILT = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "securebench" / "kueue"
LOG = BUILT / "controller.log"
SYSTEM = "kueue-system"
SERVICE = "kueue-webhook-service"
SECRET = "kueue-webhook-server-cert"
CERTIFICATE_FILES = ("ca.crt", "tls.key", "tls.crt")
START_SECONDS = 120
DELETE_SECONDS = 300
ACCOUNT = "kueue-controller-manager"
WEBHOOKS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
OWN_LABEL = "app.kubernetes.io/name=kueue"
KINDS = (
    "Namespace",
    "CustomResourceDefinition",
    "Secret",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
"""What of Kueue's installation is applied as it is."""

WATCHED = ("-kueue-x-k8s-io-", "--v1-pod")
"""In the paths of the webhooks of Kueue's own kinds and of Pods; those of other jobs stay out."""


def only(space: str) -> Raw:
    """Return a selector of one namespace."""
    return {"matchLabels": {"kubernetes.io/metadata.name": space}}


@contextmanager
def kueue(space: str, folder: Path) -> Iterator[None]:
    """Run Kueue for the Pods of a namespace; at the end everything of Kueue is deleted.

    Args:
        space: The namespace. Nothing of Kueue may be left in it at the end of the block.
        folder: For its files.
    """
    port, health = free_port(), f"127.0.0.1:{free_port()}"
    manifest, settings = folder / "kueue.yaml", folder / "kueue-settings.json"
    manifest.write_text(yaml.safe_dump_all(_installation(space, port)), encoding="utf-8")
    webhook = {"port": port, "certDir": str(folder)}
    settings.write_text(json.dumps(_settings(space, webhook, health)), encoding="utf-8")
    with ExitStack() as stack:
        delete = ("kubectl", "delete", "-f", str(manifest), "--ignore-not-found")
        stack.callback(call, *delete, seconds=DELETE_SECONDS)
        stack.callback(call, "kubectl", "delete", WEBHOOKS, "-l", OWN_LABEL)
        call("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(manifest))
        token = call("kubectl", "-n", SYSTEM, "create", "token", ACCOUNT, "--duration=1h")
        own = kubeconfig(folder / "kueue.kubeconfig", token=token.decode().strip())
        log = stack.enter_context(LOG.open("w", encoding="utf-8"))
        words = (str(BUILT / "bin" / "kueue"), f"--config={settings}")
        variables = {**os.environ, "KUBECONFIG": str(own)}
        is_ready = partial(_is_ready, folder, health)
        stack.enter_context(serving(words, is_ready, variables, log, START_SECONDS))
        yield


def _is_ready(folder: Path, health: str) -> bool:
    """Whether Kueue is ready, which it becomes some time after its certificate is mounted."""
    if not (folder / "tls.crt").exists():
        _mount(folder)
    return answers(health, "/readyz")


def _mount(folder: Path) -> None:
    """Copy Kueue's Secret to a folder as soon as Kueue has filled it."""
    printed = call("kubectl", "-n", SYSTEM, "get", "secret", SECRET, "-o", "json")
    data = json.loads(printed).get("data", {})
    for name in CERTIFICATE_FILES if data.keys() >= {*CERTIFICATE_FILES} else ():
        (folder / name).write_bytes(base64.b64decode(data[name]))


def _installation(space: str, port: int) -> list[Raw]:
    """Return the objects of Kueue's own kustomization that a process needs."""
    built = call("kubectl", "kustomize", str(BUILT / "config" / "default"))
    objects = list(yaml.safe_load_all(built))
    kept = [each for each in objects if each["kind"] in KINDS and _is_own(each)]
    for each in objects:
        if each["kind"].endswith("WebhookConfiguration"):
            hooks = [{**hook, "namespaceSelector": only(space)} for hook in each["webhooks"]]
            kept.append({**each, "webhooks": [hook for hook in hooks if _is_watched(hook)]})
    return [*kept, *_service(port)]


def _is_own(found: Raw) -> bool:
    return bool(found["metadata"].get("namespace", SYSTEM) == SYSTEM)


def _is_watched(hook: Raw) -> bool:
    return any(part in hook["clientConfig"]["service"]["path"] for part in WATCHED)


def _service(port: int) -> list[Raw]:
    place = {"name": SERVICE, "namespace": SYSTEM}
    ports = [{"port": 443, "targetPort": port, "protocol": "TCP", "name": "https"}]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": ports}}
    return [
        service,
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**place, "labels": {"kubernetes.io/service-name": SERVICE}},
            "addressType": "IPv4",
            "ports": [{"port": port, "protocol": "TCP", "name": "https"}],
            "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
        },
    ]


def _own_address() -> str:
    """Return the address of this machine on the network of the API server."""
    with socket.socket(type=socket.SOCK_DGRAM) as found:
        found.connect(api_server())
        return str(found.getsockname()[0])


def _settings(space: str, webhook: Raw, health: str) -> Raw:
    """Return the controller's configuration: the Pods of one namespace that name a queue."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SYSTEM,
        "health": {"healthProbeBindAddress": health},
        "metrics": {"bindAddress": "0"},
        "webhook": webhook,
        "leaderElection": {"leaderElect": False},
        "manageJobsWithoutQueueName": False,
        "managedJobsNamespaceSelector": only(space),
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": SERVICE,
            "webhookSecretName": SECRET,
        },
        "featureGates": {"VisibilityOnDemand": False},
        "integrations": {"frameworks": ["pod"]},
    }
