"""The message that a container leaves for the kubelet."""

from __future__ import annotations

from pathlib import Path

from securebench.protocol.messages import MAX_MESSAGE_BYTES

TERMINATION_LOG = Path("/dev/termination-log")


def write_message(message: bytes, log: Path) -> None:
    """Write a termination message into the file that the kubelet made."""
    log.write_bytes(message[:MAX_MESSAGE_BYTES])
