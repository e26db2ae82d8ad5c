"""A proxy between the operator and a real API server that breaks what it is told to break."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from kubernetes.aio.client import Configuration

HOP_BY_HOP = {"host", "connection", "transfer-encoding", "content-length", "content-encoding"}
SLOW_SECONDS = 2.0
EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old (chaos)"}
REASONS = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}


@dataclass(frozen=True)
class Rule:
    """What is done to some requests of one sort.

    Attributes:
        verb: ``list``, ``watch`` or a method.
        action: A status; ``cut``, ``cut-after``, ``half``, ``garbage``, ``slow``; of watches
            ``cut-line``, ``expired``, ``doubled``, ``late``.
        part: In the path.
        first: The first of the requests, from 1.
        times: How many of them.
    """

    verb: str
    action: str
    part: str = "/pods"
    first: int = 2
    times: int = 2


class Proxy:
    """Forwards to the API server with its administrator's credentials.

    Args:
        upstream: The API server.
        rules: What is broken.
    """

    def __init__(self, upstream: Configuration, rules: tuple[Rule, ...]) -> None:
        self._host = upstream.host
        self._context = ssl.create_default_context(cafile=upstream.ssl_ca_cert)
        if upstream.cert_file:
            self._context.load_cert_chain(upstream.cert_file, upstream.key_file)
        token = next(iter(upstream.api_key.values()), None)
        self._headers = {} if token is None else {"Authorization": token}
        self._rules = rules
        self._seen = Counter[Rule]()
        self.broken = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve on a port of this machine; yields its address."""
        application = web.Application(client_max_size=0)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        async with aiohttp.ClientSession(connector=connector) as self._session:
            await site.start()
            try:
                yield f"http://127.0.0.1:{runner.addresses[0][1]}"
            finally:
                await runner.cleanup()

    def _take(self, request: web.Request) -> str:
        """Return what is done to a request, or nothing."""
        verb = request.method
        if verb == "GET":
            verb = "watch" if "watch" in request.query else "list"
        for rule in self._rules:
            if rule.verb == verb and rule.part in request.path:
                self._seen[rule] += 1
                if rule.first <= self._seen[rule] < rule.first + rule.times:
                    self.broken += 1
                    return rule.action
        return ""

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        action = self._take(request)
        if action.isdigit():
            return _refused(int(action))
        if action == "garbage":
            return web.Response(status=502, text="<html>bad gateway</html>")
        if action == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        if action == "cut":
            return _cut(request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_BY_HOP}
        async with self._session.request(
            request.method,
            self._host + request.raw_path,
            headers=headers | self._headers | {"Accept-Encoding": "identity"},
            data=await request.read(),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            kind = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if "watch" in request.query and answer.status == web.HTTPOk.status_code:
                return await _watch(request, answer, kind, action)
            body = await answer.read()
            if action == "cut-after":
                return _cut(request)
            if action == "half":
                return await _half(request, answer.status, kind, body)
            return web.Response(status=answer.status, headers=kind, body=body)


def _refused(status: int) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": REASONS[status], "message": "chaos"}
    return web.json_response(body, status=status, headers={"Retry-After": "1"})


def _cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _half(
    request: web.Request, status: int, kind: Mapping[str, str], body: bytes
) -> web.StreamResponse:
    response = web.StreamResponse(status=status, headers=kind)
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    _cut(request)
    return response


async def _watch(
    request: web.Request, answer: aiohttp.ClientResponse, kind: Mapping[str, str], action: str
) -> web.StreamResponse:
    response = web.StreamResponse(headers=kind)
    await response.prepare(request)
    before = b""
    async for line in answer.content:
        if action == "cut-line":
            await response.write(line[: len(line) // 2])
            _cut(request)
            return response
        await response.write(line)
        if action == "doubled":
            await response.write(line)
        if action == "late":
            await response.write(before)
            before = line
        if action == "expired":
            event = {"type": "ERROR", "object": EXPIRED}
            await response.write(json.dumps(event).encode() + b"\n")
            return response
    return response
