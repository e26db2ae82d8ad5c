"""What all API models share: validated string types, enums, their base class and its messages.

The pattern and message of each string type also become a CEL rule of the CRD.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.digests import PATTERN
from securebench.errors import SpecError
from securebench.names import GROUP, PINNED_PATTERN

MAX_NAME = 253
"""Length of a DNS subdomain name (RFC 1123)."""


MAX_PATH = 512
"""Characters of a relative path; ample for real packs, low enough for the CEL cost budget."""


MAX_DEADLINE_SECONDS = 30 * 86_400
"""Limit of a run's duration, and of other waits in its spec."""


MAX_QUANTITY = 32
"""Characters of a quantity; no real one has more than a dozen."""


HIDDEN_NAME = r"(^|/)\."
"""Matches a path with a component that begins with a dot."""


_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


_QUANTITY = r"[0-9]{1,15}(\.[0-9]{1,9})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?"


_SUFFIXES = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}


@dataclass(frozen=True, slots=True)
class Matching:
    """Requires that the whole string matches a pattern, or that no part of it does.

    Args:
        pattern: Regular expression with the same meaning in Python and RE2; without anchors if
            ``whole``.
        message: Error message, as a phrase that follows the field's name.
        whole: The whole string must match; otherwise no part of it may.
    """

    pattern: str
    message: str
    whole: bool = True

    def accepts(self, value: str) -> bool:
        """Return whether ``value`` satisfies the rule."""
        if self.whole:
            return re.fullmatch(self.pattern, value) is not None
        return re.search(self.pattern, value) is None

    def expression(self) -> str:
        """Return the rule as a CEL expression over ``self``."""
        if self.whole:
            return f"self.matches(r'^({self.pattern})$')"
        return f"!self.matches(r'{self.pattern}')"

    def _check(self, value: str) -> str:
        if not self.accepts(value):
            raise ValueError(self.message)
        return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        rule = {"rule": self.expression(), "message": self.message}
        return {**handler(schema), "x-kubernetes-validations": [rule]}


@dataclass(frozen=True, slots=True)
class QuantityText:
    """A positive Kubernetes quantity; whole numbers may be unquoted."""

    message: str = "must be a quantity above zero such as 500m, 2, 256Mi or 1Gi"

    def _check(self, value: str) -> str:
        if quantity(value) <= 0:
            raise ValueError(self.message)
        return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        rule = f"string(self).matches(r'^({_QUANTITY})$') && sign(quantity(string(self))) == 1"
        return {
            "x-kubernetes-int-or-string": True,
            "maxLength": MAX_QUANTITY,
            "x-kubernetes-validations": [{"rule": rule, "message": self.message}],
        }


def _number_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def quantity(text: str) -> Decimal:
    """Return the numeric value, in cores or bytes, of a quantity such as ``100m`` or ``1Gi``.

    Raises:
        ValueError: ``text`` is not a quantity.
    """
    if re.fullmatch(_QUANTITY, text) is None:
        raise ValueError(QuantityText().message)
    number = text.rstrip("mkMGTKi")
    return Decimal(number) * _SUFFIXES[text[len(number) :]]


ObjectName = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME),
    Matching(_SUBDOMAIN, "must be the name of an object in this namespace (a-z, 0-9, -, .)"),
]
"""Name of an object in the run's own namespace."""


ObjectUid = Annotated[
    str,
    Field(min_length=1, max_length=64),
    Matching(r"[-a-zA-Z0-9]+", "must be the metadata.uid of an object (letters, digits, -)"),
]
"""UID of an object: unlike its name, no other object ever has it."""


OptionalName = Annotated[
    str,
    Field(max_length=MAX_NAME),
    Matching(f"|{_SUBDOMAIN}", "must be empty or the name of an object (a-z, 0-9, -, .)"),
]
"""Name of an object, or the empty string for none."""


SafePath = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PATH),
    Matching(
        r"(^|/)\.{0,2}(/|$)|[\x00-\x1f\x7f\\]",
        "must be a relative path without empty, '.' or '..' parts and without backslashes",
        whole=False,
    ),
]
"""Relative path that cannot leave its root."""


