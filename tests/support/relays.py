"""A gateway whose provider is a script behind real TLS on the loopback."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import h11

from securebench.clock import SystemClock
from securebench.gateway.dial import Dialer, connect_socket
from securebench.gateway.launches import Identity, Launches, ServedLaunch
from securebench.gateway.provider_route import serve_provider
from securebench.gateway.run_gateway import RunBudget, RunGateway
from securebench.gateway.streams import AgentStream, SocketStream
from securebench.protocol.gateway import (
    GatewayConfig,
    GatewayLimits,
    ProviderConfig,
    RelayReport,
)
from support.certificates import new_authority

KEY = "sk-canary-0123456789-abcdefgh"
DUMMY = "securebench-dummy"
HOSTS = {
    "openai": "api.openai.com",
    "openai_chat": "api.openai.com",
    "anthropic": "api.anthropic.com",
}
PATHS = {
    "openai": "/v1/responses",
    "openai_chat": "/v1/chat/completions",
    "anthropic": "/v1/messages?beta=true",
}
OTHER_HOSTS = ("models.example.org", "vllm.models.svc.cluster.local")
"""Further names in the provider's certificate."""
PUBLIC = "192.31.196.10"
RESET = object()
"""Step of a script: the connection breaks."""

MODELS = {"openai": "gpt-5.5", "openai_chat": "Qwen/Qwen3-8B:latest", "anthropic": "claude"}

TOOL = {
    "openai": {"type": "function", "name": "exec_command"},
    "openai_chat": {"type": "function", "function": {"name": "bash", "parameters": {}}},
    "anthropic": {"name": "Bash", "input_schema": {}},
}


def event(kind, **fields):
    body = json.dumps({"type": kind, **fields})
    return f"event: {kind}\ndata: {body}\n\n".encode()


def chunk(**fields):
    """Return one event of a stream of Chat Completions."""
    return b"data: " + json.dumps({"object": "chat.completion.chunk", **fields}).encode() + b"\n\n"


def delta(text=None, finish_reason=None):
    """Return the choices of a chunk."""
    content = {} if text is None else {"content": text}
    return [{"index": 0, "delta": content, "finish_reason": finish_reason}]


CHAT_USAGE = {
    "prompt_tokens": 1000,
    "prompt_tokens_details": {"cached_tokens": 200},
    "completion_tokens": 50,
    "total_tokens": 1050,
}


def chat_events(text):
    return [
        chunk(choices=delta(""), usage=None),
        chunk(choices=delta(text), usage=None),
        chunk(choices=delta(finish_reason="stop"), usage=None),
        chunk(choices=[], usage=CHAT_USAGE),
        b"data: [DONE]\n\n",
    ]


def events(name, text="Done."):
    """Return a whole answer: 1000 tokens in, 200 of them cached, 50 out."""
    if name == "openai_chat":
        return chat_events(text)
    if name == "openai":
        usage = {
            "input_tokens": 1000,
            "input_tokens_details": {"cached_tokens": 200},
            "output_tokens": 50,
        }
        return [
            event("response.created", response={"status": "in_progress"}),
            event("response.output_text.delta", delta=text),
            event("response.completed", response={"status": "completed", "usage": usage}),
        ]
    asked = {"input_tokens": 700, "cache_creation_input_tokens": 100, "output_tokens": 1}
    return [
        event("message_start", message={"usage": {**asked, "cache_read_input_tokens": 200}}),
        event("content_block_delta", delta={"type": "text_delta", "text": text}),
        event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 50}),
        event("message_stop"),
    ]


def answer(*pieces, status=200, kind="text/event-stream", headers=()):
    """Return the steps of an answer that ends with the connection."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {kind}", *headers, "connection: close", "", ""]
    return ["\r\n".join(lines).encode(), *pieces]


def error(status, *headers):
    body = b'{"error": {"message": "scripted"}}'
    return answer(body, status=status, kind="application/json", headers=headers)


def request(name, body=None, *headers, method="POST", path=None):
    """Return a request as the agent's CLI sends it."""
    data = body if isinstance(body, bytes) else json.dumps(body or question(name)).encode()
    head = [
        f"{method} {path or PATHS[name]} HTTP/1.1",
        "Host: 127.0.0.1:8081",
        f"Authorization: Bearer {DUMMY}",
        f"x-api-key: {DUMMY}",
        "anthropic-version: 2023-06-01",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join([*head, "", ""]).encode() + data


def question(name, **fields):
    known = {"model": MODELS[name], "tools": [TOOL[name]]}
    if name == "openai":
        return {**known, "input": "hi", "stream": True, **fields}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    own = streamed if name == "openai_chat" else {}
    return {**known, "messages": [{"role": "user", "content": "hi"}], **own, **fields}


def report_of_one(name):
    """Return what a launch's report says after one whole answer."""
    models = (MODELS[name],)
    return RelayReport(
        1, 0, 1000, 200, 50, is_key_taken=True, models=models, answered_models=models
    )


async def until(condition):
    """Return when the condition holds; nothing says so by itself."""
    async with asyncio.timeout(4):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@dataclass
class Asked:
    """What the provider got."""

    head: h11.Request
    body: bytes

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.head.headers}

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Script:
    """A provider; the last answer repeats."""

    answers: list
    asked: list[Asked] = field(default_factory=list)
    dialled: list = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    addresses: tuple[str, ...] = (PUBLIC,)
    port: int = 0

    async def resolve(self, _):
        return self.addresses

    async def connect(self, place):
        self.dialled.append((place.host, place.port))
        return await connect_socket(place._replace(address="127.0.0.1", port=self.port))

    async def serve(self, reader, writer):
        with suppress(OSError):
            self.asked.append(await received(reader))
            steps = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            for step in steps:
                if step is RESET:
                    writer.transport.abort()
                elif isinstance(step, asyncio.Event):
                    await waited(step, reader)
                else:
                    writer.write(step)
                    await writer.drain()
        self.ended.set()
        writer.close()


