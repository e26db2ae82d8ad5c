"""Resources and scheduling of a run's Pods. The docstrings below are the CRD's descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Self

from pydantic import Field, model_validator

from securebench.run.api.base import EQUAL_HAS_KEY, EXISTS_HAS_NO_VALUE, ApiModel, LocalReference
from securebench.run.api.field_types import (
    MAX_DEADLINE_SECONDS,
    LabelKey,
    LabelValue,
    OptionalName,
    Quantity,
    TaintEffect,
    TolerationOperator,
    quantity,
)

DEFAULT_MEMORY_LIMIT = "1Gi"
"""Contract 10: the default of a sandbox."""

DEFAULT_REQUESTS: Mapping[str, str] = MappingProxyType({"cpu": "100m", "memory": "256Mi"})
"""Resource requests of a task container when the spec sets none."""


class Requests(ApiModel):
    """Resource requests of a container."""

    cpu: Quantity | None = None
    """Cores; by default 100m, or the limit if that is lower."""
    memory: Quantity | None = None
    """Bytes; by default 256Mi, or the limit if that is lower."""


class Limits(ApiModel):
    """Resource limits of a container."""

    cpu: Quantity | None = None
    """Cores; by default 4, or the request if that is higher."""
    memory: Quantity = DEFAULT_MEMORY_LIMIT
    """Bytes; a container that exceeds them is killed (outcome resource)."""


class Resources(ApiModel):
    """Resources of the harness and the check container."""

    requests: Requests = Requests()
    """Resource requests of the container."""
    limits: Limits = Limits()
    """Resource limits of the container."""
    workspace: Quantity = "1Gi"
    """Size of the workspace on the node's disk."""

    @model_validator(mode="after")
    def _requests_within_limits(self) -> Self:
        limits = self.limited()
        for name, request in (("cpu", self.requests.cpu), ("memory", self.requests.memory)):
            limit = limits.get(name)
            if request and limit and quantity(request) > quantity(limit):
                raise ValueError(f"requests.{name} must not exceed limits.{name} ({limit})")
        return self

    def limited(self) -> dict[str, str]:
        """Return the container's limits as Kubernetes spells them; memory is always present."""
        cpu = {"cpu": self.limits.cpu} if self.limits.cpu else {}
        return {**cpu, "memory": self.limits.memory}

    def requested(self) -> dict[str, str]:
        """Return the container's requests as Kubernetes spells them, never above the limits."""
        limits = self.limited()
        chosen = {"cpu": self.requests.cpu, "memory": self.requests.memory}
        return {
            name: chosen[name] or min(default, limits.get(name, default), key=quantity)
            for name, default in DEFAULT_REQUESTS.items()
        }


class Toleration(ApiModel):
    """A taint that the run's Pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint; omitted, with operator Exists, it matches all taints."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists matches any value."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: TaintEffect = TaintEffect.ANY
    """Effect of the taint; empty means all."""
    toleration_seconds: Annotated[int, Field(ge=0, le=MAX_DEADLINE_SECONDS)] | None = None
    """How long a NoExecute taint is tolerated."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.operator is TolerationOperator.EXISTS and self.value:
            raise ValueError(EXISTS_HAS_NO_VALUE)
        if self.operator is TolerationOperator.EQUAL and self.key is None:
            raise ValueError(EQUAL_HAS_KEY)
        return self


class PodTemplate(ApiModel):
    """Where the run's Pods are scheduled.

    The administrator lists the allowed values in the chart. No security setting of a Pod can be
    changed.
    """

    runtime_class_name: OptionalName = ""
    """Runtime class, for example gvisor."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels that a node must have."""
    tolerations: Annotated[
        tuple[Toleration, ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Taints that are tolerated."""
    priority_class_name: OptionalName = ""
    """Priority class."""
    image_pull_secrets: Annotated[
        tuple[LocalReference, ...],
        Field(
            max_length=8,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ] = ()
    """Secrets for pulling task images, labelled securebench.dev/usable-by-runs: "true"."""
