"""A row after compilation: resources with lanes, environment, extraction, verification."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.resources import Resource, ResourceBundle, lane_named
from securebench.core.errors import PackError
from securebench.core.json_values import object_in

ASSETS = "assets"
"""Name of the resource that lists a task's public assets; never written as JSON."""


@dataclass(frozen=True, slots=True)
class SecureBenchTask:
    """One row, compiled: what may be shown to whom.

    Args:
        id: Row id, unique in its pack.
        benchmark_id: Manifest id.
        task_type: Family name; need not be an active family.
        metadata: The row's metadata plus ``benchmark_pack``, ``environment``,
            ``asset_roots`` and ``asset_defaults``.
        resources: In the order input, assets, eval.

    Raises:
        PackError: A resource is missing that the family cannot do without.
    """

    id: str
    benchmark_id: str
    task_type: str
    metadata: Mapping[str, object] = field(default_factory=dict)
    resources: ResourceBundle = field(default_factory=ResourceBundle)

    def __post_init__(self) -> None:
        """Check the resources that the family cannot do without."""
        family = FAMILIES.get(self.task_type)
        if family is None:
            return
        for name in family.required_resources:
            if self.resources.get(name) is None:
                raise PackError(
                    f"task {self.id!r} ({self.task_type}): resource {name!r} is required"
                )

    @property
    def environment(self) -> Mapping[str, object]:
        """The merged environment of manifest and row."""
        return object_in(self.metadata.get("environment"))

    def view_for(self, component: str) -> dict[str, object]:
        """Return what a component may see, by name."""
        return self.resources.view_for(component)

    def public_payload(self) -> dict[str, object]:
        """Return the public values by name."""
        return self.resources.public_payload()

    def agent_payload(self) -> dict[str, object]:
        """Return what the agent sees."""
        return self.resources.agent_payload()

    def evaluation_payload(self) -> dict[str, object]:
        """Return what a test sandbox sees."""
        return self.resources.evaluation_payload()

    def hidden_payload(self) -> dict[str, object]:
        """Return what the evaluator sees."""
        return self.resources.hidden_payload()

    def resource_summary(self) -> list[dict[str, object]]:
        """Return name, lane and kind of every resource; values of public ones only."""
        return self.resources.resource_summary()


def task_from_spec(spec: Mapping[str, object]) -> SecureBenchTask:
    """Return the task of a mapping with the fields of SecureBenchTask.

    Args:
        spec: ``id``, ``benchmark_id`` and ``task_type`` are non-empty strings; ``metadata``
            is an optional mapping; ``resources`` is a list of mappings with ``name``,
            ``visibility``, ``kind`` (default: by the value) and ``value``, or a mapping
            from names to such mappings.

    Raises:
        PackError: A field is missing or has the wrong type.
        ResourceError: An unknown lane or a name that occurs twice.
    """
    return SecureBenchTask(
        id=_required_text(spec, "id"),
        benchmark_id=_required_text(spec, "benchmark_id"),
        task_type=_required_text(spec, "task_type"),
        metadata=dict(_optional_mapping(spec, "metadata")),
        resources=_bundle(spec.get("resources") or []),
    )


def resource_kind(value: object) -> str:
    """Return the kind of a value: ``text`` for a string, else ``json``."""
    return "text" if isinstance(value, str) else "json"


def _bundle(resources: object) -> ResourceBundle:
    if isinstance(resources, Mapping):
        return ResourceBundle.from_mapping(
            {key: _resource({"name": key, **_object(item, key)}) for key, item in resources.items()}
        )
    if isinstance(resources, list | tuple):
        return ResourceBundle(
            tuple(
                _resource(_object(item, f"resources[{index}]"))
                for index, item in enumerate(resources)
            )
        )
    raise PackError("task spec resources must be a list or an object")


def _resource(item: Mapping[str, object]) -> Resource:
    kind = item.get("kind", resource_kind(item.get("value")))
    if not isinstance(kind, str):
        raise PackError("task spec resource kind must be a string")
    return Resource(
        name=_required_text(item, "name"),
        visibility=lane_named(_required_text(item, "visibility")),
        kind=kind,
        value=item.get("value"),
    )


def _object(item: object, name: str) -> Mapping[str, object]:
    if not isinstance(item, Mapping):
        raise PackError(f"task spec {name} must be an object")
    return item


def _required_text(spec: Mapping[str, object], key: str) -> str:
    value = spec.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PackError(f"task spec {key} must be a non-empty string")
    return value


def _optional_mapping(spec: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = spec.get(key)
    return {} if value is None else _object(value, key)
