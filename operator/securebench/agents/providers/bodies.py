"""Filter request bodies by an allow-list per provider, so that only the model itself answers.

The body is parsed strictly and serialised again, so that the provider sees exactly what was
checked. Tools hosted by the provider are stripped; anything that would make it fetch data is
refused.

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
"""Replaces a kind that is not a plain word, because kinds come from the agent."""

VALUES: Final = 1_000_000
"""Maximum number of values in one body, estimated from its punctuation: each takes much memory."""

NESTING: Final = 64
"""Maximum nesting of one body; tool schemas have a dozen levels. JSON parsers disagree about much
deeper ones."""

_KIND: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,127}")
"""Open models have the names of their repositories and tags."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_=\s-]*")
"""Without a colon or a dot, so no URL and no name of a host or a file."""


@dataclass(frozen=True, slots=True)
class RelayedBody:
    """The filtered body of a request.

    Attributes:
        data: JSON.
        model: Requested model; ``unnamed`` if the name is not a plain word.
        stripped: Sorted kinds of what was stripped: types of tools and names of fields.
        is_streamed: Whether it asks for a stream of events.
    """

    data: bytes
    model: str
    stripped: tuple[str, ...] = ()
    is_streamed: bool = False


class RefusedBodyError(SecureBenchError):
    """A request that is not relayed.

    Args:
        reason: Message for the agent; quotes only plain words.
        kinds: Sorted kinds of what was asked for; empty if the body is malformed.
    """

    def __init__(self, reason: str, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(reason, kinds=kinds)
        self.kinds = kinds


@dataclass(slots=True)
class BodyFindings:
    """Findings while a body is filtered.

    Attributes:
        kinds: Kinds of what was stripped.
        given: Number of tools in the request.
        kept: Number of tools that were kept.
        kept_names: Names of the tools that were kept.
    """

    kinds: set[str] = field(default_factory=set)
    given: int = 0
    kept: int = 0
    kept_names: set[str] = field(default_factory=set)

    def refuse(self, reason: str, kind: object) -> NoReturn:
        """Refuse the request and note the kind.

        Raises:
            RefusedBodyError: Always.
        """
        self.kinds.add(plain(kind))
        raise RefusedBodyError(reason, tuple(sorted(self.kinds)))

    def malformed(self, what: str) -> NoReturn:
        """Refuse a request that does not match the API's schema.

        Raises:
            RefusedBodyError: Always.
        """
        raise RefusedBodyError(
            f"{what} of the request has no known form", tuple(sorted(self.kinds))
        )

    def check_tools(self) -> None:
        """Refuse a request whose tools were all stripped.

        Raises:
            RefusedBodyError: The request has tools, but none is left.
        """
        if self.given and not self.kept:
            reason = (
                "tools that the provider runs are not allowed in this run, and no other is left"
            )
            raise RefusedBodyError(reason, tuple(sorted(self.kinds)))


Close = Callable[[JsonObject, BodyFindings], JsonObject]
"""Filters a body, or raises RefusedBodyError."""


def relayed_body(raw: bytes, close: Close) -> RelayedBody:
    """Filter the body of a request.

    Args:
        raw: The request's body.
        close: The provider's filter, with or without hosted tools.

    Raises:
        RefusedBodyError: It is not a plain JSON object, or asks for something that is not allowed
            and cannot be stripped.
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
    return RelayedBody(
        data=data,
        model=plain(kept.get("model"), _MODEL),
        stripped=tuple(sorted(findings.kinds)),
        is_streamed=kept.get("stream") is True,
    )


def plain(kind: object, pattern: re.Pattern[str] = _KIND) -> str:
    """Return a kind, or the name of a model, that is safe for reports and messages."""
    return kind if isinstance(kind, str) and pattern.fullmatch(kind) else UNNAMED


def permitted_fields(
    body: JsonObject, known: Collection[str], refused: Mapping[str, str], findings: BodyFindings
) -> JsonObject:
    """Keep the allowed fields; others that have a value are noted as stripped.

    Args:
        body: Body of the request.
        known: Names of allowed fields.
        refused: Fields that cause a refusal, with their effect.
        findings: Updated in place.

    Raises:
        RefusedBodyError: A refused field is set, or the model searches by itself or is not a
            string.
    """
    _refuse_fields(body, refused, findings)
    _check_model(body, findings)
    return known_fields(body, known, findings)


def known_fields(given: JsonObject, known: Collection[str], findings: BodyFindings) -> JsonObject:
    """Keep the allowed fields of an object; others that have a value are noted as stripped."""
    findings.kinds |= {
        plain(name) for name, value in given.items() if name not in known and value not in _UNSET
    }
    return {name: value for name, value in given.items() if name in known}


def objects(value: object, what: str, findings: BodyFindings) -> list[JsonObject]:
    """Require a list of objects.

    Raises:
        RefusedBodyError: It is something else.
    """
    if not isinstance(value, list):
        findings.malformed(what)
    return [each if isinstance(each, dict) else findings.malformed(what) for each in value]


def check_inline(data: object, name: str, findings: BodyFindings) -> None:
    """Refuse content that is not in the request itself: servers fetch what they take for a URL.

    Args:
        data: A data: URL, base64, or None.
        name: Field that the content belongs to.
        findings: Of the request.

    Raises:
        RefusedBodyError: It is something else.
    """
    if data is None:
        return
    is_base64 = isinstance(data, str) and _BASE64.fullmatch(data) is not None
    if not is_base64 and not is_data_url(data):
        findings.refuse(f"{name} is not relayed: send base64 or a data: URL", name)


def check_audio(part: JsonObject, findings: BodyFindings) -> None:
    """Refuse speech that the provider would fetch.

    Raises:
        RefusedBodyError: It is not base64 in the field ``data``.
    """
    audio = part.get("input_audio")
    if audio is None:
        return
    if not isinstance(audio, dict) or not set(audio) <= {"data", "format"}:
        findings.refuse("input_audio is relayed with data and format only", "input_audio")
    check_inline(audio.get("data"), "input_audio", findings)


def is_data_url(value: object) -> bool:
    """Return whether a value is a URL that holds its content itself."""
    return isinstance(value, str) and value[:5].lower() == "data:"


def _refuse_fields(body: JsonObject, refused: Mapping[str, str], findings: BodyFindings) -> None:
    for name, effect in refused.items():
        if body.get(name) not in _UNSET:
            findings.refuse(f"the field {name} is not relayed: {effect}", name)


def _check_model(body: JsonObject, findings: BodyFindings) -> None:
    """Refuse models that fetch data by themselves: search and deep-research models."""
    model = body.get("model")
    if not isinstance(model, str):
        findings.malformed("the field model")
    if "search" in model.lower():
        findings.refuse("models that search by themselves are not allowed in this run", "model")


def _is_deep(body: JsonObject) -> bool:
    """Return whether a body is nested too deeply, without recursion."""
    level: list[object] = [body]
    for _ in range(NESTING):
        level = [inner for value in level for inner in _inner(value)]
    return any(isinstance(value, dict | list) for value in level)


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


_UNSET: Final[tuple[object, ...]] = (None, False, [], {})