async def received(reader):
    http = h11.Connection(h11.SERVER)
    head, body = None, b""
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                data = await reader.read(65536)
                http.receive_data(data)
            case h11.Request() as head:
                pass
            case h11.Data(data=data):
                body += bytes(data)
            case h11.EndOfMessage():
                return Asked(head, body)
            case _:
                raise ConnectionResetError


async def waited(step, reader):
    """Wait for an event, or for the gateway to leave."""
    tasks = [asyncio.ensure_future(step.wait()), asyncio.ensure_future(reader.read(1))]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Relay:
    """One connection of an agent, served by the route."""

    name: str
    script: Script
    launch: ServedLaunch
    gateway: RunGateway
    reader: asyncio.StreamReader = None
    writer: asyncio.StreamWriter = None
    task: asyncio.Task = None

    @property
    def report(self):
        return self.launch.relay

    async def log(self, count=1):
        """Return the next lines of the log as soon as they are there."""
        lines = []

        def has_enough():
            changes = self.launch.take_changes()
            lines.extend(changes.lines.splitlines() if changes is not None else ())
            return len(lines) >= count

        await until(has_enough)
        return [json.loads(line) for line in lines]

    async def ask(self, body=None, *headers, raw=None, **fields):
        """Send a request and return status, headers and body of the answer."""
        self.writer.write(raw or request(self.name, body, *headers, **fields))
        method = fields.get("method", "POST")
        http = h11.Connection(h11.CLIENT)
        http.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        http.send(h11.EndOfMessage())
        return await answered(http, self.reader)

    async def served(self):
        """Return when the gateway has ended the connection."""
        await asyncio.wait({self.task})


async def answered(http, reader):
    head, body = None, b""
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            case h11.Response() as head:
                pass
            case h11.Data(data=data):
                body += bytes(data)
            case h11.EndOfMessage() | h11.ConnectionClosed():
                return Answered(head, body)


@dataclass
class Answered:
    head: h11.Response
    body: bytes

    @property
    def status(self):
        return self.head.status_code

    @property
    def headers(self):
        return {name.decode(): value.decode() for name, value in self.head.headers}

    @property
    def error(self):
        return json.loads(self.body)["error"]


class World:
    """A gateway, a scripted provider and one launch.

    Args:
        name: Of the provider.
        script: What it answers.
        folder: For key and certificates.
        limits: Of the gateway.
        provider: Further fields of its configuration.
    """

    def __init__(self, name, script, folder, limits=None, **provider):
        key_file = folder / "key"
        key_file.write_text(f"{KEY}\n")
        known = {"name": name, "host": HOSTS[name], "key_file": str(key_file)}
        config = GatewayConfig(
            "sb-", "bench", "harness", "audience", (),
            ProviderConfig(**known | provider),
            limits or GatewayLimits(), str(folder / "ca.crt"),
        )  # fmt: skip
        self.name = name
        self.script = script
        self.key_file = key_file
        dialer = Dialer(2, script.resolve, script.connect)
        self.gateway = RunGateway(config, dialer, dialer)
        self.launches = Launches(folder / "launches", config, SystemClock())
        self.begin_launch("sb-1")

    def begin_launch(self, pod):
        """Serve another launch from now on."""
        self.launch = self.launches.of(Identity(pod, f"uid-of-{pod}"))

    def limit_run(self, tokens):
        """Give the run a token budget, and return it."""
        self.gateway.run_budget = RunBudget(tokens, self.launches)
        return self.gateway.run_budget

    @asynccontextmanager
    async def connected(self):
        """Yield one more connection of the launch."""
        relay = Relay(self.name, self.script, self.launch, self.gateway)
        arrived = asyncio.get_running_loop().create_future()

        async def accept(reader, writer):
            arrived.set_result((SocketStream(reader, writer), writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        relay.reader, relay.writer = await asyncio.open_connection("127.0.0.1", port)
        stream, writer = await arrived
        agent = AgentStream(stream, self.launch)
        relay.task = asyncio.ensure_future(serve_provider(agent, self.launch, self.gateway))
        try:
            yield relay
        finally:
            relay.writer.close()
            relay.task.cancel()
            await asyncio.wait({relay.task}, timeout=0.05)
            relay.task.cancel()
            await asyncio.gather(relay.task, return_exceptions=True)
            await stream.close()
            writer.transport.abort()
            server.close()


@asynccontextmanager
async def world(name, answers, folder, limits=None, **provider):
    """Yield a world whose provider listens."""
    script = Script(list(answers))
    context = certificates(folder)
    tasks = []

    async def serve(reader, writer):
        tasks.append(asyncio.current_task())
        await script.serve(reader, writer)

    context = None if provider.get("is_plain") else context
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield World(name, script, folder, limits, **provider)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def relayed(name, answers, folder, limits=None, **provider):
    """Yield one connection to a scripted provider."""
    async with (
        world(name, answers, folder, limits, **provider) as around,
        around.connected() as relay,
    ):
        yield relay


def certificates(folder):
    """Write ca.crt and return the provider's side of TLS."""
    authority = new_authority()
    (folder / "ca.crt").write_text(authority.pem, encoding="ascii")
    names = sorted({*HOSTS.values(), *OTHER_HOSTS})
    return authority.server_context(folder / "server.pem", names)
