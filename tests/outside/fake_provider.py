"""A scripted provider of models: Responses, Chat Completions and Messages over TLS.

The model's name chooses the script (oracle_scripts.py), the step is the number of tool results in
the request, so repeated and parallel requests replay. Only the planted key is served; a request is
written down with the names of its headers, never with their values.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import random
import ssl
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from outside import journal
from outside.model_wire import ANTHROPIC, CHAT, OPENAI, Asked, Body, Dialect, Step
from outside.oracle_scripts import DELAY_SECONDS, PATIENT, obey, obey_in, script_of, solve
from outside.web import listen, note_server_names

RETRY_AFTER_SECONDS = 1
EVENT_SECONDS = 1.0
"""Between two events of the script ``slow``."""
ELSEWHERE = "https://files.other.test/v1/responses"

Sent = web.StreamResponse
Failing = Callable[[web.Request, Dialect], Coroutine[Any, Any, Sent]]


class Fault(NamedTuple):
    """How a script fails.

    Attributes:
        status: Of an answer that is an error; 0 for a connection that is reset.
        times: In one conversation; 0 for ever.
        cuts: Whether the answer begins and is cut in the middle.
    """

    status: int = 0
    times: int = 0
    cuts: bool = False


FAULTS = {
    "401": Fault(401),
    "403": Fault(403),
    "429": Fault(429),
    "429-once": Fault(429, times=1),
    "500": Fault(500),
    "500-once": Fault(500, times=1),
    "reset": Fault(),
    "reset-once": Fault(times=1),
    "cut": Fault(cuts=True),
    "cut-once": Fault(times=1, cuts=True),
    "redirect": Fault(307),
}
"""By the script's name; others: ``oracle``, ``obey``, ``endless``, ``slow``, ``patient-N``."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request for an answer."""

    request: web.Request
    dialect: Dialect
    body: Body
    asked: Asked
    step: Step
    task: str


