"""The network policy of a run."""

from __future__ import annotations

from securebench.manifests import layout
from securebench.manifests.frame import Manifest, owner, run_labels
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.plan.model import Role, RunPlan

DENIED_ROLES = (Role.CANARY, Role.HARNESS, Role.VERIFIER)
"""Control Pods are left out: they show that a probe's target answers at all."""


def deny_policy(plan: RunPlan) -> Manifest:
    """Return the policy that closes a run's Pods in both directions.

    It exists before the first Pod. Policies are additive, so it has no rule at all.
    """
    identity = plan.identity
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": layout.policy_name(identity.uid),
            "namespace": identity.namespace,
            "labels": run_labels(identity),
            "ownerReferences": [owner(identity)],
        },
        "spec": {
            "podSelector": {
                "matchLabels": {RUN_UID_LABEL: identity.uid},
                "matchExpressions": [
                    {
                        "key": ROLE_LABEL,
                        "operator": "In",
                        "values": [role.value for role in DENIED_ROLES],
                    }
                ],
            },
            "policyTypes": ["Ingress", "Egress"],
        },
    }
