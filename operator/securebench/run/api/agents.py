"""The harness type of the API: an enum of the registered agents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.agents.registry import AGENTS, cli_agents


@dataclass(frozen=True, slots=True)
class _RegisteredAgent:
    """Validates that a string names a registered agent."""

    @staticmethod
    def _check(value: str) -> str:
        if value not in AGENTS:
            *names, last = map(repr, AGENTS)
            raise ValueError(f"Input should be {', '.join(names)} or {last}")
        return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "enum": list(AGENTS)}


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


HARNESS_TYPES: Final = (
    f"command runs a command in the task image; {_listed(name for name, _ in cli_agents())} run"
    f" these agents there; {_listed(name for name, agent in AGENTS.items() if agent.is_audit)}"
    " audit the pack itself, in runs with the label securebench.dev/purpose: audit."
)
"""The registered agents, as the API describes them."""

HarnessType = Annotated[str, _RegisteredAgent()]
"""What produces the candidates."""


def without_provider() -> tuple[str, ...]:
    """Return the harness types that never have a model provider, sorted."""
    return tuple(sorted(name for name, agent in AGENTS.items() if agent.is_audit))


def provider_fits() -> str:
    """Return the error message for a provider that the harness type does not use."""
    return f"provider does not belong to harness types {' and '.join(without_provider())}"


def with_agents(record_schema: str) -> str:
    """Return the record schema with the fields that registered agents add to a record.

    Args:
        record_schema: JSON text; nothing in it is removed, so that records of earlier agents stay
            valid.
    """
    schema = json.loads(record_schema)
    producer = schema["properties"]["producer_metadata"]["properties"]
    producer["harness"] = {"enum": list(AGENTS)}
    for name, _ in cli_agents():
        for key in ("version", "model"):
            producer.setdefault(f"{name}_{key}", {"type": "string", "minLength": 1})
    return json.dumps(schema, indent=2) + "\n"
