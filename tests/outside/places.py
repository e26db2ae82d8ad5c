"""Addresses, names and files of the fake internet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

FOLDER: Final = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "securebench" / "outside"
)
LOGS: Final = FOLDER / "logs"
AUTHORITY: Final = FOLDER / "ca.crt"
KEY: Final = FOLDER / "canary-key"
"""The key that the fake provider accepts: a canary, made once."""

RESOLVER: Final = "192.31.196.53"
WEB: Final = "192.31.196.10"
"""HTTP, HTTPS and WebSocket, for two names on one address."""
ORIGIN: Final = "192.31.196.11"
"""A lenient plain HTTP server that writes down every request it believes to have seen."""
SECOND: Final = "192.31.196.12"
"""A second public address; nothing but the listeners that catch every connection."""
UNREACHABLE: Final = "192.31.196.13"
"""The network says at once that nobody is there."""
SILENT: Final = "192.31.196.14"
"""Packets are dropped."""
PROVIDER: Final = "192.31.196.20"
ATTACKER: Final = "192.31.196.66"
UNLISTED: Final = "192.31.196.77"
"""Has no name."""
TEST_NETS: Final = ("198.51.100.7", "203.0.113.7")
"""Documentation addresses: never an allowed answer; whoever connects is written down."""
METADATA: Final = "169.254.169.254"
"""On the node itself."""

CLUSTER_SERVICE: Final = "10.96.177.20"
"""A test may give it to a Service of the cluster."""

INSIDE: Final = "inside.allowed.test"
"""Leads to CLUSTER_SERVICE."""
DOCS: Final = "docs.allowed.test"
FILES: Final = "files.other.test"
"""The second name on the address of DOCS; never on a list."""
PLAIN: Final = "plain.allowed.test"
ANSWERS: Final = "answers.allowed.test"
"""Scripted answers: ``<marker>.<script>.answers.allowed.test``, see the name server."""
ATTACKER_ZONE: Final = "attacker-zone.test"
OPENAI: Final = "api.openai.com"
ANTHROPIC: Final = "api.anthropic.com"

CAUGHT_PORTS: Final = (
    *(21, 22, 25, 53, 80, 123, 443, 853, 1080, 2379, 3128, 5000, 5432, 6379),
    *(6443, 8080, 8443, 9000, 10250, 30000),
)
"""TCP and UDP, on every address outside that no other server listens on."""
