"""What all API models share: their base class, references to objects, messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from securebench.errors import SpecError
from securebench.names import GROUP
from securebench.run.api.field_types import ObjectName

VERSION = "v1alpha1"
KIND = "BenchmarkRun"
PLURAL = "benchmarkruns"
API_VERSION = f"{GROUP}/{VERSION}"

ONE_SOURCE = "exactly one of volume, configMap, secret and image is needed"
ONE_EARLIER_RUN = "regrade and resumeFrom exclude each other: a regrade runs no agent"
ENV_HAS_VALUES = "env needs secretRef: the values come from a Secret"
EXISTS_HAS_NO_VALUE = "operator Exists takes no value"
EQUAL_HAS_KEY = "operator Equal needs a key"
"""Messages shared by the models and the CRD's validation rules."""

_PLAIN_MESSAGES: Mapping[str, str] = {
    "extra_forbidden": "unknown field",
    "missing": "is required",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}


class ApiModel(BaseModel):
    """A part of a BenchmarkRun: strict, closed, frozen, camelCase in JSON.

    Attribute docstrings become the CRD's descriptions.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
        strict=True,
        use_attribute_docstrings=True,
    )

    field_path: ClassVar[str] = ""
    """Path of the object in the BenchmarkRun, for messages."""

    @classmethod
    def parse(cls, raw: Mapping[str, object]) -> Self:
        """Validate an object as the API server delivered it.

        Raises:
            SpecError: With one line per problem, each naming its field.
        """
        try:
            return cls.model_validate_json(json.dumps(raw))
        except ValidationError as error:
            raise SpecError("\n".join(problem_lines(error, cls.field_path))) from None

    def to_json(self) -> dict[str, object]:
        """Return the JSON form with the API's key names, omitting absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class LocalReference(ApiModel):
    """An object in the run's own namespace."""

    name: ObjectName
    """Name of the object, in the namespace of the BenchmarkRun."""


def problem_lines(error: ValidationError, prefix: str) -> list[str]:
    """Return one plain line per problem; no line repeats the rejected value.

    Args:
        error: From pydantic.
        prefix: Path of the validated object, for example ``spec``; may be empty.
    """
    return [
        f"{_field_path(prefix, item['loc'])}: {_plain_message(item['type'], item['msg'])}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def _plain_message(kind: str, message: str) -> str:
    return _PLAIN_MESSAGES.get(kind, message.removeprefix("Value error, "))


def _field_path(prefix: str, location: tuple[int | str, ...]) -> str:
    path = prefix
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")
