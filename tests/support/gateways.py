"""Builders of gateways, tokens, ClientHellos and peers on the loopback."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from securebench.gateway.dial import Dialer, connect_socket
from securebench.gateway.launches import Launches, ServedLaunch
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.server import Admission, Server
from securebench.gateway.streams import AgentStream, SocketStream
from securebench.protocol.gateway import (
    KEYS_FILE,
    LAUNCHES,
    GatewayConfig,
    GatewayLimits,
    LaunchReport,
    ProviderConfig,
)

RUN = "0f1e2d3c-aaaa-bbbb-cccc-000000000000"
POD = "sb-0f1e2d3caaaa-0-1-1"
POD_UID = "11111111-2222-3333-4444-555555555555"
AUDIENCE = f"securebench-gateway-{RUN}"
PROVIDER = ProviderConfig("openai", "api.openai.com", "/nowhere/key")
PUBLIC = "192.31.196.10"
"""Stands for the address of every outside server; the tests connect to the loopback instead."""

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class FixedClock:
    def now(self):
        return 1_767_225_600.0


def config(domains=("docs.dev",), provider=None, authorities="", **limits):
    return GatewayConfig(
        "sb-0f1e2d3caaaa-", "bench", "securebench-harness", AUDIENCE,
        tuple(domains), provider, GatewayLimits(**limits), authorities,
    )  # fmt: skip


def jwk(key, kid, **fields):
    algorithms = {"ES256": jwt.algorithms.ECAlgorithm, "RS256": jwt.algorithms.RSAAlgorithm}
    name = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
    public = json.loads(algorithms[name].to_jwk(key.public_key()))
    return {**public, "kid": kid, "alg": name, "use": "sig", **fields}


def write_keys(folder, *keys):
    (folder / KEYS_FILE).write_text(json.dumps({"keys": list(keys)}))


def claims(pod=POD, uid=POD_UID, **changes):
    now = int(time.time())
    bound = {
        "namespace": "bench",
        "node": {"name": "node"},
        "pod": {"name": pod, "uid": uid},
        "serviceaccount": {"name": "securebench-harness", "uid": "x"},
    }
    return {
        "aud": [AUDIENCE], "exp": now + 600, "iat": now, "nbf": now, "iss": "https://api",
        "sub": "system:serviceaccount:bench:securebench-harness", "kubernetes.io": bound, **changes,
    }  # fmt: skip


def token(key=EC_KEY, kid="one", algorithm="ES256", **changes):
    return jwt.encode(claims(**changes), key, algorithm=algorithm, headers={"kid": kid})


def client_hello(name="docs.dev"):
    """Return what a real TLS client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


class Outside:
    """A server that keeps what it gets; every name leads to it.

    Args:
        answers: Addresses of names; others have PUBLIC.
    """

    def __init__(self, answers=None):
        self.answers = answers or {}
        self.asked = []
        self.dialled = []
        self.received = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.reply = b""
        self.port = 0

    async def resolve(self, host):
        self.asked.append(host)
        answer = self.answers.get(host, [PUBLIC])
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def connect(self, place):
        self.dialled.append((place.address, place.port))
        return await connect_socket(place._replace(address="127.0.0.1", port=self.port))

    async def serve(self, reader, writer):
        data = bytearray()
        self.received.append(data)
        with suppress(ConnectionError):
            while chunk := await reader.read(65536):
                data += chunk
                self.begun.set()
                if self.reply:
                    writer.write(self.reply)
            writer.write(b"bye")
        writer.close()
        self.ended.set()


@asynccontextmanager
async def outside(answers=None) -> AsyncIterator[Outside]:
    peer = Outside(answers)
    async with listening(peer.serve) as port:
        peer.port = port
        yield peer


@asynccontextmanager
async def listening(serve):
    """Yield the port of a server; in the end its connections are aborted."""
    tasks, writers = [], []

    def accept(reader, writer):
        writers.append(writer)
        tasks.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def gateway(peer, **limits):
    settings = config(**limits)
    dialer = Dialer(2, peer.resolve, peer.connect)
    return RunGateway(settings, dialer, dialer, FixedClock())


def launch(**limits):
    return ServedLaunch(LaunchReport(POD, POD_UID), GatewayLimits(**limits), FixedClock())


@asynccontextmanager
async def agent_of(someone):
    """Yield an agent's stream as a route gets it, and the other end of it."""
    arrived = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        arrived.set_result(SocketStream(reader, writer))

    async with listening(serve) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stream = AgentStream(await arrived, someone)
        try:
            yield stream, reader, writer
        finally:
            writer.transport.abort()
            await stream.close()


class Running:
    """A whole gateway that listens on the loopback.

    Args:
        server: Takes the connections.
        launches: All that were seen.
        port: Where it listens.
    """

    def __init__(self, server, launches, port):
        self.server = server
        self.launches = launches
        self.port = port
        self.opened = []

    async def connect(self, source="127.0.0.1"):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, local_addr=(source, 0)
        )
        self.opened.append(writer)
        return reader, writer

    async def knock(self, route="proxy", said=None, source="127.0.0.1"):
        """Connect as a sidecar does; return the answer's line, if any, and both ends."""
        reader, writer = await self.connect(source)
        writer.write(said or f"SB1 {route} {token()}\n".encode())
        line = b""
        with suppress(ConnectionResetError):
            line = await reader.readline()
        return line, reader, writer

    async def answer(self, route="proxy", said=None, source="127.0.0.1"):
        """Connect as a sidecar does and stay so; return the answer's line."""
        return (await self.knock(route, said, source))[0]

    async def close(self, **changes):
        """Say that the harness has ended; return the answer's line."""
        return await self.answer(said=f"SB1 close {token(**changes)}\n".encode())


@asynccontextmanager
async def serving(folder, routes, settings=None, peer=None) -> AsyncIterator[Running]:
    settings = settings or config()
    peer = peer or Outside()
    write_keys(folder, jwk(EC_KEY, "one"))
    dialer = Dialer(2, peer.resolve, peer.connect)
    gate = RunGateway(settings, dialer, dialer, FixedClock())
    launches = Launches(folder / LAUNCHES, settings, FixedClock())
    server = Server(gate, Admission(settings, folder / KEYS_FILE), launches, routes)
    listener = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    running = Running(server, launches, listener.sockets[0].getsockname()[1])
    try:
        yield running
    finally:
        for writer in running.opened:
            writer.transport.abort()
        listener.close()
        await server.end()
        await asyncio.sleep(0)
