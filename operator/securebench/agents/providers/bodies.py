"""What a request may ask for: a closed list per provider, so that nothing but the model answers.

The body is read strictly and written anew: the provider sees what was judged. Tools that the
provider would run are taken out; what would make it fetch something is refused.

Source: providers 3.5 and 4.3; contract 11.4; A-181.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from securebench.core.errors import SecureBenchError
from securebench.protocol.messages import decode_object

JsonObject = dict[str, object]

UNNAMED: Final = "unnamed"
"""Stands for a kind that is no plain word: kinds come from the agent."""

VALUES: Final = 1_000_000
"""In one body, and signs in its texts that look like it: small values take much memory."""

NESTING: Final = 64
"""Levels of one body; schemas of tools have a dozen. Deeper ones are read by one parser and not by
the next."""

_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class RelayedBody:
    """What is sent instead of a request's body.

    Attributes:
        model: Whom it asks; ``unnamed`` where that is no plain word.
        stripped: Kinds of what was taken out, sorted: types of tools and names of fields.
    """

    data: bytes
    model: str
    stripped: tuple[str, ...] = ()


class RefusedBodyError(SecureBenchError):
    """A request that is not relayed.

    Args:
        reason: For the agent; quotes nothing but plain words.
        kinds: What was asked for, sorted; empty where the body is just broken.
    """

    def __init__(self, reason: str, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(reason, kinds=kinds)
        self.kinds = kinds


@dataclass(slots=True)
class BodyFindings:
    """What was met in one body.

    Attributes:
        kinds: Of what was taken out.
        given: Tools in the request, at every place.
        kept: Tools that stay.
    """

    kinds: set[str] = field(default_factory=set)
    given: int = 0
    kept: int = 0
    kept_names: set[str] = field(default_factory=set)

    def refuse(self, reason: str, kind: object) -> NoReturn:
        """End with a refusal that names the kind.

        Raises:
            RefusedBodyError: Always.
        """
        self.kinds.add(plain(kind))
        raise RefusedBodyError(reason, tuple(sorted(self.kinds)))

    def malformed(self, what: str) -> NoReturn:
        """End with a refusal of something that has another form than the API asks for.

        Raises:
            RefusedBodyError: Always.
        """
        raise RefusedBodyError(
            f"{what} of the request has no known form", tuple(sorted(self.kinds))
        )

    def check_tools(self) -> None:
        """End where tools were asked for and none is left.

        Raises:
            RefusedBodyError: So it is.
        """
        if self.given and not self.kept:
            reason = (
                "tools that the provider runs are not allowed in this run, and no other is left"
            )
            raise RefusedBodyError(reason, tuple(sorted(self.kinds)))


Close = Callable[[JsonObject, BodyFindings], JsonObject]
"""Returns what is left of a body, or raises RefusedBodyError."""


def relayed_body(raw: bytes, close: Close) -> RelayedBody:
    """Return what is sent.

    Args:
        raw: The request's body.
        close: The provider's closed list, or its wider one where external tools are allowed.

    Raises:
        RefusedBodyError: It is no plain JSON object, or asks for something that is neither allowed
            nor can be taken out.
    """
    if sum(raw.count(sign) for sign in b"{[,") > VALUES:
        raise RefusedBodyError(f"the body of the request has more than {VALUES} values")
    try:
        body = decode_object(raw)
    except ValueError as error:
        raise RefusedBodyError(f"the body of the request is no plain JSON: {error}") from error
    if _is_deep(body):
        raise RefusedBodyError(f"the body of the request has more than {NESTING} levels")
    findings = BodyFindings()
    kept = close(body, findings)
    data = json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()
    return RelayedBody(data, plain(kept.get("model")), tuple(sorted(findings.kinds)))


def plain(kind: object) -> str:
    """Return a kind that may stand in reports and messages."""
    return kind if isinstance(kind, str) and _KIND.fullmatch(kind) else UNNAMED


def permitted_fields(
    body: JsonObject, known: Collection[str], refused: Mapping[str, str], findings: BodyFindings
) -> JsonObject:
    """Return the fields that are listed; others that say something are noted.

    Args:
        body: Of the request.
        known: Names that are sent on.
        refused: What a field would do, by name.
        findings: Of the request.

    Raises:
        RefusedBodyError: A field is set that changes what the answer rests on, or the model looks
            things up by itself, or is no text.
    """
    _refuse_fields(body, refused, findings)
    _check_model(body, findings)
    findings.kinds |= {
        plain(name) for name, value in body.items() if name not in known and value not in _UNSET
    }
    return {name: value for name, value in body.items() if name in known}


def objects(value: object, what: str, findings: BodyFindings) -> list[JsonObject]:
    """Return a list of objects.

    Raises:
        RefusedBodyError: It is something else.
    """
    if not isinstance(value, list):
        findings.malformed(what)
    return [each if isinstance(each, dict) else findings.malformed(what) for each in value]


def _refuse_fields(body: JsonObject, refused: Mapping[str, str], findings: BodyFindings) -> None:
    for name, effect in refused.items():
        if body.get(name) not in _UNSET:
            findings.refuse(f"the field {name} is not relayed: {effect}", name)


def _check_model(body: JsonObject, findings: BodyFindings) -> None:
    """End where the model itself looks things up: search and deep-research models."""
    model = body.get("model")
    if not isinstance(model, str):
        findings.malformed("the field model")
    if "search" in model.lower():
        findings.refuse("models that search by themselves are not allowed in this run", "model")


def _is_deep(body: JsonObject) -> bool:
    """Tell whether a body has more levels than are relayed, without a call per level."""
    level: list[object] = [body]
    for _ in range(NESTING):
        level = [inner for value in level for inner in _inner(value)]
    return any(isinstance(value, dict | list) for value in level)


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


_UNSET: Final[tuple[object, ...]] = (None, False, [], {})
