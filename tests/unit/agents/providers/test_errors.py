"""Whose trouble an error is: bodies as servers send them (docs/reference/network.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from securebench.agents.providers.answers import Kind, failure_of_status, trouble_of

QUOTA, AUTH, DOWN = "provider_quota", "provider_auth", "provider_unavailable"


def openai(message: str, kind: str | None = "invalid_request_error", code: object = None) -> Any:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def claude(kind: str, message: str) -> Any:
    return {"type": "error", "error": {"type": kind, "message": message}}


def google(code: int, status: str, message: str, reason: str = "") -> Any:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]
    told = {"code": code, "message": message, "status": status}
    return [{"error": told | ({"details": details} if reason else {})}]


def azure(code: str, message: str, **more: object) -> Any:
    return {"error": {"code": code, "message": message, **more}}


def vllm(message: str, kind: str = "BadRequestError", code: int = 400) -> Any:
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def litellm(message: str, code: str, kind: str = "None") -> Any:
    return {"error": {"message": message, "type": kind, "param": "None", "code": code}}


def router(code: int, message: str, **metadata: object) -> Any:
    return {"error": {"code": code, "message": message, "metadata": metadata}, "user_id": "u"}


LOW = claude("invalid_request_error", "Your credit balance is too low to access the Anthropic API.")
LONG = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
PROVIDERS: dict[tuple[Kind, str], dict[str, tuple[int, Any]]] = {
    (Kind.CREDIT, QUOTA): {
        "Anthropic: no credit": (400, LOW),
        "Anthropic: usage limit": (
            400,
            claude("invalid_request_error", "You have reached your specified API usage limits."),
        ),
        "Anthropic: billing": (402, claude("billing_error", "Update your card")),
        "OpenAI: hard limit": (
            400,
            openai("Billing hard limit has been reached", code="billing_hard_limit_reached"),
        ),
        "OpenAI: quota": (
            429,
            openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
        ),
        "OpenAI: not active": (
            429,
            openai("Your account is not active", "billing_not_active", "billing_not_active"),
        ),
        "LiteLLM: budget": (
            400,
            litellm("Budget has been exceeded! Current cost: 1", "400", "budget_exceeded"),
        ),
        "LiteLLM: wrapped": (
            400,
            litellm(
                f"litellm.BadRequestError: AnthropicException - {json.dumps(LOW)}."
                " Received Model Group=x",
                "400",
            ),
        ),
        "LiteLLM: wrapped bytes": (
            400,
            litellm(f"litellm.BadRequestError: AnthropicException - b'{json.dumps(LOW)}'", "400"),
        ),
        "LiteLLM: wrapped as Python": (
            400,
            litellm(
                "litellm.BadRequestError: OpenAIException - Error code: 400 -"
                " {'error': {'message': 'x', 'code': 'billing_hard_limit_reached'}}",
                "400",
            ),
        ),
        "OpenRouter: credit": (
            402,
            router(402, "This request requires more credits, or fewer max_tokens."),
        ),
        "OpenRouter: key limit": (403, router(403, "Key limit exceeded (total limit)")),
        "OpenRouter: upstream": (
            400,
            router(400, "Provider returned error", raw=json.dumps(LOW), provider_name="Anthropic"),
        ),
        "DeepSeek: balance": (
            402,
            openai("Insufficient Balance", "unknown_error", "invalid_request_error"),
        ),
        "Moonshot: suspended": (
            429,
            openai("Your account x is suspended", "exceeded_current_quota_error"),
        ),
        "DashScope: arrears": (
            400,
            azure("Arrearage", "Access denied, please make sure your account is in good standing."),
        ),
        "xAI: credit": (
            403,
            {"code": "x", "error": "Your newly created team doesn't have any credits yet."},
        ),
        "Fireworks: suspended": (
            412,
            openai(
                "Account x is suspended, possibly due to reaching the monthly spending limit",
                "error",
            ),
        ),
        "Together: credit": (402, openai("Credit limit exceeded", "credit_limit")),
    },
    (Kind.ACCOUNT, AUTH): {
        "Anthropic: disabled": (
            400,
            claude("invalid_request_error", "This organization has been disabled."),
        ),
        "OpenAI: deactivated": (401, openai("deactivated", code="account_deactivated")),
        "OpenAI: country": (
            403,
            openai("Country", "request_forbidden", "unsupported_country_region_territory"),
        ),
        "OpenAI: verified": (
            400,
            openai("Your organization must be verified to use the model `o9`."),
        ),
        "Gemini: suspended": (
            403,
            google(403, "PERMISSION_DENIED", "Consumer 'api_key:x' has been suspended."),
        ),
        "Gemini: place": (
            400,
            google(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        ),
        "Azure: network": (
            403,
            azure("AccessDenied", "Access denied due to Virtual Network/Firewall rules."),
        ),
        "Groq: restricted": (
            400,
            openai("Organization has been restricted.", code="organization_restricted"),
        ),
        "Groq: spend": (
            400,
            openai("Organization has reached its spend alert threshold", code="blocked_api_access"),
        ),
    },
    (Kind.KEY, AUTH): {
        "Anthropic: key": (401, claude("authentication_error", "invalid x-api-key")),
        "OpenAI: key": (401, openai("Incorrect API key provided: sk-x.", code="invalid_api_key")),
        "Gemini: key": (
            400,
            google(
                400, "INVALID_ARGUMENT", "API key not valid. Please pass one.", "API_KEY_INVALID"
            ),
        ),
        "Gemini: key without a reason": (
            400,
            {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}},
        ),
        "Gemini: expired": (
            400,
            google(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."),
        ),
        "Gemini: leaked": (
            403,
            google(403, "PERMISSION_DENIED", "Your API key was reported as leaked."),
        ),
        "Azure: key": (
            401,
            azure("401", "Access denied due to invalid subscription key or wrong API endpoint."),
        ),
        "vLLM: key": (401, {"error": "Unauthorized"}),
        "LiteLLM: key": (
            401,
            litellm("Authentication Error, Invalid proxy server token passed", "401", "auth_error"),
        ),
        "OpenRouter: key": (401, router(401, "User not found.")),
        "xAI: key": (
            400,
            {
                "code": "Client specified an invalid argument",
                "error": "Incorrect API key provided: x.",
            },
        ),
        "Mistral: key": (401, {"detail": "Unauthorized"}),
    },
    (Kind.STATUS, AUTH): {
        "Anthropic: permission": (403, claude("permission_error", "no")),
        "a page of a proxy": (403, None),
    },
    (Kind.MODEL, DOWN): {
        "Anthropic: model": (404, claude("not_found_error", "model: claude-3-opus-20240229")),
        "OpenAI: model": (
            404,
            openai(
                "The model `gpt-9` does not exist or you do not have access", code="model_not_found"
            ),
        ),
        "OpenAI: deprecated": (
            404,
            openai("The model `text-davinci-003` has been deprecated, learn more here"),
        ),
        "Gemini: model": (
            404,
            google(404, "NOT_FOUND", "models/gemini-0 is not found for API version v1beta"),
        ),
        "Azure: deployment": (
            404,
            azure("DeploymentNotFound", "The API deployment for this resource does not exist."),
        ),
        "vLLM: model": (404, vllm("The model `x` does not exist.", "NotFoundError", 404)),
        "LiteLLM: model": (
            400,
            {
                "error": {
                    "message": "{'error': '/chat/completions: Invalid model name passed in x'}"
                }
            },
        ),
        "Ollama: model": (404, openai('model "x" not found, try pulling it first', "api_error")),
        "Ollama: native": (404, {"error": "model 'x' not found"}),
        "OpenRouter: endpoints": (404, router(404, "No endpoints found for x/y.")),
        "OpenRouter: model": (400, router(400, "x/y is not a valid model ID")),
        "Groq: decommissioned": (
            400,
            openai("The model `x` has been decommissioned", code="model_decommissioned"),
        ),
    },
    (Kind.OVERLOAD, DOWN): {
        "Anthropic: overloaded": (529, claude("overloaded_error", "Overloaded")),
        "OpenAI: slow down": (503, openai("Slow down", "slow_down")),
        "Gemini: overloaded": (503, google(503, "UNAVAILABLE", "The model is overloaded.")),
        "Azure: no capacity": (429, azure("NoCapacity", "x")),
        "Ollama: runner": (500, {"error": "llama runner process has terminated: signal: killed"}),
        "llama.cpp: loading": (
            503,
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        ),
    },
    (Kind.RATE, QUOTA): {
        "Anthropic: rate": (429, claude("rate_limit_error", "This request would")),
        "OpenAI: rate": (
            429,
            openai("Rate limit reached for gpt-5", "tokens", "rate_limit_exceeded"),
        ),
        "Gemini: quota": (
            429,
            google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota"),
        ),
        "Azure: rate": (429, azure("RateLimitReached", "Requests to the API")),
        "Groq: tokens a minute": (
            413,
            openai("Request too large for model", "tokens", "rate_limit_exceeded"),
        ),
        "Bedrock: throttled": (429, {"__type": "ThrottlingException", "message": "x"}),
    },
    (Kind.STATUS, DOWN): {
        "Anthropic: broken": (500, claude("api_error", "Internal server error")),
        "vLLM: broken": (500, vllm("EngineCore died", "InternalServerError", 500)),
        "OpenRouter: down": (502, router(502, "Provider returned error")),
        "a page": (503, None),
    },
    (Kind.STATUS, QUOTA): {
        "LiteLLM: rate": (429, litellm("litellm.RateLimitError: x", "429")),
    },
}
AGENTS: dict[Kind, dict[str, tuple[int, Any]]] = {
    Kind.CONTEXT: {
        "Anthropic: too long": (
            400,
            claude("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        ),
        "Anthropic: with the answer": (
            400,
            claude(
                "invalid_request_error", "input length and `max_tokens` exceed context limit: 1"
            ),
        ),
        "Anthropic: too large": (413, claude("request_too_large", "x")),
        "OpenAI: too long": (400, openai(LONG, code="context_length_exceeded")),
        "Gemini: too long": (
            400,
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            ),
        ),
        "vLLM: too long": (400, vllm(LONG)),
        "SGLang: too long": (
            400,
            vllm("The input (9 tokens) is longer than the model's context length (8 tokens)."),
        ),
        "llama.cpp: too long": (
            400,
            openai(
                "the request exceeds the available context size", "exceed_context_size_error", 400
            ),
        ),
        "LiteLLM: too long": (
            400,
            litellm(f"litellm.ContextWindowExceededError: OpenAIException - {LONG}", "400"),
        ),
        "Ollama: too long": (500, {"error": "the input length exceeds the context length"}),
    },
    Kind.CONTENT: {
        "Anthropic: filtered": (
            400,
            claude("invalid_request_error", "Output blocked by content filtering policy"),
        ),
        "OpenAI: policy": (400, openai("x", code="content_policy_violation")),
        "OpenAI: usage policy": (
            400,
            openai("Your prompt was flagged as potentially violating our usage policy", code=None),
        ),
        "Azure: filtered": (
            400,
            azure(
                "content_filter",
                "The response was filtered",
                innererror={"code": "ResponsibleAIPolicyViolation"},
            ),
        ),
        "OpenRouter: moderated": (
            403,
            router(403, "Your chosen model requires moderation and your input was flagged for x"),
        ),
        "DashScope: inspected": (400, azure("data_inspection_failed", "x")),
    },
    Kind.STATUS: {
        "Anthropic: malformed": (
            400,
            claude("invalid_request_error", "messages.0: all messages must have content"),
        ),
        "OpenAI: malformed": (400, openai("Unsupported parameter: 'x'")),
        "vLLM: malformed": (422, {"detail": [{"type": "missing", "msg": "Field required"}]}),
        "an unknown path": (404, None),
    },
}


def rows(table: Mapping[Any, Mapping[str, tuple[int, Any]]]) -> list[Any]:
    """Return what a server sends, and what that means, as parameters."""
    return [
        pytest.param(status, body, found, id=name)
        for found, bodies in table.items()
        for name, (status, body) in bodies.items()
    ]


@pytest.mark.parametrize(("status", "body", "found"), rows(PROVIDERS))
def test_these_are_troubles_of_the_provider(status, body, found):
    assert trouble_of(body, status) == found


@pytest.mark.parametrize(("status", "body", "kind"), rows(AGENTS))
def test_these_are_troubles_of_the_agent(status, body, kind):
    assert trouble_of(body, status) == (kind, "")


QUOTED = json.dumps({"error": {"code": "insufficient_quota"}})
ECHOES = {
    "a value": openai("Invalid value: 'Your credit balance is too low'."),
    "an error in quotes": openai(f"Invalid value: '{QUOTED}'."),
    "an input": {"detail": [{"msg": "Field required", "input": {"error": json.loads(QUOTED)}}]},
    "a parameter": {"error": {"message": "x", "type": "invalid_request_error", "param": "api_key"}},
    "a name of a model": openai("Unknown parameter: 'Overloaded'"),
}


@pytest.mark.parametrize("name", ECHOES)
def test_what_an_error_quotes_says_nothing(name):
    assert trouble_of(ECHOES[name], 400).failure == ""


def test_a_model_that_is_named_like_an_error_is_a_model():
    for model in ("Insufficient credits", "Rate limit", "Overloaded"):
        assert trouble_of(router(400, f"{model} is not a valid model ID"), 400).kind is Kind.MODEL


def test_errors_in_streams_have_no_status():
    assert trouble_of({"type": "server_error"}) == (Kind.OVERLOAD, DOWN)
    assert trouble_of({"code": 429}) == (Kind.STATUS, QUOTA)
    assert trouble_of("gone") == (Kind.OVERLOAD, DOWN)
    assert trouble_of({"type": "invalid_request_error"}) == (Kind.REQUEST, "")


@pytest.mark.parametrize(
    "body", [{"error": [[[]]]}, 5, {"error": {"error": {"error": {}}}}, "{" * 99]
)
def test_odd_errors_are_judged_by_their_status(body):
    for status in (400, 500):
        assert trouble_of(body, status) == (Kind.STATUS, failure_of_status(status))
