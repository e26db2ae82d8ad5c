"""The tester YAML as JSON Schema, with the configuration of each agent."""

from __future__ import annotations

from securebench.agents.registry import AGENTS
from securebench.client.submit.tester_config import TESTER
from securebench.core.json_schema import Schema
from securebench.core.json_values import object_at
from securebench.reference import meanings


def tester_schema() -> dict[str, object]:
    """Return the schema that editors check a tester YAML with."""
    schema = meanings.with_descriptions(TESTER.schema, meanings.TESTER)
    properties = object_at(schema, "properties")
    harness = {
        **object_at(properties, "harness"),
        "allOf": [_config_of(name) for name in AGENTS],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SecureBench tester YAML",
        **schema,
        "properties": {**properties, "harness": harness},
    }


def config_schema(agent: str) -> Schema:
    """Return the schema of ``harness.config`` for a harness type."""
    return meanings.with_descriptions(AGENTS[agent].config.schema, meanings.CONFIG)


def _config_of(agent: str) -> dict[str, object]:
    """Return what ``config`` must be where ``type`` names an agent."""
    config = config_schema(agent)
    is_needed = ["config"] if config["required"] else []
    return {
        "if": {"properties": {"type": {"const": agent}}, "required": ["type"]},
        "then": {"properties": {"config": config}, "required": is_needed},
    }
