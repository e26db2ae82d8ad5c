"""Runs the servers of the fake internet: ``python -m outside.servers outside|metadata``.

It prints ``listening`` when every server listens, and runs until it gets SIGTERM.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys

from outside import fake_provider, listeners, nameserver, places, web
from outside.authority import ensure_authority, server_context

WEB_NAMES = (
    "allowed.test",
    "*.allowed.test",
    "*.answers.allowed.test",
    "other.test",
    "*.other.test",
)
ATTACKER_NAMES = (places.ATTACKER_ZONE, f"*.{places.ATTACKER_ZONE}")


async def start_outside() -> None:
    """Start everything that lies outside the node."""
    await nameserver.start()
    await web.start(places.WEB, server_context("web", WEB_NAMES))
    await web.start(places.ATTACKER, server_context("attacker", ATTACKER_NAMES))
    await listeners.start_origin(places.ORIGIN)
    context = server_context("provider", (places.OPENAI, places.ANTHROPIC))
    await fake_provider.start(places.PROVIDER, context, provider_key())
    await listeners.start_catching("0.0.0.0", places.CAUGHT_PORTS)  # noqa: S104


async def start_metadata() -> None:
    """Start what answers at the node's metadata address."""
    await listeners.start_catching(places.METADATA, (80,))


def provider_key() -> str:
    """Return the key that the fake provider accepts, which is made once."""
    if not places.KEY.exists():
        places.KEY.touch(mode=0o600)
        places.KEY.write_text(f"sk-canary-{secrets.token_hex(24)}", encoding="ascii")
    return places.KEY.read_text(encoding="ascii").strip()


async def main(part: str) -> None:
    """Start one part and run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ensure_authority()
    await {"outside": start_outside, "metadata": start_metadata}[part]()
    print("listening", flush=True)  # noqa: T201
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
