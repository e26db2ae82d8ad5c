r"""What the sidecar of a harness Pod and the run's gateway agree on; standard library only.

A connection begins with one line of the sidecar, ``SB1 <route> <token>\n``, and one of the gateway,
``OK\n`` or ``NO <reason>\n``. After OK the bytes are the agent's own, in both directions; after the
OK to CLOSE the launch's report is on the disk and its token is worth nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Route(StrEnum):
    """What a connection is for."""

    PROXY = "proxy"
    """An HTTP proxy: CONNECT, or an absolute http URL."""
    PROVIDER = "provider"
    """The model provider's API."""
    CLOSE = "close"
    """The harness has ended; nothing may follow for this launch."""


MAGIC: Final = "SB1"
ACCEPTED: Final = b"OK\n"
REFUSED: Final = b"NO "
PREFACE_BYTES: Final = 8192
"""Longest line of the sidecar; a service account token has about 1,200 bytes."""

GATEWAY_PORT: Final = 8443
PROXY_PORT: Final = 8080
PROVIDER_PORT: Final = 8081
"""Of the sidecar, on the Pod's loopback (contract 11.3, 11.4)."""
PROXY_NAME: Final = "securebench-egress-proxy"
"""Resolves to the loopback inside the Pod, by its hosts file."""
NO_PROXY: Final = "localhost,127.0.0.1,::1"
"""A proxy of the image or of the run is none for the Pod's own loopback (contract 11.3)."""
