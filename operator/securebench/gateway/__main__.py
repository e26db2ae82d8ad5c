"""``python3 -I -m securebench.gateway <folder>``: the gateway of one run."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from securebench.clock import Clock, SystemClock
from securebench.errors import ConfigError, SecureBenchError
from securebench.gateway.dial import PROVIDER_THREADS, Dialer, SystemResolver
from securebench.gateway.launches import Launches
from securebench.gateway.proxy import serve_proxy
from securebench.gateway.run_gateway import RunBudget, RunGateway, StateFile
from securebench.gateway.server import Admission, Handler, Server
from securebench.gateway.streams import CHUNK_BYTES
from securebench.protocol.gateway import (
    CONFIG_FILE,
    GATEWAY_PORT,
    KEYS_FILE,
    LAUNCHES,
    READY_FILE,
    USAGE_FILE,
    WAITS_FILE,
    GatewayConfig,
    Route,
    decode,
)

BACKLOG = 512

logger = logging.getLogger(__name__)


def main(
    arguments: Sequence[str] | None = None,
    *,
    port: int = GATEWAY_PORT,
    ready: Path = Path(READY_FILE),
) -> int:
    """Serve until SIGTERM; return 0 after an orderly shutdown, 1 if the gateway cannot run.

    Args:
        arguments: Command line without the program name.
        port: Port to listen on; 0 for any.
        ready: File created once the gateway listens; contains the port.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    parser = argparse.ArgumentParser(prog="securebench.gateway")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args(arguments).folder
    _withdraw(ready)
    _allow_all_files()
    try:
        config, clock = read_config(folder), SystemClock()
        launches = Launches(folder / LAUNCHES, config, clock)
        gateway = make_gateway(config, clock)
        gateway.run_budget = run_budget(config, launches)
        gateway.answered_models = launches.answered_models()
        server = Server(gateway, Admission(config, folder / KEYS_FILE), launches, routes(config))
        if config.provider is not None:
            gateway.provider_tls.cert_store_stats()  # fail now if the CA file is missing
        files = state_files(folder, launches, gateway.run_budget)
        asyncio.run(run(server, launches, files, open_sockets(port), ready))
    except (SecureBenchError, OSError) as error:
        logger.error("the gateway ends: %s", error)  # noqa: TRY400 - expected, not a bug
        return 1
    return 0


def read_config(folder: Path) -> GatewayConfig:
    """Read the gateway's configuration from a run's folder.

    Raises:
        ConfigError: It does not parse, or it allows nothing at all.
        OSError: It cannot be read.
    """
    try:
        config = decode(GatewayConfig, (folder / CONFIG_FILE).read_bytes())
    except ValueError as error:
        raise ConfigError(f"{CONFIG_FILE} is not a valid gateway configuration: {error}") from None
    if not config.domains and config.provider is None:
        raise ConfigError("the run has no allowed domains and no provider, so it needs no gateway")
    return config


async def run(
    server: Server,
    launches: Launches,
    files: Sequence[StateFile],
    sockets: Sequence[socket.socket],
    ready: Path,
) -> None:
    """Serve until SIGTERM, then close all connections and persist all launches.

    Args:
        server: Serves each connection.
        launches: Flushed periodically, and at the end.
        files: Written before the gateway is ready, and then after each change.
        sockets: Bound; closed at the end.
        ready: File created once the gateway listens; contains the port.

    Raises:
        OSError: The readiness file cannot be created.
    """
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    for file in files:
        await file.write()
    loops = (launches.keep_flushing(), *(file.keep_writing() for file in files))
    keeping = [asyncio.create_task(each) for each in loops]
    listeners = [
        await asyncio.start_server(server.connected, sock=sock, limit=CHUNK_BYTES, backlog=BACKLOG)
        for sock in sockets
    ]
    _announce(ready, sockets[0].getsockname()[1])
    await stop.wait()
    _withdraw(ready)
    for listener in listeners:
        listener.close()
    await server.end()
    for task in keeping:
        task.cancel()
    await launches.flush_all()
    for file in files:
        await file.write()


def run_budget(config: GatewayConfig, launches: Launches) -> RunBudget | None:
    """Return the token budget of the run, or None."""
    limit = None if config.provider is None else config.provider.run_tokens
    return None if limit is None else RunBudget(limit, launches)


def state_files(folder: Path, launches: Launches, budget: RunBudget | None) -> list[StateFile]:
    """Return the files by which the operator follows the run."""
    files = [StateFile(folder / WAITS_FILE, launches.waits_changed, launches.waits)]
    if budget is not None:
        files.append(StateFile(folder / USAGE_FILE, budget.changed, budget.usage))
    return files


def make_gateway(config: GatewayConfig, clock: Clock) -> RunGateway:
    """Build the gateway's shared state, with separate resolvers for agents and for the provider."""
    seconds = config.limits.connect_seconds
    provider = Dialer(seconds, SystemResolver(PROVIDER_THREADS))
    return RunGateway(config, Dialer(seconds), provider, clock)


def routes(config: GatewayConfig) -> dict[Route, Handler]:
    """Return the egress routes that a configuration enables."""
    found: dict[Route, Handler] = {}
    if config.domains:
        found[Route.PROXY] = serve_proxy
    if config.provider is not None:
        # Half of all that is imported; a run without a provider starts without it.
        from securebench.gateway.provider_route import serve_provider  # noqa: PLC0415

        found[Route.PROVIDER] = serve_provider
    return found


def open_sockets(port: int) -> list[socket.socket]:
    """Open listening sockets for IPv4 and IPv6, or for the one that the machine has.

    Raises:
        OSError: Neither can be opened.
    """
    sockets: list[socket.socket] = []
    problem: OSError | None = None
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - the network policy restricts access
        try:
            sockets.append(_open_socket(family, address, port))
        except OSError as error:
            problem = error
    if not sockets:
        raise problem or OSError("no address family")
    return sockets


def _open_socket(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets with an explicit protocol; without it Nagle's
    # algorithm delays small writes by 40 ms.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind((address, port))
        opened.setblocking(False)  # noqa: FBT003 - positional only
    except OSError:
        opened.close()
        raise
    return opened


def _allow_all_files() -> None:
    """Raise the soft limit on open files: a tunnel needs two, and the default is too low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _announce(ready: Path, port: int) -> None:
    ready.write_text(str(port))
    logger.info("the gateway listens on port %d", port)


def _withdraw(ready: Path) -> None:
    ready.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
