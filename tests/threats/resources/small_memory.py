"""A container with little memory, and what needs more."""

from __future__ import annotations

MEBIBYTE = 1 << 20
SMALL_MEMORY = {"limits": {"memory": "48Mi"}, "requests": {"memory": "48Mi"}}
EATS = f"held = [bytearray(b'x' * {MEBIBYTE}) for _ in range(150)]"
