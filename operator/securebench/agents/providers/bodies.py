"""Filter request bodies by an allow-list per API, so that only the model itself answers.

Each API lists its fields as data: name and rule, at every depth. One function applies the lists. A
field that no list has is stripped and counted; tools hosted by the provider are stripped; anything
that would make it fetch or read stored data is refused. The body is parsed strictly and serialised
again, so that the provider sees exactly what was checked.

Vendors and routers sell some models that search or run code by themselves, and take endings of a
name (``model:online``) as switches. Only whole names and whole endings count: a part of a word says
nothing about a model. Endings have no common grammar, so one that is neither a version of weights
nor a known variant is refused, unless the tester names exactly this model.

Source: providers 3.5 and 4.3; contract 11.4; A-181; decision 0109.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from securebench.errors import SecureBenchError
from securebench.protocol.messages import decode_object

HOSTED_MODELS: Final = frozenset(
    {
        "compound",
        "compound-beta",
        "compound-beta-mini",
        "compound-mini",
        "gpt-4o-mini-search-preview",
        "gpt-4o-search-preview",
        "gpt-5-search-api",
        "o3-deep-research",
        "o4-mini-deep-research",
        "sonar",
        "sonar-deep-research",
        "sonar-pro",
        "sonar-reasoning",
        "sonar-reasoning-pro",
    }
)
"""Models of OpenAI, Perplexity and Groq that search or run code by themselves."""
HOSTED_ENDINGS: Final = frozenset(
    {
        "browse",
        "browser",
        "code-interpreter",
        "deep-research",
        "grounded",
        "grounding",
        "memory",
        "online",
        "plugins",
        "research",
        "search",
        "tools",
        "web",
        "web-search",
        "websearch",
    }
)
"""Endings by which routers add a search, a memory or other tools."""
_VARIANTS: Final = frozenset(
    {
        *("alpha", "base", "beta", "cerebras", "chat", "cheapest", "cloud", "code", "cohere"),
        *("deepinfra", "default", "exacto", "extended", "fast", "fastest", "featherless-ai"),
        *("fireworks-ai", "floor", "free", "groq", "hf-inference", "high", "hyperbolic"),
        *("instruct", "it", "large", "latest", "low", "max", "medium", "micro", "mini", "nano"),
        *("nebius", "nitro", "novita", "nscale", "nvidia", "ovhcloud", "preferred", "preview"),
        *("pro", "python", "quality", "sambanova", "scaleway", "small", "stable", "standard"),
        *("tee", "text", "think", "thinking", "tiny", "together", "ud", "vision", "xl"),
        "zai-org",
    }
)
"""Endings that choose weights, speed, price or a server, of Ollama and of routers."""
_VERSION: Final = re.compile(
    r"(?:[aev]|i?q|b?f|fp|int|mx?fp|nvfp|w|ud-i?q|rev)?[0-9][a-z0-9._]*(?:-[a-z0-9._]+)*"
)
"""Sizes, quantisations, versions and dates: ``8b``, ``32b-instruct-q4_K_M``, ``v1.5``, ``0``."""
_DATE: Final = re.compile(r"-[0-9]{4}-?[0-9]{2}-?[0-9]{2}")
_OWNERS: Final = frozenset({"arn", "ft"})
"""Beginnings of names whose further parts are ids."""
_SERVERS: Final = frozenset(
    {
        *("anthropic", "azure", "bedrock", "cerebras", "deepseek", "fireworks", "gemini"),
        *("google", "groq", "hf", "huggingface", "mistral", "ollama", "openai", "openrouter"),
        *("together", "vertex_ai", "vllm", "xai"),
    }
)
"""Beginnings that name a server; the model's name follows."""

_ADVICE: Final = "the tester may allow it by harness.config.allow_external_tools"


