"""The tester YAML as JSON Schema, with the configuration of each agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from securebench.agents.registry import AGENTS
from securebench.client.submit.tester_config import TESTER

Schema = Mapping[str, object]


def tester_schema() -> dict[str, object]:
    """Return the schema that editors check a tester YAML with."""
    properties = cast("Mapping[str, Schema]", TESTER.schema["properties"])
    harness = {**properties["harness"], "allOf": [_config_of(name) for name in AGENTS]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SecureBench tester YAML",
        **TESTER.schema,
        "properties": {**properties, "harness": harness},
    }


def _config_of(agent: str) -> dict[str, object]:
    """Return what ``config`` must be where ``type`` names an agent."""
    config = AGENTS[agent].config.schema
    is_needed = ["config"] if config["required"] else []
    return {
        "if": {"properties": {"type": {"const": agent}}, "required": ["type"]},
        "then": {"properties": {"config": config}, "required": is_needed},
    }
