"""Whose trouble an error is: bodies as servers send them (docs/reference/network.md)."""

from __future__ import annotations

import json
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
PROVIDERS: dict[str, tuple[int, Any, Kind, str]] = {
    "Anthropic: no credit": (400, LOW, Kind.CREDIT, QUOTA),
    "Anthropic: usage limit": (
        400,
        claude("invalid_request_error", "You have reached your specified API usage limits."),
        Kind.CREDIT,
        QUOTA,
    ),
    "Anthropic: disabled": (
        400,
        claude("invalid_request_error", "This organization has been disabled."),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Anthropic: key": (401, claude("authentication_error", "invalid x-api-key"), Kind.KEY, AUTH),
    "Anthropic: permission": (403, claude("permission_error", "no"), Kind.STATUS, AUTH),
    "Anthropic: model": (
        404,
        claude("not_found_error", "model: claude-3-opus-20240229"),
        Kind.MODEL,
        DOWN,
    ),
    "Anthropic: overloaded": (529, claude("overloaded_error", "Overloaded"), Kind.OVERLOAD, DOWN),
    "Anthropic: rate": (429, claude("rate_limit_error", "This request would"), Kind.RATE, QUOTA),
    "Anthropic: billing": (402, claude("billing_error", "Update your card"), Kind.CREDIT, QUOTA),
    "Anthropic: broken": (500, claude("api_error", "Internal server error"), Kind.STATUS, DOWN),
    "OpenAI: hard limit": (
        400,
        openai("Billing hard limit has been reached", code="billing_hard_limit_reached"),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenAI: quota": (
        429,
        openai("You exceeded your current quota", "insufficient_quota", "insufficient_quota"),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenAI: not active": (
        429,
        openai("Your account is not active", "billing_not_active", "billing_not_active"),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenAI: rate": (
        429,
        openai("Rate limit reached for gpt-5", "tokens", "rate_limit_exceeded"),
        Kind.RATE,
        QUOTA,
    ),
    "OpenAI: key": (
        401,
        openai("Incorrect API key provided: sk-x.", code="invalid_api_key"),
        Kind.KEY,
        AUTH,
    ),
    "OpenAI: deactivated": (
        401,
        openai("deactivated", code="account_deactivated"),
        Kind.ACCOUNT,
        AUTH,
    ),
    "OpenAI: country": (
        403,
        openai("Country", "request_forbidden", "unsupported_country_region_territory"),
        Kind.ACCOUNT,
        AUTH,
    ),
    "OpenAI: verified": (
        400,
        openai("Your organization must be verified to use the model `o9`."),
        Kind.ACCOUNT,
        AUTH,
    ),
    "OpenAI: model": (
        404,
        openai(
            "The model `gpt-9` does not exist or you do not have access", code="model_not_found"
        ),
        Kind.MODEL,
        DOWN,
    ),
    "OpenAI: deprecated": (
        404,
        openai("The model `text-davinci-003` has been deprecated, learn more here"),
        Kind.MODEL,
        DOWN,
    ),
    "OpenAI: slow down": (503, openai("Slow down", "slow_down"), Kind.OVERLOAD, DOWN),
    "Gemini: key": (
        400,
        google(400, "INVALID_ARGUMENT", "API key not valid. Please pass one.", "API_KEY_INVALID"),
        Kind.KEY,
        AUTH,
    ),
    "Gemini: key without a reason": (
        400,
        {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}},
        Kind.KEY,
        AUTH,
    ),
    "Gemini: expired": (
        400,
        google(400, "INVALID_ARGUMENT", "API key expired. Please renew the API key."),
        Kind.KEY,
        AUTH,
    ),
    "Gemini: leaked": (
        403,
        google(403, "PERMISSION_DENIED", "Your API key was reported as leaked."),
        Kind.KEY,
        AUTH,
    ),
    "Gemini: suspended": (
        403,
        google(403, "PERMISSION_DENIED", "Consumer 'api_key:x' has been suspended."),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Gemini: place": (
        400,
        google(400, "FAILED_PRECONDITION", "User location is not supported for the API use."),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Gemini: quota": (
        429,
        google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota"),
        Kind.RATE,
        QUOTA,
    ),
    "Gemini: overloaded": (
        503,
        google(503, "UNAVAILABLE", "The model is overloaded."),
        Kind.OVERLOAD,
        DOWN,
    ),
    "Gemini: model": (
        404,
        google(404, "NOT_FOUND", "models/gemini-0 is not found for API version v1beta"),
        Kind.MODEL,
        DOWN,
    ),
    "Azure: key": (
        401,
        azure("401", "Access denied due to invalid subscription key or wrong API endpoint."),
        Kind.KEY,
        AUTH,
    ),
    "Azure: deployment": (
        404,
        azure("DeploymentNotFound", "The API deployment for this resource does not exist."),
        Kind.MODEL,
        DOWN,
    ),
    "Azure: network": (
        403,
        azure("AccessDenied", "Access denied due to Virtual Network/Firewall rules."),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Azure: rate": (429, azure("RateLimitReached", "Requests to the API"), Kind.RATE, QUOTA),
    "Azure: no capacity": (429, azure("NoCapacity", "x"), Kind.OVERLOAD, DOWN),
    "vLLM: model": (
        404,
        vllm("The model `x` does not exist.", "NotFoundError", 404),
        Kind.MODEL,
        DOWN,
    ),
    "vLLM: broken": (500, vllm("EngineCore died", "InternalServerError", 500), Kind.STATUS, DOWN),
    "vLLM: key": (401, {"error": "Unauthorized"}, Kind.KEY, AUTH),
    "LiteLLM: budget": (
        400,
        litellm("Budget has been exceeded! Current cost: 1", "400", "budget_exceeded"),
        Kind.CREDIT,
        QUOTA,
    ),
    "LiteLLM: wrapped": (
        400,
        litellm(
            f"litellm.BadRequestError: AnthropicException - {json.dumps(LOW)}. Received Model"
            " Group=x",
            "400",
        ),
        Kind.CREDIT,
        QUOTA,
    ),
    "LiteLLM: wrapped bytes": (
        400,
        litellm(f"litellm.BadRequestError: AnthropicException - b'{json.dumps(LOW)}'", "400"),
        Kind.CREDIT,
        QUOTA,
    ),
    "LiteLLM: wrapped as Python": (
        400,
        litellm(
            "litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': {'message':"
            " 'x', 'code': 'billing_hard_limit_reached'}}",
            "400",
        ),
        Kind.CREDIT,
        QUOTA,
    ),
    "LiteLLM: key": (
        401,
        litellm("Authentication Error, Invalid proxy server token passed", "401", "auth_error"),
        Kind.KEY,
        AUTH,
    ),
    "LiteLLM: model": (
        400,
        {"error": {"message": "{'error': '/chat/completions: Invalid model name passed in x'}"}},
        Kind.MODEL,
        DOWN,
    ),
    "LiteLLM: rate": (429, litellm("litellm.RateLimitError: x", "429"), Kind.STATUS, QUOTA),
    "Ollama: model": (
        404,
        openai('model "x" not found, try pulling it first', "api_error"),
        Kind.MODEL,
        DOWN,
    ),
    "Ollama: native": (404, {"error": "model 'x' not found"}, Kind.MODEL, DOWN),
    "Ollama: runner": (
        500,
        {"error": "llama runner process has terminated: signal: killed"},
        Kind.OVERLOAD,
        DOWN,
    ),
    "llama.cpp: loading": (
        503,
        {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}},
        Kind.OVERLOAD,
        DOWN,
    ),
    "OpenRouter: credit": (
        402,
        router(402, "This request requires more credits, or fewer max_tokens."),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenRouter: key limit": (
        403,
        router(403, "Key limit exceeded (total limit)"),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenRouter: key": (401, router(401, "User not found."), Kind.KEY, AUTH),
    "OpenRouter: endpoints": (404, router(404, "No endpoints found for x/y."), Kind.MODEL, DOWN),
    "OpenRouter: model": (400, router(400, "x/y is not a valid model ID"), Kind.MODEL, DOWN),
    "OpenRouter: upstream": (
        400,
        router(400, "Provider returned error", raw=json.dumps(LOW), provider_name="Anthropic"),
        Kind.CREDIT,
        QUOTA,
    ),
    "OpenRouter: down": (502, router(502, "Provider returned error"), Kind.STATUS, DOWN),
    "Groq: restricted": (
        400,
        openai("Organization has been restricted.", code="organization_restricted"),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Groq: spend": (
        400,
        openai("Organization has reached its spend alert threshold", code="blocked_api_access"),
        Kind.ACCOUNT,
        AUTH,
    ),
    "Groq: decommissioned": (
        400,
        openai("The model `x` has been decommissioned", code="model_decommissioned"),
        Kind.MODEL,
        DOWN,
    ),
    "Groq: tokens a minute": (
        413,
        openai("Request too large for model", "tokens", "rate_limit_exceeded"),
        Kind.RATE,
        QUOTA,
    ),
    "DeepSeek: balance": (
        402,
        openai("Insufficient Balance", "unknown_error", "invalid_request_error"),
        Kind.CREDIT,
        QUOTA,
    ),
    "Moonshot: suspended": (
        429,
        openai("Your account x is suspended", "exceeded_current_quota_error"),
        Kind.CREDIT,
        QUOTA,
    ),
    "DashScope: arrears": (
        400,
        azure("Arrearage", "Access denied, please make sure your account is in good standing."),
        Kind.CREDIT,
        QUOTA,
    ),
    "xAI: key": (
        400,
        {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: x."},
        Kind.KEY,
        AUTH,
    ),
    "xAI: credit": (
        403,
        {"code": "x", "error": "Your newly created team doesn't have any credits yet."},
        Kind.CREDIT,
        QUOTA,
    ),
    "Fireworks: suspended": (
        412,
        openai(
            "Account x is suspended, possibly due to reaching the monthly spending limit", "error"
        ),
        Kind.CREDIT,
        QUOTA,
    ),
    "Together: credit": (402, openai("Credit limit exceeded", "credit_limit"), Kind.CREDIT, QUOTA),
    "Mistral: key": (401, {"detail": "Unauthorized"}, Kind.KEY, AUTH),
    "Bedrock: throttled": (
        429,
        {"__type": "ThrottlingException", "message": "x"},
        Kind.RATE,
        QUOTA,
    ),
    "a page": (503, None, Kind.STATUS, DOWN),
    "a page of a proxy": (403, None, Kind.STATUS, AUTH),
}
AGENTS: dict[str, tuple[int, Any, Kind]] = {
    "Anthropic: too long": (
        400,
        claude("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
        Kind.CONTEXT,
    ),
    "Anthropic: with the answer": (
        400,
        claude("invalid_request_error", "input length and `max_tokens` exceed context limit: 1"),
        Kind.CONTEXT,
    ),
    "Anthropic: too large": (413, claude("request_too_large", "x"), Kind.CONTEXT),
    "Anthropic: filtered": (
        400,
        claude("invalid_request_error", "Output blocked by content filtering policy"),
        Kind.CONTENT,
    ),
    "Anthropic: malformed": (
        400,
        claude("invalid_request_error", "messages.0: all messages must have content"),
        Kind.STATUS,
    ),
    "OpenAI: too long": (400, openai(LONG, code="context_length_exceeded"), Kind.CONTEXT),
    "OpenAI: policy": (400, openai("x", code="content_policy_violation"), Kind.CONTENT),
    "OpenAI: usage policy": (
        400,
        openai("Your prompt was flagged as potentially violating our usage policy", code=None),
        Kind.CONTENT,
    ),
    "OpenAI: malformed": (400, openai("Unsupported parameter: 'x'"), Kind.STATUS),
    "Azure: filtered": (
        400,
        azure(
            "content_filter",
            "The response was filtered",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
        Kind.CONTENT,
    ),
    "Gemini: too long": (
        400,
        google(
            400,
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
        ),
        Kind.CONTEXT,
    ),
    "vLLM: too long": (400, vllm(LONG), Kind.CONTEXT),
    "SGLang: too long": (
        400,
        vllm("The input (9 tokens) is longer than the model's context length (8 tokens)."),
        Kind.CONTEXT,
    ),
    "llama.cpp: too long": (
        400,
        openai("the request exceeds the available context size", "exceed_context_size_error", 400),
        Kind.CONTEXT,
    ),
    "LiteLLM: too long": (
        400,
        litellm(f"litellm.ContextWindowExceededError: OpenAIException - {LONG}", "400"),
        Kind.CONTEXT,
    ),
    "Ollama: too long": (
        500,
        {"error": "the input length exceeds the context length"},
        Kind.CONTEXT,
    ),
    "OpenRouter: moderated": (
        403,
        router(403, "Your chosen model requires moderation and your input was flagged for x"),
        Kind.CONTENT,
    ),
    "DashScope: inspected": (400, azure("data_inspection_failed", "x"), Kind.CONTENT),
    "vLLM: malformed": (
        422,
        {"detail": [{"type": "missing", "msg": "Field required"}]},
        Kind.STATUS,
    ),
    "an unknown path": (404, None, Kind.STATUS),
}


@pytest.mark.parametrize("name", PROVIDERS)
def test_these_are_troubles_of_the_provider(name):
    status, body, kind, failure = PROVIDERS[name]
    assert trouble_of(body, status) == (kind, failure)


@pytest.mark.parametrize("name", AGENTS)
def test_these_are_troubles_of_the_agent(name):
    status, body, kind = AGENTS[name]
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