def model_problem(name: str, named: str = "") -> str:
    """Return why a model is not allowed without tools of the provider, or an empty text.

    Args:
        name: The model.
        named: The model that the tester names, or empty; its ending may be any that is not hosted.
    """
    first, *endings = name.lower().split(":")
    if endings and first in _SERVERS:
        first, *endings = endings
    if _DATE.sub("", first.rpartition("/")[2]) in HOSTED_MODELS:
        return f"models that use tools of their provider by themselves are not allowed; {_ADVICE}"
    hosted = [ending for ending in endings if _is_hosted(ending)]
    if hosted:
        return f"the ending :{_word(hosted[0])} adds tools of the provider; {_ADVICE}"
    known = first.rpartition("/")[2] in _OWNERS or name == named
    strange = [] if known else [ending for ending in endings if not _is_known(ending)]
    if strange:
        return (
            f"the ending :{_word(strange[0])} of the model's name is not known; the tester may name"
            " the model in harness.config.model, or set harness.config.allow_external_tools"
        )
    return ""


def _is_hosted(ending: str) -> bool:
    words = re.split("[/+,&=]", ending.strip())
    first = words[0].strip()
    return first in HOSTED_ENDINGS or _DATE.sub("", words[-1]) in HOSTED_MODELS


def _is_known(ending: str) -> bool:
    # A port of a registry, or a server, comes before a folder.
    tag = ending.partition("/")[0] if re.match("[0-9]{1,5}/", ending) else ending
    return not ending or tag in _VARIANTS or _VERSION.fullmatch(tag) is not None


def _word(ending: str) -> str:
    return ending if re.fullmatch("[a-z0-9_.-]{1,32}", ending) else "(unnamed)"


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
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_META_SCHEMA: Final = re.compile(r"https?://json-schema\.org/[A-Za-z0-9/.-]{0,64}#?")


@dataclass(frozen=True, slots=True)
class RelayedBody:
    """The filtered body of a request.

    Attributes:
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
        model: The model that the tester names, or empty.
        kinds: Kinds of what was stripped.
        given: Number of tools in the request.
        kept: Number of tools that were kept.
        kept_names: Names of the tools that were kept.
    """

    model: str = ""
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


