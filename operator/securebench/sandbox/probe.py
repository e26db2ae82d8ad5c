"""Try to reach addresses and say which answered. Runs in canary and control Pods.

Termination message, with exit code 0:
``{"v":1,"targets":{"api-server":"open","dns":"closed"},"kernel":"6.1.0"}``.
"""

from __future__ import annotations

import argparse
import secrets
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from securebench.files.termination_log import TERMINATION_LOG, kernel_release, write_message
from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.specs import decode_object, encode_message, require_version

MAX_TARGETS = 32
"""Their names fit into a termination message of 4 KiB."""

CONFIRMATIONS = 2
"""Rounds in a row that must find everything closed: a network that is not up yet looks closed."""

PAUSE_SECONDS = 1.0
"""Between rounds: an address may be refused at once while the network is being set up."""

DNS_NAME = "kubernetes.default.svc.cluster.local"
"""A cluster's resolver answers it without asking another one; any answer counts."""

DATAGRAM_BYTES = 4096


class TargetSpec(NamedTuple):
    """One address: an accepted TCP connection or a DNS answer over UDP makes it open."""

    name: str
    host: str
    port: int
    protocol: str


class ProbeSpec(NamedTuple):
    """What to do.

    Attributes:
        want: State in which the rounds end: ``closed`` for a canary, ``open`` for a control.
        rounds: Most rounds.
        timeout_seconds: Of one try.
        targets: With different names.
        must_open: Further targets of a canary, which end its rounds when they are open.
    """

    want: str
    rounds: int
    timeout_seconds: float
    targets: tuple[TargetSpec, ...]
    must_open: tuple[TargetSpec, ...] = ()


Try = Callable[[TargetSpec, float], bool]
Pause = Callable[[float], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Probe, write the termination message and return 0."""
    parser = argparse.ArgumentParser(prog="securebench.sandbox.probe")
    parser.add_argument("--spec", required=True)
    spec = decode(parser.parse_args(arguments).spec)
    states = probe(spec, reachable, time.sleep)
    found = {"targets": states, "kernel": kernel_release()}
    write_message(encode_message(found), TERMINATION_LOG)
    return 0


def decode(text: str) -> ProbeSpec:
    """Return the specification of a command line.

    Raises:
        SpecError: It is no JSON object, or of another version.
        ValueError: It says something impossible.
    """
    raw: Any = decode_object(text)
    require_version(raw)
    if raw["want"] not in {OPEN, CLOSED}:
        raise ValueError("want must be open or closed")
    targets, must_open = _targets(raw["targets"]), _targets(raw.get("must_open", []))
    names = [target.name for target in (*targets, *must_open)]
    if not targets or not len(set(names)) == len(names) <= MAX_TARGETS:
        raise ValueError(f"between 1 and {MAX_TARGETS} targets with different names are needed")
    if must_open and raw["want"] == OPEN:
        raise ValueError("must_open is for a spec that wants closed targets")
    return ProbeSpec(
        raw["want"], int(raw["rounds"]), float(raw["timeout_seconds"]), targets, must_open
    )


def probe(spec: ProbeSpec, attempt: Try, pause: Pause) -> dict[str, str]:
    """Return the state of every target.

    A canary's targets are all tried again in every round, until two rounds in a row found them
    closed, and open those that must be; the last round counts. A control's open targets stay open;
    one round after the first of them its network is known to be up, and what is closed then stays
    so.

    Args:
        spec: Targets and rounds.
        attempt: Tells whether a target can be reached.
        pause: Waits for some seconds.
    """
    everything = (*spec.targets, *spec.must_open)
    wanted = {target.name: OPEN if target in spec.must_open else spec.want for target in everything}
    states = dict.fromkeys(wanted, CLOSED)
    good_rounds = 0
    with ThreadPoolExecutor(len(everything)) as pool:
        for number in range(spec.rounds):
            if number:
                pause(PAUSE_SECONDS)
            is_up = OPEN in states.values()
            targets = _to_try(spec, everything, states)
            answers = pool.map(lambda target: attempt(target, spec.timeout_seconds), targets)
            for target, is_open in zip(targets, answers, strict=True):
                states[target.name] = OPEN if is_open else CLOSED
            good_rounds = good_rounds + 1 if states == wanted else 0
            is_answered = is_up or states == wanted
            if is_answered if spec.want == OPEN else good_rounds >= CONFIRMATIONS:
                break
    return states


def reachable(target: TargetSpec, timeout_seconds: float) -> bool:
    """Return whether a target answers within the time."""
    try:
        if target.protocol == "udp":
            return _answers_dns(target, timeout_seconds)
        socket.create_connection((target.host, target.port), timeout_seconds).close()
    except OSError:
        return False
    return True


def dns_query(identity: bytes) -> bytes:
    """Return a recursive question for an address record."""
    header = struct.pack("!5H", 0x0100, 1, 0, 0, 0)
    labels = (label.encode("ascii") for label in DNS_NAME.split("."))
    name = b"".join(bytes([len(label)]) + label for label in labels)
    return identity + header + name + b"\0" + struct.pack("!2H", 1, 1)


def _targets(items: list[dict[str, Any]]) -> tuple[TargetSpec, ...]:
    return tuple(
        TargetSpec(item["name"], item["host"], int(item["port"]), item["protocol"])
        for item in items
    )


def _to_try(
    spec: ProbeSpec, targets: Sequence[TargetSpec], states: Mapping[str, str]
) -> list[TargetSpec]:
    return [target for target in targets if spec.want == CLOSED or states[target.name] == CLOSED]


def _answers_dns(target: TargetSpec, timeout_seconds: float) -> bool:
    family = socket.AF_INET6 if ":" in target.host else socket.AF_INET
    identity = secrets.token_bytes(2)
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect((target.host, target.port))
        connection.send(dns_query(identity))
        return connection.recv(DATAGRAM_BYTES)[:2] == identity


if __name__ == "__main__":
    sys.exit(main())
