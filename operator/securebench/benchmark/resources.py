"""Resources of a task, their lanes and the views that components get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from enum import StrEnum

from securebench.errors import InvalidInputError

REDACTED = "<redacted>"


class ResourceError(InvalidInputError, ValueError):
    """A resource or a bundle of resources cannot exist."""


class Lane(StrEnum):
    """Who may see a resource."""

    PUBLIC = "public"
    EVALUATION_INPUTS = "evaluation_inputs"
    HIDDEN = "hidden"


ORACLE = "oracle"
"""Folder beside the lanes, in runs of an oracle only; mounted by its harness Pods alone."""


class Component(StrEnum):
    """Who asks for a view."""

    AGENT = "agent"
    TEST_SANDBOX = "test_sandbox"
    EVALUATOR = "evaluator"
    RESULT = "result"


VISIBLE_LANES: Mapping[Component, frozenset[Lane]] = {
    Component.AGENT: frozenset({Lane.PUBLIC}),
    Component.TEST_SANDBOX: frozenset({Lane.PUBLIC, Lane.EVALUATION_INPUTS}),
    Component.EVALUATOR: frozenset({Lane.PUBLIC, Lane.HIDDEN}),
    Component.RESULT: frozenset({Lane.PUBLIC}),
}


@dataclass(frozen=True, slots=True)
class Resource:
    """One named value in one lane.

    Args:
        name: Unique within its task.
        visibility: A lane or its name.
        kind: ``text`` or ``json``; other kinds cannot be written to disk.
        value: JSON value; treated as immutable.

    Raises:
        ResourceError: The lane does not exist.
    """

    name: str
    visibility: Lane
    kind: str
    value: object

    def __post_init__(self) -> None:
        """Turn the name of a lane into the lane."""
        object.__setattr__(self, "visibility", lane_named(self.visibility))


def lane_named(name: str) -> Lane:
    """Return the lane of that name.

    Raises:
        ResourceError: No such lane; an unknown lane is never read as another one.
    """
    try:
        return Lane(name)
    except ValueError:
        raise ResourceError(f"unknown visibility {name!r}; use one of {', '.join(Lane)}") from None


@dataclass(frozen=True, slots=True)
class ResourceBundle:
    """All resources of one task, in order, with unique names.

    Args:
        resources: In the order of the row.

    Raises:
        ResourceError: Two resources have the same name.
    """

    resources: tuple[Resource, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that occur twice."""
        object.__setattr__(self, "resources", tuple(self.resources))
        seen: set[str] = set()
        for resource in self.resources:
            if resource.name in seen:
                raise ResourceError(f"duplicate resource name {resource.name!r}")
            seen.add(resource.name)

    @classmethod
    def from_mapping(cls, resources: Mapping[str, Resource]) -> ResourceBundle:
        """Return the bundle of a mapping from names to resources.

        Raises:
            ResourceError: A key differs from the name of its resource.
        """
        for key, resource in resources.items():
            if key != resource.name:
                raise ResourceError(
                    f"resource key {key!r} does not match resource name {resource.name!r}"
                )
        return cls(tuple(resources.values()))

    def __iter__(self) -> Iterator[Resource]:
        return iter(self.resources)

    def __len__(self) -> int:
        return len(self.resources)

    def get(self, name: str) -> Resource | None:
        """Return the resource of that name, or None."""
        return next((resource for resource in self.resources if resource.name == name), None)

    def value(self, name: str) -> object:
        """Return a copy of the value of that name, or None when there is no such resource."""
        resource = self.get(name)
        return None if resource is None else deepcopy(resource.value)

    def in_lane(self, lane: Lane) -> tuple[Resource, ...]:
        """Return the resources of one lane, in order."""
        return tuple(resource for resource in self.resources if resource.visibility is lane)

    def view_for(self, component: str) -> dict[str, object]:
        """Return copies of what a component may see, by name, in order.

        The result component sees every name; non-public values are replaced.

        Raises:
            ResourceError: No such component.

        Source: contract 8.
        """
        try:
            viewer = Component(component)
        except ValueError:
            raise ResourceError(
                f"unknown component {component!r}; use one of {', '.join(Component)}"
            ) from None
        lanes = VISIBLE_LANES[viewer]
        return {
            resource.name: deepcopy(resource.value) if resource.visibility in lanes else REDACTED
            for resource in self.resources
            if resource.visibility in lanes or viewer is Component.RESULT
        }

    def public_payload(self) -> dict[str, object]:
        """Return the public values by name."""
        return self.view_for(Component.AGENT)

    def agent_payload(self) -> dict[str, object]:
        """Return what the agent sees: the public values by name."""
        return self.view_for(Component.AGENT)

    def evaluation_payload(self) -> dict[str, object]:
        """Return what a test sandbox sees: public values and evaluation inputs by name."""
        return self.view_for(Component.TEST_SANDBOX)

    def hidden_payload(self) -> dict[str, object]:
        """Return what the evaluator sees: public and hidden values by name."""
        return self.view_for(Component.EVALUATOR)

    def resource_summary(self) -> list[dict[str, object]]:
        """Return name, lane and kind of every resource; values of public ones only."""
        return [_summary(resource) for resource in self.resources]


def _summary(resource: Resource) -> dict[str, object]:
    facts: dict[str, object] = {
        "name": resource.name,
        "visibility": resource.visibility.value,
        "kind": resource.kind,
    }
    if resource.visibility is Lane.PUBLIC:
        return {**facts, "value": deepcopy(resource.value)}
    return {**facts, "redacted": True}


def string_leaves(value: object) -> Sequence[str]:
    """Return every string of a JSON value, through maps and lists, without keys."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(leaf for item in value.values() for leaf in string_leaves(item))
    if isinstance(value, list | tuple):
        return tuple(leaf for item in value for leaf in string_leaves(item))
    return ()