def relayed_body(raw: bytes, close: Close, model: str = "") -> RelayedBody:
    """Filter the body of a request.

    Args:
        raw: The request's body.
        close: The provider's filter, with or without hosted tools.
        model: The model that the tester names, or empty.

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
    findings = BodyFindings(model)
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


Rule = Callable[[object, str, BodyFindings], object]
"""Returns what is sent of a value: all of it, a part, or GONE. Takes value, field and findings."""

Fields = Mapping[str, Rule]
"""Allow-list of an object: the known fields, each with its rule."""


def _sent_fields(given: JsonObject, fields: Fields, findings: BodyFindings) -> JsonObject:
    """Return the known fields of an object; others that have a value are noted as stripped."""
    left = {
        name: value if value is None else fields[name](value, name, findings)
        for name, value in given.items()
        if name in fields
    }
    for name in given.keys() - fields.keys():
        _strip(given[name], name, findings)
    return {name: value for name, value in left.items() if value is not GONE}


def anything(value: object, _name: str, _findings: BodyFindings) -> object:
    """Send a value as it is: data that only the model reads."""
    return value


def plain_value(value: object, name: str, findings: BodyFindings) -> object:
    """Send a text, number or truth value; strip everything else."""
    return value if not isinstance(value, dict | list) else _strip(value, name, findings)


def shape(**fields: Rule) -> Rule:
    """Return the rule of an object with these fields; everything else is stripped."""

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        if not isinstance(value, dict):
            return _strip(value, name, findings)
        return _sent_fields(value, fields, findings)

    return rule


def plain_fields(*names: str) -> Rule:
    """Return the rule of an object whose fields have plain values."""
    return shape(**dict.fromkeys(names, plain_value))


def plain_map(value: object, name: str, findings: BodyFindings) -> object:
    """Send an object with fields of any names and plain values; everything else is stripped."""
    if not isinstance(value, dict):
        return _strip(value, name, findings)
    return _sent_fields(value, dict.fromkeys(value, plain_value), findings)


def exactly(told: str, kind: str, **fields: Rule) -> Rule:
    """Return the rule of an object that has no other fields; everything else is refused."""
    known = shape(**fields)

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        if not isinstance(value, dict) or not set(value) <= set(fields):
            findings.refuse(told, kind)
        return known(value, name, findings)

    return rule


def each(rule: Rule) -> Rule:
    """Return the rule of a list; everything else is stripped."""

    def of_list(value: object, name: str, findings: BodyFindings) -> object:
        if not isinstance(value, list):
            return _strip(value, name, findings)
        left = (rule(one, name, findings) for one in value)
        return [one for one in left if one is not GONE]

    return of_list


def objects_of(rule: Rule) -> Rule:
    """Return the rule of a list of objects; everything else is refused."""

    def of_list(value: object, name: str, findings: BodyFindings) -> object:
        return [rule(one, name, findings) for one in objects(value, f"the field {name}", findings)]

    return of_list


def either(plain_rule: Rule, nested: Rule) -> Rule:
    """Return the rule of a plain value, or else an object or a list."""

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        is_nested = isinstance(value, dict | list)
        return (nested if is_nested else plain_rule)(value, name, findings)

    return rule


def plain_or(nested: Rule) -> Rule:
    """Return the rule of any plain value, or else an object or a list."""
    return either(plain_value, nested)


def typed(
    kinds: Mapping[str, Fields], told: str, untyped: Callable[[JsonObject], str] = lambda _: ""
) -> Rule:
    """Return the rule of an object that its ``type`` distinguishes.

    Args:
        kinds: Fields by type; other types are refused.
        told: Message about another type, with a place for it.
        untyped: Returns the type of an object without one, or empty.
    """

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        if not isinstance(value, dict):
            findings.malformed(f"the field {name}")
        kind = value.get("type")
        kind = untyped(value) if kind is None else kind
        fields = kinds.get(kind) if isinstance(kind, str) else None
        if fields is None:
            findings.refuse(told.format(plain(kind)), kind)
        return _sent_fields(value, {"type": plain_value, **fields}, findings)

    return rule


def text_or_list(rule: Rule) -> Rule:
    """Return the rule of a text, or a list of objects; everything else is refused."""

    def of_either(value: object, name: str, findings: BodyFindings) -> object:
        if isinstance(value, str):
            return value
        if not isinstance(value, list):
            findings.malformed(f"the field {name}")
        return [rule(one, name, findings) for one in value]

    return of_either


def words(*allowed: str) -> Rule:
    """Return the rule of a list of words; others are stripped."""

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        given = value if isinstance(value, list) else [value]
        kept = [word for word in given if isinstance(word, str) and word in allowed]
        if len(kept) < len(given):
            findings.kinds.add(plain(name))
        return kept if kept or not given else GONE

    return rule


def refused(effect: str) -> Rule:
    """Return the rule of a field that causes a refusal where it is set."""

    def rule(value: object, name: str, findings: BodyFindings) -> object:
        if value not in _UNSET:
            findings.refuse(f"the field {name} is not relayed: {effect}", name)
        return GONE

    return rule


def never_stored(value: object, name: str, findings: BodyFindings) -> object:
    """Send false, so that the provider stores no answer."""
    if value:
        findings.kinds.add(name)
    return False


def inline(kind: str) -> Rule:
    """Return the rule of content as base64 or a ``data:`` URL; everything else is refused.

    Servers fetch what they take for a URL.
    """

    def rule(value: object, _name: str, findings: BodyFindings) -> object:
        is_base64 = isinstance(value, str) and _BASE64.fullmatch(value) is not None
        if not is_base64 and not _is_data_url(value):
            findings.refuse(f"{kind} is not relayed: send base64 or a data: URL", kind)
        return value

    return rule


def data_url(kind: str) -> Rule:
    """Return the rule of a ``data:`` URL; everything else is refused."""

    def rule(value: object, _name: str, findings: BodyFindings) -> object:
        if not _is_data_url(value):
            findings.refuse(f"{kind} is not relayed: send a data: URL", kind)
        return value

    return rule


AUDIO: Final = exactly(
    "input_audio is relayed with data and format only",
    "input_audio",
    data=inline("input_audio"),
    format=plain_value,
)
CACHE_CONTROL: Final = plain_fields("scope", "ttl", "type")


def json_schema(value: object, name: str, findings: BodyFindings) -> object:
    """Send a JSON Schema whose references stay inside it; others are refused."""
    if isinstance(value, list):
        for one in value:
            json_schema(one, name, findings)
    elif isinstance(value, dict):
        for key, inner in value.items():
            _check_reference(key, inner, findings)
            json_schema(inner, name, findings)
    return value


def _check_reference(key: str, value: object, findings: BodyFindings) -> None:
    # The value of a property of this name is a schema: an object or a truth value.
    if value is None or isinstance(value, dict | bool):
        return
    is_text = isinstance(value, str)
    if key in _REFERENCES and not (is_text and str(value).startswith("#")):
        findings.refuse(f"{key} is relayed with a place in its own schema only", key)
    if key == "$schema" and not (is_text and _META_SCHEMA.fullmatch(str(value))):
        findings.refuse("$schema is relayed for the drafts of json-schema.org only", key)


@dataclass(frozen=True, slots=True)
class Tools:
    """The rule of a list of tools: the agent's are kept, the provider's are stripped.

    Attributes:
        kinds: Fields of the agent's tools by type; one with a field ``tools`` is a group.
        untyped: Type of a tool without one, or empty.
    """

    kinds: Mapping[str, Fields]
    untyped: str = ""

    def __call__(self, value: object, _name: str, findings: BodyFindings) -> object:
        """Return the agent's tools."""
        if not isinstance(value, list):
            findings.malformed("a list of tools")
        kept = (self._tool(tool, findings) for tool in value)
        return [tool for tool in kept if tool is not None]

    def _tool(self, given: object, findings: BodyFindings) -> JsonObject | None:
        tool: JsonObject = given if isinstance(given, dict) else {"type": None}
        kind = tool.get("type", self.untyped)
        fields = self.kinds.get(kind) if isinstance(kind, str) else None
        if fields is not None and "tools" in fields:
            group = _sent_fields(tool, {"type": plain_value, **fields}, findings)
            return group if group.get("tools") else None
        findings.given += 1
        # A search among tools is the provider's unless the request says that the client runs it.
        is_hosted = kind == "tool_search" and tool.get("execution") != "client"
        if fields is None or is_hosted:
            findings.kinds.add(plain(kind))
            return None
        findings.kept += 1
        findings.kept_names.add(str(tool.get("name")))
        return _sent_fields(tool, {"type": plain_value, **fields}, findings)