class Provider:
    """Serves one key.

    Args:
        key: What all interfaces accept.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._failed: dict[tuple[str, str, str], int] = defaultdict(int)
        self._delays: dict[str, random.Random] = {}

    async def openai(self, request: web.Request) -> Sent:
        """Answer ``POST /v1/responses``."""
        return await self._answer(request, OPENAI)

    async def chat(self, request: web.Request) -> Sent:
        """Answer ``POST /v1/chat/completions``."""
        return await self._answer(request, CHAT)

    async def anthropic(self, request: web.Request) -> Sent:
        """Answer ``POST /v1/messages``."""
        return await self._answer(request, ANTHROPIC)

    async def other(self, request: web.Request) -> Sent:
        """Write down what neither command line tool should ask for."""
        await request.read()
        dialect = ANTHROPIC if "x-api-key" in request.headers else OPENAI
        self._note(request, dialect, 404)
        return web.json_response({"error": {"type": "not_found_error"}}, status=404)

    async def _answer(self, request: web.Request, dialect: Dialect) -> Sent:
        began = time.monotonic()
        try:
            body = json.loads(await request.read())
            asked = dialect.asked(body)
        except (ValueError, AttributeError, TypeError):
            self._note(request, dialect, 400)
            return web.json_response(dialect.error(400), status=400)
        call = _call(request, dialect, body, asked)
        if not self._has_key(request, dialect):
            return self._error(call, 401)
        fault = self._fault(call)
        if fault is not None:
            return await self._fail(call, fault)
        if script_of(str(body.get("model"))).name.startswith(PATIENT):
            return await self._answer_late(call, began)
        self._note_call(call, 200)
        return await _send(call)

    async def _answer_late(self, call: Call, began: float) -> Sent:
        """Answer after a delay; how long the call was here is written down when it is over.

        Delays are drawn in the order of the model's calls, with its name as seed.
        """
        model = str(call.body.get("model"))
        delays = self._delays.setdefault(model, random.Random(model))  # noqa: S311
        await asyncio.sleep(delays.uniform(*DELAY_SECONDS))
        sent = await _send(call)
        self._note_call(call, 200, seconds=round(time.monotonic() - began, 4))
        return sent

    def _fault(self, call: Call) -> Fault | None:
        """Return the failure that this request meets, and count it."""
        script = script_of(str(call.body.get("model")), call.task)
        fault = FAULTS.get(script.name)
        if fault is None or (script.tasks and call.task not in script.tasks):
            return None
        if script.tasks and len(call.asked.outputs) != 1:
            return None
        place = (str(call.body.get("model")), call.task, call.asked.conversation)
        self._failed[place] += 1
        return fault if not fault.times or self._failed[place] <= fault.times else None

    async def _fail(self, call: Call, fault: Fault) -> Sent:
        if fault.cuts:
            self._note_call(call, 200, fault="cut")
            return await _stream(call, cut=True)
        if fault.status:
            return self._error(call, fault.status)
        self._note_call(call, 0, fault="reset")
        assert call.request.transport is not None
        call.request.transport.abort()
        return web.Response()

    def _error(self, call: Call, status: int) -> Sent:
        self._note_call(call, status)
        headers = {
            429: {"Retry-After": str(RETRY_AFTER_SECONDS)},
            307: {"Location": ELSEWHERE},
        }.get(status)
        return web.json_response(call.dialect.error(status), status=status, headers=headers)

    def _has_key(self, request: web.Request, dialect: Dialect) -> bool:
        return hmac.compare_digest(dialect.key(request.headers).encode(), self._key.encode())

    def _note_call(self, call: Call, status: int, **more: object) -> None:
        self._note(
            call.request,
            call.dialect,
            status,
            model=call.body.get("model"),
            tools=call.asked.tools,
            step=len(call.asked.outputs),
            task=call.task,
            conversation=call.asked.conversation,
            **more,
        )

    def _note(self, request: web.Request, dialect: Dialect, status: int, **more: object) -> None:
        has_any = bool(dialect.key(request.headers))
        wrong = "different" if has_any else "missing"
        journal.write(
            "provider",
            peer=request.remote,
            name=request.host,
            method=request.method,
            path=request.raw_path,
            headers=sorted(name.lower() for name in request.headers),
            key="equal" if self._has_key(request, dialect) else wrong,
            status=status,
            **more,
        )


def _call(request: web.Request, dialect: Dialect, body: Body, asked: Asked) -> Call:
    name = script_of(str(body.get("model"))).name
    if name == "endless":
        return Call(request, dialect, body, asked, Step("true"), "")
    if name == "obey":
        return Call(request, dialect, body, asked, obey(asked), "")
    if name.startswith(PATIENT):
        step, task = obey_in(asked, int(name.removeprefix(PATIENT)))
    else:
        step, task = solve(asked)
    return Call(request, dialect, body, asked, step, task)


async def _send(call: Call) -> Sent:
    document = call.dialect.document(call.body, call.step)
    return await _stream(call) if document is None else web.json_response(document)


async def _stream(call: Call, *, cut: bool = False) -> Sent:
    """Send the answer's events; a cut one ends in the middle of an event, without its end."""
    events = call.dialect.events(call.body, call.step)
    pause = EVENT_SECONDS if script_of(str(call.body.get("model"))).name == "slow" else 0.0
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
    )
    await response.prepare(call.request)
    for name, data in events[: len(events) // 2] if cut else events:
        kind = f"event: {name}\n" if name else ""
        await response.write(f"{kind}data: {json.dumps(data)}\n\n".encode())
        await asyncio.sleep(pause)
    if call.dialect is CHAT and not cut:
        await response.write(b"data: [DONE]\n\n")
    if cut:
        await response.write(b"event: resp")
        assert call.request.transport is not None
        call.request.transport.close()
    return response


async def start(address: str, context: ssl.SSLContext, key: str) -> None:
    """Listen on port 443 of an address."""
    note_server_names(context, address)
    provider = Provider(key)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post(OPENAI.path, provider.openai)
    app.router.add_post(CHAT.path, provider.chat)
    app.router.add_post(ANTHROPIC.path, provider.anthropic)
    app.router.add_route("*", "/{path:.*}", provider.other)
    await listen(app, address, {443: context})
