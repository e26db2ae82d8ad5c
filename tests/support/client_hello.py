"""The first message of a TLS client, piece by piece."""

from __future__ import annotations

BEGIN = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x13\x01" + b"\x01\x00"


def vector(data, length_bytes=2):
    return len(data).to_bytes(length_bytes, "big") + data


def extension(kind, data=b""):
    return kind.to_bytes(2, "big") + vector(data)


def sni(*names, kind=0):
    return extension(0, vector(b"".join(bytes([kind]) + vector(name) for name in names)))


def record(data, kind=22, major=3):
    return bytes([kind, major, 1]) + vector(data)


def message(body, kind=1):
    return bytes([kind]) + vector(body, 3)


def hello(*extensions, begin=BEGIN):
    return record(message(begin + vector(b"".join(extensions))))


NAME = sni(b"docs.dev")
