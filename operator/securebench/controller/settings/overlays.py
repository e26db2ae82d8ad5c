"""The images of agents' command line tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.agents.harness_config import LATEST
from securebench.agents.registry import cli_agents
from securebench.controller.settings.base import SettingsPart


class Overlay(SettingsPart):
    """The images of one command line tool, by its version; images/overlays builds them."""

    images: Mapping[str, str] = Field(default_factory=dict)
    """Image by version; none: runs with this harness are refused."""
    latest: str = ""
    """The version that stands for ``latest``; none."""

    @model_validator(mode="after")
    def _latest_is_there(self) -> Self:
        if self.latest and self.latest not in self.images:
            raise ValueError(
                f"latest: {self.latest} is not among the versions of images; "
                "add its image or correct the version"
            )
        return self

    def version(self, asked: str) -> str:
        """Return the version that a run gets, or nothing where there is no image of it.

        Args:
            asked: A version, or ``latest``.
        """
        found = self.latest if asked == LATEST else asked
        return found if found in self.images else ""


def no_overlays() -> dict[str, Overlay]:
    """Return no image at all for each agent with a CLI."""
    return {name: Overlay() for name, _ in cli_agents()}


class ByAgent:
    """Keys are agents with a CLI, by their names or as the chart's values write them."""

    @staticmethod
    def _named(value: object) -> object:
        names = {written: name for name, _ in cli_agents() for written in (name, to_camel(name))}
        if not isinstance(value, Mapping):
            return value
        unknown = sorted(str(key) for key in value if key not in names)
        if unknown:
            known = ", ".join(to_camel(name) for name, _ in cli_agents())
            raise ValueError(f"no agent has the name {unknown[0]!r}; there is {known}")
        given = {names[key]: overlay for key, overlay in value.items()}
        return no_overlays() | given

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._named, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        overlay = handler(schema)["additionalProperties"]
        properties = {
            to_camel(name): {**overlay, "description": f"Of harness type {name}."}
            for name, _ in cli_agents()
        }
        return {"type": "object", "additionalProperties": False, "properties": properties}
