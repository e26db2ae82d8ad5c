"""What the settings let a run do: its policies and those of its Pods, and the Secrets it may name.

No value of a Secret is read here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from securebench.agents.harness import LATEST
from securebench.agents.registry import provider_key
from securebench.cluster.port import Cluster, ObjectKind, Raw
from securebench.controller.settings import (
    AccessMode,
    Overlay,
    PodTemplateRules,
    Settings,
    TolerationRule,
)
from securebench.controller.volume.artifacts import SharedVolume
from securebench.errors import ConfigErrors, SecretMissingError, SpecError
from securebench.json_values import object_at, text_at
from securebench.names import USABLE, USABLE_AS_PACK, USABLE_BY_GATEWAY, USABLE_LABEL
from securebench.protocol.supervise import KUBELET_TARGET, ProbeTarget
from securebench.run.api.field_types import LaneRetention
from securebench.run.api.models import BenchmarkRunSpec, Toleration
from securebench.run.plan.model import ClusterProvider, PodPolicy, RunPolicy, TaskLimits
from securebench.run.plan.score_fields import Overlays


def pod_policy(
    spec: BenchmarkRunSpec,
    settings: Settings,
    node_name: str,
    probes: tuple[str, ...],
    tools: str,
    queue: str = "",
) -> PodPolicy:
    """Return what the launch Pods of a run share.

    Args:
        spec: The run's spec.
        node_name: Node of the operator.
        probes: Addresses that must be closed for a harness.
        tools: Tree digest of the programs of task containers.
        queue: The queue that the run asks for, or empty for that of the settings.

    Raises:
        ConfigErrors: The podTemplate names what the administrator does not allow.
    """
    problems = list(template_problems(spec, settings.pod_template))
    if problems:
        raise ConfigErrors([SpecError(problem) for problem in problems])
    template, resources = spec.pod_template, spec.resources
    own_secrets = (secret.name for secret in template.image_pull_secrets)
    is_bound = settings.access_mode is AccessMode.READ_WRITE_ONCE
    return PodPolicy(
        image=settings.pod_image,
        image_pull_policy=settings.image_pull_policy.value,
        medium=SharedVolume(settings.volume_claim),
        tools=tools,
        service_account=settings.runs_account,
        requests=resources.requested(),
        limits=resources.limited(),
        workspace_size=resources.workspace,
        runtime_class=template.runtime_class_name,
        priority_class=template.priority_class_name,
        node_selector=template.node_selector,
        tolerations=tuple(_toleration(item) for item in template.tolerations),
        image_pull_secrets=tuple(dict.fromkeys((*settings.image_pull_secrets, *own_secrets))),
        node_name=node_name if is_bound else "",
        probes=probes,
        startup_allowance_seconds=settings.launch.startup_seconds,
        grace_seconds=settings.launch.seal_seconds,
        text_verifier_image=settings.gateway_image,
        queue=queue or settings.queue_name,
    )


def launch_probes(spec: BenchmarkRunSpec, targets: Iterable[ProbeTarget]) -> tuple[str, ...]:
    """Return the addresses that must be closed for a harness before and after its command.

    The kubelet is never one of them: it is the operator's, and another node's Pods may be cut off
    from it where the Pods of its own node are not.

    Args:
        spec: May allow its Pods to reach the node.
        targets: What the canary tries.
    """
    is_node_allowed = spec.isolation.is_node_allowed
    return tuple(
        target.authority
        for target in targets
        if target.protocol == "tcp"
        and target.name != KUBELET_TARGET
        and not (is_node_allowed and target.is_node)
    )


def run_policy(spec: BenchmarkRunSpec, settings: Settings) -> RunPolicy:
    """Return the numbers of the loop."""
    launch = settings.launch
    return RunPolicy(
        attempts=spec.attempts,
        infrastructure_retries=spec.infrastructure_retries,
        provider_retries=spec.provider_retries,
        backoff_seconds=launch.retry_backoff_seconds,
        backoff_limit_seconds=launch.retry_backoff_max_seconds,
        lost_after_seconds=launch.lost_margin_seconds,
        keep_pods=spec.retention.pods,
        keep_lanes=spec.retention.lanes is LaneRetention.KEEP,
    )


def overlays(settings: Settings) -> Overlays:
    """Return the tools of model providers that the administrator offers, by harness type."""
    return {name: _versions(overlay) for name, overlay in settings.overlays.items()}


def cluster_providers(settings: Settings) -> tuple[ClusterProvider, ...]:
    """Return the model providers inside the cluster that the administrator allows."""
    return tuple(
        ClusterProvider(rule.host, rule.port, rule.namespace, rule.pod_port or rule.port)
        for rule in settings.gateway.providers
    )


def _versions(overlay: Overlay) -> Mapping[str, str]:
    latest = {LATEST: overlay.latest} if overlay.latest else {}
    return {**overlay.images, **latest}


def limits(settings: Settings) -> TaskLimits:
    """Return the bounds of contract 15.7 as the administrator set them."""
    bounds = settings.bounds
    return TaskLimits(
        text_bytes=bounds.text_bytes,
        patch_bytes=bounds.patch_bytes,
        workspace_bytes=bounds.workspace_bytes,
        workspace_files=bounds.workspace_files,
        stream_bytes=bounds.stream_bytes,
        record_bytes=bounds.record_bytes,
    )


def template_problems(spec: BenchmarkRunSpec, rules: PodTemplateRules) -> Iterable[str]:
    """Yield one line for everything that the podTemplate may not name."""
    template = spec.pod_template
    place = "spec.podTemplate"
    advice = "ask the administrator to allow it in the chart's values"
    if template.runtime_class_name not in {"", *rules.runtime_class_names}:
        yield f"{place}.runtimeClassName: {template.runtime_class_name!r} is not allowed; {advice}"
    if template.priority_class_name not in {"", *rules.priority_class_names}:
        name = template.priority_class_name
        yield f"{place}.priorityClassName: {name!r} is not allowed; {advice}"
    for key in template.node_selector:
        if key not in rules.node_selector_keys:
            yield f"{place}.nodeSelector: key {key!r} is not allowed; {advice}"
    for toleration in template.tolerations:
        if not any(_permits(rule, toleration) for rule in rules.tolerations):
            yield f"{place}.tolerations: {toleration.key or '*'} is not allowed; {advice}"


def _permits(rule: TolerationRule, asked: Toleration) -> bool:
    pairs = (
        (rule.key, asked.key),
        (rule.operator, asked.operator.value),
        (rule.value, asked.value),
        (rule.effect, asked.effect.value),
    )
    return all(allowed is None or allowed == wanted for allowed, wanted in pairs)


def _toleration(item: Toleration) -> dict[str, object]:
    dumped: dict[str, object] = item.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in dumped.items() if value != ""}


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
