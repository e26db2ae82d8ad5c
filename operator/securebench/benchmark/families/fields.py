"""Fields of rows: the keys of ``input`` and ``eval``, their schemas and lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from securebench.benchmark.resources import Lane
from securebench.json_values import Schema, object_of


@dataclass(frozen=True, slots=True)
class Field:
    """One key of ``input`` or ``eval``."""

    name: str
    schema: Schema
    required: bool = False
    lane: Lane = Lane.PUBLIC


@dataclass(frozen=True, slots=True)
class FieldSection:
    """``input`` or ``eval`` of a family; other keys are refused.

    Args:
        name: As messages show it.
        fields: In the order of the contract.
    """

    name: str
    fields: Sequence[Field] = field(default=())

    @property
    def schema(self) -> Schema:
        """The section as JSON Schema."""
        properties = {known.name: known.schema for known in self.fields}
        return object_of(properties, *(known.name for known in self.fields if known.required))
