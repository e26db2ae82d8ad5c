"""Which Secrets a run may name; no value is read."""

from __future__ import annotations

from collections.abc import Mapping

from securebench.agents.registry import provider_key
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.errors import SecretMissingError, SpecError
from securebench.json_values import object_at, text_at
from securebench.names import USABLE, USABLE_AS_PACK, USABLE_BY_GATEWAY, USABLE_LABEL
from securebench.run.api.models import BenchmarkRunSpec

IN_PODS = (USABLE,)
FOR_GATEWAY = (USABLE_BY_GATEWAY, USABLE)
AS_PACK = (USABLE_AS_PACK,)
"""Values of the label that allow each use. A pack has one of its own: an agent's Pod may name every
Secret that is meant for Pods, so hidden files in such a Secret would be a submitter's to read."""


def is_usable(secret: Raw, allowed: tuple[str, ...]) -> bool:
    """Return whether a Secret is meant for a use: creating a run is no right to read all.

    Args:
        secret: As the API server has it.
        allowed: Values of the label that allow the use.
    """
    labels = object_at(object_at(secret, "metadata"), "labels")
    return text_at(labels, USABLE_LABEL) in allowed


def no_secret(what: str, allowed: tuple[str, ...] = IN_PODS) -> tuple[str, str]:
    """Return what is missing and the remedy; both are the same whether the Secret exists or not.

    Args:
        what: Names the Secret.
        allowed: Values of the label that allow the use; the first is named.
    """
    label = f'{USABLE_LABEL}: "{allowed[0]}"'
    missing = f"{what} does not exist in this namespace or lacks the label {label}"
    return missing, "create or label it, then create a new run"


async def check_secrets(cluster: Cluster, spec: BenchmarkRunSpec) -> None:
    """Check that a new run may use the Secrets that it names; a regrade asks no provider.

    Args:
        cluster: The run's namespace.
        spec: Spec of the run.

    Raises:
        SecretMissingError: One is absent or lacks its label; which of both is not told.
        SpecError: One lacks the provider's key.
        ClusterError: The API server did not answer.
    """
    if spec.harness.secret_ref is not None:
        name = spec.harness.secret_ref.name
        await _usable_secret(cluster, name, f"spec.harness.secretRef: Secret {name!r}")
    for secret_ref in spec.pod_template.image_pull_secrets:
        what = f"spec.podTemplate.imagePullSecrets: Secret {secret_ref.name!r}"
        await _usable_secret(cluster, secret_ref.name, what)
    if spec.provider is not None and spec.regrade is None:
        name = spec.provider.secret_ref.name
        what = f"spec.provider.secretRef: Secret {name!r}"
        secret = await _usable_secret(cluster, name, what, FOR_GATEWAY)
        key = provider_key(spec.harness.type, spec.harness.config)
        data = secret.get("data")
        if not isinstance(data, Mapping) or key not in data:
            raise SpecError(f"{what} has no key {key}; put the model provider's key there")


async def _usable_secret(
    cluster: Cluster, name: str, what: str, allowed: tuple[str, ...] = IN_PODS
) -> Raw:
    secret = await cluster.get(ObjectKind.SECRET, name)
    if secret is None or not is_usable(secret, allowed):
        raise SecretMissingError(*no_secret(what, allowed))
    return secret
