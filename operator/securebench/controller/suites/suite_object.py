"""A BenchmarkSuite as the API server has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from securebench.core.json_values import object_at, text_at
from securebench.core.names import QUEUE_LABEL, RERUN_ANNOTATION
from securebench.run.api.conditions import Condition, read_conditions
from securebench.suite.api.models import KIND
from securebench.suite.planning import SuiteIdentity


@dataclass(frozen=True, slots=True)
class SuiteObject:
    """The parts of a BenchmarkSuite that the controller works with.

    Attributes:
        identity: Its name, uid and queue.
        namespace: Its namespace.
        generation: Generation of the spec.
        created_at: RFC 3339.
        spec: As the API server has it.
        rerun: Value of the annotation for a manual run; empty without it.
        conditions: Conditions of its status as it was seen.
        status: As it was seen.
    """

    identity: SuiteIdentity
    namespace: str
    generation: int
    created_at: str
    spec: Mapping[str, object]
    rerun: str
    conditions: tuple[Condition, ...]
    status: Mapping[str, object]

    @property
    def kind(self) -> str:
        """Kind of the object, for its Events."""
        return KIND

    @property
    def name(self) -> str:
        """Its name."""
        return self.identity.name

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.identity.uid


def suite_object(body: Mapping[str, object]) -> SuiteObject:
    """Return the parts of a BenchmarkSuite."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    generation = metadata.get("generation")
    return SuiteObject(
        identity=SuiteIdentity(
            text_at(metadata, "name"),
            text_at(metadata, "uid"),
            text_at(object_at(metadata, "labels"), QUEUE_LABEL),
        ),
        namespace=text_at(metadata, "namespace"),
        generation=generation if isinstance(generation, int) else 0,
        created_at=text_at(metadata, "creationTimestamp"),
        spec=object_at(body, "spec"),
        rerun=text_at(object_at(metadata, "annotations"), RERUN_ANNOTATION),
        conditions=read_conditions(status.get("conditions", ())),
        status=status,
    )
