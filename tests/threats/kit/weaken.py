"""Admission policies that take one control off the Pods of a twin."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from e2e.release import CommandError, Raw, Release, call
from threats.kit.batch import Batch, Weakening

API = "admissionregistration.k8s.io/v1"
MARK = "threats.securebench.dev/weakened"
POLICY_SECONDS = 60
"""How long the API server may take to apply a new policy."""


def weaken(release: Release, batch: Batch) -> None:
    """Take a control off the Pods that a batch's run will have, and wait until that holds."""
    assert batch.weakening is not None
    for item in policy(release.namespace, batch.name, batch.weakening):
        call("kubectl", "create", "-f", "-", stdin=json.dumps(item).encode())
    _wait_until_applied(release, batch.name, batch.weakening)


def remove(namespace: str) -> None:
    """Remove the policies of a namespace's twins."""
    kinds = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    call("kubectl", "delete", kinds, "-l", f"{MARK}={namespace}", "--wait=false")


def policy(namespace: str, run: str, weakening: Weakening) -> Sequence[Raw]:
    """Return the policy and its binding for one run in one namespace."""
    metadata = {"name": f"{namespace}-{run}", "labels": {MARK: namespace}}
    chosen = (
        f"object.metadata.?labels['securebench.dev/run'].orValue('') == '{run}' && "
        f"object.metadata.?labels['securebench.dev/role'].orValue('') == '{weakening.role}'"
    )
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
        },
        "matchConditions": [{"name": "of-the-twin", "expression": chosen}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
            for expression in (*weakening.patches, _MARKING)
        ],
    }
    binding = {"policyName": metadata["name"]}
    return (
        {"apiVersion": API, "kind": "MutatingAdmissionPolicy", "metadata": metadata, "spec": spec},
        {
            "apiVersion": API,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": binding,
        },
    )


_MARKING = (
    f'[JSONPatch{{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("{MARK}"),'
    ' value: "true"}]'
)


def _wait_until_applied(release: Release, run: str, weakening: Weakening) -> None:
    probe = json.dumps(_probe(run, weakening)).encode()
    deadline = time.monotonic() + POLICY_SECONDS
    while True:
        words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        try:
            made = json.loads(release.kubectl(*words, stdin=probe))
        except CommandError as error:
            # A patch may not fit the probe: then the policy is in force too.
            names = (MARK, f"{release.namespace}-{run}", f'"probe-{run}" is invalid')
            if not any(name in str(error) for name in names):
                raise
            return
        if MARK in made["metadata"].get("annotations", {}):
            return
        if time.monotonic() > deadline:
            raise CommandError(f"the policy of {run} is not applied after {POLICY_SECONDS} s")
        time.sleep(0.2)


def _probe(run: str, weakening: Weakening) -> Raw:
    labels = {"securebench.dev/run": run, "securebench.dev/role": weakening.role}
    container = {"name": "probe", "image": "probe", "securityContext": {}}
    metadata = {"name": f"probe-{run}", "labels": labels, "annotations": {"probe": "true"}}
    spec = {"containers": [container], "securityContext": {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
