"""Ports of HTTP, the only ones that a harness may reach (contract 11.2)."""

from __future__ import annotations

from typing import Final

HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
PORTS: Final = frozenset({HTTP_PORT, HTTPS_PORT})