def sent_body(
    body: JsonObject, fields: Fields, findings: BodyFindings, *required: str
) -> JsonObject:
    """Return the known fields of a body, which needs a model and the required ones.

    Raises:
        RefusedBodyError: See ``relayed_body``.
    """
    for name in ("model", *required):
        if body.get(name) is None:
            findings.malformed(f"the field {name}")
    kept = _sent_fields(body, fields, findings)
    findings.check_tools()
    return kept


def any_model(value: object, name: str, findings: BodyFindings) -> object:
    """Require a text."""
    return value if isinstance(value, str) else findings.malformed(f"the field {name}")


def closed_model(value: object, name: str, findings: BodyFindings) -> object:
    """Refuse the name of a model that uses tools of its provider by itself.

    Raises:
        RefusedBodyError: It does, or has an ending that is not known.
    """
    problem = model_problem(str(any_model(value, name, findings)), findings.model)
    if problem:
        findings.refuse(problem, "model")
    return value


def objects(value: object, what: str, findings: BodyFindings) -> list[JsonObject]:
    """Require a list of objects.

    Raises:
        RefusedBodyError: It is something else.
    """
    if not isinstance(value, list):
        findings.malformed(what)
    return [each if isinstance(each, dict) else findings.malformed(what) for each in value]


def _is_data_url(value: object) -> bool:
    """Return whether a value is a URL that holds its content itself."""
    return isinstance(value, str) and value[:5].lower() == "data:"


def _strip(value: object, name: str, findings: BodyFindings) -> object:
    """Strip a field that no list has; one without a value is not counted."""
    if value not in _UNSET:
        findings.kinds.add(plain(name))
    return GONE


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
GONE: Final = object()
"""Left of a value that is not sent."""
