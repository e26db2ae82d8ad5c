from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Self

import pytest

from securebench.core.errors import SpecError
from securebench.protocol.specs import encode_message
from securebench.sandbox import probe

TARGETS = (
    probe.TargetSpec("api-server", "10.96.0.1", 443, "tcp"),
    probe.TargetSpec("dns", "10.96.0.10", 53, "udp"),
)


def spec(want: str, rounds: int = 4) -> probe.ProbeSpec:
    return probe.ProbeSpec(want, rounds, 2.0, TARGETS)


class Network:
    """Answers by target: the states of its tries in order, the last one for ever."""

    def __init__(self, **answers: list[bool]) -> None:
        self.answers = {name.replace("_", "-"): states for name, states in answers.items()}
        self.tries: list[str] = []
        self.pauses = 0

    def __call__(self, target: probe.TargetSpec, timeout_seconds: float) -> bool:
        assert timeout_seconds == 2.0
        self.tries.append(target.name)
        states = self.answers[target.name]
        return states.pop(0) if len(states) > 1 else states[0]

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses += 1


def run(want: str, network: Network, rounds: int = 4) -> dict[str, str]:
    return probe.probe(spec(want, rounds), network, network.pause)


def test_canary_is_sure_after_two_closed_rounds() -> None:
    network = Network(api_server=[False], dns=[False])

    assert run("closed", network) == {"api-server": "closed", "dns": "closed"}
    assert len(network.tries) == 4
    assert network.pauses == 1


def test_canary_waits_until_the_policy_holds() -> None:
    network = Network(api_server=[True, False], dns=[False])

    assert run("closed", network) == {"api-server": "closed", "dns": "closed"}
    assert network.pauses == 2


def test_canary_tries_closed_targets_again() -> None:
    network = Network(api_server=[False, True], dns=[False])

    assert run("closed", network) == {"api-server": "open", "dns": "closed"}
    assert network.tries.count("dns") == 4


def test_control_stops_when_all_answer() -> None:
    network = Network(api_server=[False, True], dns=[True])

    assert run("open", network) == {"api-server": "open", "dns": "open"}
    assert sorted(network.tries) == ["api-server", "api-server", "dns"]


def test_control_gives_up_one_round_after_the_first_answer() -> None:
    network = Network(api_server=[True], dns=[False])

    assert run("open", network, rounds=4) == {"api-server": "open", "dns": "closed"}
    assert network.tries.count("dns") == 2


def test_control_tries_all_rounds_while_nothing_answers() -> None:
    network = Network(api_server=[False], dns=[False])

    assert run("open", network, rounds=4) == {"api-server": "closed", "dns": "closed"}
    assert network.tries.count("dns") == 4


GATEWAY = probe.TargetSpec("gateway", "10.96.7.7", 8443, "tcp")


def run_with_gateway(network: Network) -> dict[str, str]:
    told = spec("closed")._replace(must_open=(GATEWAY,))
    return probe.probe(told, network, network.pause)


def test_canary_is_sure_when_only_the_gateway_answers_twice() -> None:
    network = Network(api_server=[False], dns=[False], gateway=[True])

    assert run_with_gateway(network) == {"api-server": "closed", "dns": "closed", "gateway": "open"}
    assert len(network.tries) == 6


def test_canary_waits_for_the_gateway() -> None:
    network = Network(api_server=[False], dns=[False], gateway=[False, True])

    assert run_with_gateway(network)["gateway"] == "open"
    assert network.tries.count("gateway") == network.tries.count("dns") == 3


def test_canary_tells_a_gateway_that_never_answers() -> None:
    network = Network(api_server=[False], dns=[False], gateway=[False])

    assert run_with_gateway(network)["gateway"] == "closed"
    assert network.tries.count("gateway") == 4


def test_canary_looks_at_what_must_be_closed_while_the_gateway_answers() -> None:
    network = Network(api_server=[False, True], dns=[False], gateway=[True])

    assert run_with_gateway(network)["api-server"] == "open"
    assert network.tries.count("api-server") == 4