PackPath = Annotated[
    str,
    Field(min_length=1, max_length=MAX_PATH),
    Matching(
        rf"{HIDDEN_NAME}|(^|/)(/|$)|[\x00-\x1f\x7f\\]",
        "must be a relative path without empty parts, parts that begin with '.' and backslashes",
        whole=False,
    ),
]
"""Folder below the volume's packs; names that begin with a dot are reserved for the operator."""


Digest = Annotated[
    str,
    Field(max_length=71),
    Matching(PATTERN, "must be sha256: and 64 lower case hexadecimal digits"),
]
"""SHA-256 digest with an algorithm prefix."""


EnvName = Annotated[
    str,
    Field(min_length=1, max_length=256),
    Matching(r"[!-<>-~]+", "must be the name of a variable: printable ASCII without '=' or blanks"),
]
"""Name of an environment variable."""


RunId = Annotated[
    str,
    Field(min_length=1, max_length=512),
    Matching(
        r"[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*",
        "must not be blank and must not hold control characters",
    ),
]
"""The record's run id: any single line of text."""


PackImage = Annotated[
    str,
    Field(max_length=512),
    Matching(
        PINNED_PATTERN,
        "must name an image by its digest: registry/repository[:tag]@sha256:<64 hex digits>",
    ),
]
"""A pack in a registry: what its digest names can never change."""


LabelKey = Annotated[
    str,
    Field(min_length=1, max_length=317),
    Matching(
        r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
        "must be a label key such as kubernetes.io/arch",
    ),
]
"""Key of a label or of a taint."""


LabelValue = Annotated[
    str,
    Field(max_length=63),
    Matching(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "must be a label value (letters, digits, -, _, .; at most 63)",
    ),
]
"""Value of a label or of a taint."""


Glob = Annotated[str, Field(min_length=1, max_length=256)]
"""Glob over task ids: * any text, ? one character, [abc] one of a set."""


Quantity = Annotated[
    str, BeforeValidator(_number_text), Field(max_length=MAX_QUANTITY), QuantityText()
]
"""CPU cores or bytes."""


class DangerousCommand(StrEnum):
    """A command that needs a capability in the verifier container."""

    CHROOT = "chroot"


class IsolationRequirement(StrEnum):
    """Whether the network isolation of a run must be proven."""

    VERIFIED = "Verified"
    DECLARED = "Declared"


class IsolationGap(StrEnum):
    """What may stay reachable under the network policy, if the run allows it."""

    NODE = "Node"


class CancelMode(StrEnum):
    """How a run is cancelled."""

    NONE = ""
    GRACEFUL = "Graceful"
    IMMEDIATE = "Immediate"


class PodRetention(StrEnum):
    """Which finished Pods are kept."""

    ALL = "All"
    FAILED = "Failed"
    NONE = "None"


class LaneRetention(StrEnum):
    """What happens to a finished task's inputs on the volume."""

    DELETE = "Delete"
    KEEP = "Keep"


class TolerationOperator(StrEnum):
    """How a toleration matches a taint's value."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """Effect of a taint; the empty string matches all."""

    ANY = ""
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


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
            raise SpecError("\n".join(_problem_lines(error, cls.field_path))) from None

    def to_json(self) -> dict[str, object]:
        """Return the JSON form with the API's key names, omitting absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class LocalReference(ApiModel):
    """An object in the run's own namespace."""

    name: ObjectName
    """Name of the object, in the namespace of the BenchmarkRun."""


def _problem_lines(error: ValidationError, prefix: str) -> list[str]:
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


class Outcome(StrEnum):
    """How an attempt ended (contract 15.1). ``NOT_VERIFIED`` is null in records."""

    SCORED = "scored"
    AGENT = "agent"
    RESOURCE = "resource"
    VERIFIER = "verifier"
    PROVIDER = "provider"
    INFRASTRUCTURE = "infrastructure"
    CANCELLED = "cancelled"
    NOT_VERIFIED = "not_verified"