def decoded(**changes: Any) -> probe.ProbeSpec:
    raw = {
        "version": 1,
        "want": "closed",
        "rounds": 2,
        "timeout_seconds": 2,
        "targets": [{"name": "a", "host": "10.0.0.1", "port": 443, "protocol": "tcp"}],
    }
    return probe.decode(json.dumps({**raw, **changes}))


def test_specification_is_read() -> None:
    assert decoded() == probe.ProbeSpec(
        "closed", 2, 2.0, (probe.TargetSpec("a", "10.0.0.1", 443, "tcp"),)
    )
    assert decoded(must_open=[GATEWAY._asdict()]).must_open == (GATEWAY,)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"want": "maybe"},
        {"targets": []},
        {"targets": [{"name": "a", "host": "h", "port": 1, "protocol": "tcp"}] * 2},
        {"must_open": [{"name": "a", "host": "h", "port": 1, "protocol": "tcp"}]},
        {"want": "open", "must_open": [GATEWAY._asdict()]},
        {
            "targets": [
                {"name": str(number), "host": "h", "port": 1, "protocol": "tcp"}
                for number in range(33)
            ]
        },
    ],
    ids=[
        *("version", "want", "no targets", "same name", "same name of both kinds"),
        *("a control with a gateway", "too many"),
    ],
)
def test_bad_specification_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises((SpecError, ValueError), match=r"must be|are needed|wants closed"):
        decoded(**changes)


def test_largest_message_fits() -> None:
    states = dict.fromkeys((f"{number:02}-{'n' * 60}" for number in range(32)), "closed")

    assert len(encode_message({"targets": states, "kernel": "k" * 64})) <= 4096


def test_query_is_a_dns_question() -> None:
    query = probe.dns_query(b"\x12\x34")

    assert query[:12] == b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
    assert query.endswith(b"\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01")


class Connection:
    """A UDP socket that gives one prepared answer."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.sent = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def settimeout(self, seconds: float) -> None:
        assert seconds == 1.0

    def connect(self, address: tuple[str, int]) -> None:
        assert address == ("10.96.0.10", 53)

    def send(self, data: bytes) -> None:
        self.sent = data

    def recv(self, _size: int) -> bytes:
        if self.answer is None:
            raise TimeoutError
        return self.sent[:2] + self.answer if self.answer else b"\0"

    def close(self) -> None:
        return None


@pytest.mark.parametrize(
    ("answer", "want"),
    [(b"answer", True), (b"", False), (None, False)],
    ids=["answer", "foreign datagram", "silence"],
)
def test_udp_is_open_when_the_question_is_answered(
    answer: bytes | None, *, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_: Connection(answer))

    assert probe.reachable(TARGETS[1], 1.0) is want


def test_tcp_is_open_when_the_connection_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: tuple[str, int], timeout: float) -> Connection:
        assert (address, timeout) == (("10.96.0.1", 443), 1.0)
        return Connection(None)

    monkeypatch.setattr(socket, "create_connection", connect)

    assert probe.reachable(TARGETS[0], 1.0) is True


@pytest.mark.parametrize("error", [TimeoutError, ConnectionRefusedError, OSError])
def test_tcp_is_closed_otherwise(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> Connection:
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)

    assert probe.reachable(TARGETS[0], 1.0) is False


def test_program_leaves_its_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(probe, "TERMINATION_LOG", log)
    monkeypatch.setattr(probe, "reachable", lambda *_: True)
    text = json.dumps(
        {
            "version": 1,
            "want": "open",
            "rounds": 1,
            "timeout_seconds": 1,
            "targets": [{"name": "a", "host": "10.0.0.1", "port": 443, "protocol": "tcp"}],
        }
    )

    assert probe.main(["--spec", text]) == 0
    kernel = os.uname().release
    assert json.loads(log.read_text()) == {"v": 1, "targets": {"a": "open"}, "kernel": kernel}
