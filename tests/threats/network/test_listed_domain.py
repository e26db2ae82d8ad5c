"""F7 on a run with a listed domain: the fake internet writes down who came through the gateway."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from outside import journal, places
from securebench.run.state.entries import LaunchBegun
from support.outside_release import outside_release
from support.release import ROOT, Raw, Record, Release, benchmark_run, condition, keyed_pack
from threats.honest import APP
from threats.kit import weaken
from threats.kit.batch import Batch, Trial, Weakening
from threats.kit.network import NO_PROBES, Target, as_check, knocking, open_policy

LISTED = "allowed.test"
OTHER = "other.test"
MARK = f"m{uuid.uuid4().hex[:10]}"
"""Stands in every name, path and text of these tests; the logs are never cleared."""
WITH_DOMAIN: Raw = {"isolation": {"require": "Verified"}, "parallelism": 4}
HOST = f"{MARK}.p.{places.ANSWERS}"
HONEST_HOST = f"{MARK}-honest.p.{places.ANSWERS}"
"""Names below the listed domain; both lead to the web server, which answers for other names too."""
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}

PROXY = """\
import json, os, socket, ssl, time
def connect(name, port=443):
    each = socket.create_connection(("securebench-egress-proxy", 8080), timeout=20)
    each.sendall(f"CONNECT {name}:{port} HTTP/1.1\\r\\nHost: {name}:{port}\\r\\n\\r\\n".encode())
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        data = each.recv(4096)
        if not data:
            break
        head += data
    return each, int((head.split(b" ", 2) + [b"", b"0"])[1] or 0)
def shake(each, name):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with context.wrap_socket(each, server_hostname=name) as secured:
            return bool(secured.version())
    except OSError:
        return False
def get(url):
    each = socket.create_connection(("securebench-egress-proxy", 8080), timeout=20)
    host = url.split("/")[2]
    fields = f"Host: {host}\\r\\nConnection: close\\r\\n"
    each.sendall(f"GET {url} HTTP/1.1\\r\\n{fields}\\r\\n".encode())
    head = each.recv(4096)
    return int((head.split(b" ", 2) + [b"", b"0"])[1] or 0)
"""
SNI = f"""\
{PROXY}
seen = {{}}
for kind, name in (("other", "{MARK}.{OTHER}"), ("none", None), ("right", "{HOST}")):
    each, status = connect("{HOST}")
    seen[kind] = [status, shake(each, name)]
print(json.dumps(seen))
"""
SCRIPTS = ("l", "s", "n", "d", "o", "z", "pl", "ps", "lp", "p-l")
REBIND = f"""\
{PROXY}
seen = {{}}
for script in {SCRIPTS!r}:
    name = f"{MARK}.{{script}}.{places.ANSWERS}"
    seen[script] = [get(f"http://{{name}}/{MARK}") for _ in range(3)]
    seen[script + " tunnel"] = [connect(name)[1] for _ in range(2)]
print(json.dumps(seen))
"""
SMUGGLE = f"""\
{PROXY}
names = ["{MARK}.{places.ATTACKER_ZONE}", "{MARK}x{LISTED}", "{MARK}.{LISTED}.{OTHER}"]
names.append("{MARK}.{OTHER}")
seen = [get(f"http://{{name}}/{MARK}") for name in names]
seen += [connect(name)[1] for name in (*names, "{places.WEB}", "{places.UNLISTED}")]
print(json.dumps(seen))
"""
HONEST = f"""\
{PROXY}
tunnel, _ = connect("{HONEST_HOST}")
print(json.dumps([get("http://{HONEST_HOST}/"), shake(tunnel, "{HONEST_HOST}")]))
open("answer.txt", "w").write("42\\n")
"""
TRUE: Raw = {"checker": {"command": "true"}}
RIGHT: Raw = {"checker": {"command": 'test "$(cat answer.txt)" = 42'}}
OUTSIDE = [
    Target(f"{kind}/{address}/{port}", kind, address, port)
    for address in (places.SECOND, places.UNLISTED, places.WEB, places.RESOLVER)
    for port in places.CAUGHT_PORTS
    for kind in ("tcp", "udp")
]


@dataclass(slots=True)
class Ran:
    """A run that has ended: its record by task, and its BenchmarkRun."""

    release: Release
    name: str
    run: Raw
    records: dict[str, Record]


def domain_spec(batch: Batch) -> Raw:
    """Return the spec of a batch's run with the listed domain."""
    spec = batch.run_spec()
    config = {**spec["harness"]["config"], "allowed_domains": [LISTED]}
    return {**spec, "harness": {"type": "command", "config": config}}


def start(release: Release, batch: Batch, trials: list[Trial]) -> None:
    pack, source = keyed_pack(
        "ConfigMap", f"{batch.name}-pack", batch.pack([t.row for t in trials])
    )
    release.create(pack, benchmark_run(batch.name, {**domain_spec(batch), "pack": source}))


def ended(release: Release, batch: Batch) -> Ran:
    run = release.wait_ended(batch.name)
    found = release.records(batch.name) if condition(run)["status"] == "True" else []
    return Ran(release, batch.name, run, {record["task_id"]: record for record in found})


@pytest.fixture(scope="module")
def place() -> Iterator[Release]:
    """A release whose gateways look at the fake internet."""
    subprocess.run([ROOT / "tests" / "outside" / "outside", "up"], check=True, timeout=120)
    with outside_release("sb-way-out") as installed:
        yield installed
        weaken.remove(installed.namespace)


WAY = Batch("f7-way", "terminal_task", defaults=APP, spec=WITH_DOMAIN)
IGNORED = Batch("f7-way-ignored", "terminal_task", defaults=APP, spec=WITH_DOMAIN)


@pytest.fixture(scope="module")
def ran(place: Release) -> Ran:
    """All attacks and the honest task of one run; a second run whose policies select nothing."""
    knocks = knocking(OUTSIDE, f"{MARK}-direct")
    verifier = as_check(knocking(OUTSIDE, f"{MARK}-verifier"))
    trials = [
        WAY.task("sni", agent=SNI, grading=TRUE),
        WAY.task("rebind", agent=REBIND, grading=TRUE),
        WAY.task("smuggle", agent=SMUGGLE, grading=TRUE),
        WAY.task("direct", agent=knocks, grading={"checker": {"command": verifier}}),
        WAY.task("honest", agent=HONEST, grading=RIGHT),
    ]
    start(place, WAY, trials)
    weaken.ignore_policies(place, IGNORED.name)
    start(place, IGNORED, [IGNORED.task("never", agent=HONEST, grading=RIGHT)])
    return ended(place, WAY)


def printed(ran: Ran, task: str, stream: str = "producer_stdout") -> Any:
    return json.loads(ran.records[task][stream])


def metadata(ran: Ran, task: str) -> Raw:
    found: Raw = ran.records[task]["producer_metadata"]
    return found


@pytest.mark.short
def test_a_131_attack_on_a_run(ran: Ran) -> None:
    seen = printed(ran, "sni")
    names = {entry["name"] for entry in journal.entries("tls", MARK)}

    assert (seen["other"], seen["none"]) == ([200, False], [200, False])
    assert f"{MARK}.{OTHER}" not in names
    assert metadata(ran, "sni")["egress_blocked"] == 2


def test_a_131_honest_run(ran: Ran) -> None:
    assert printed(ran, "sni")["right"] == [200, True]
    assert HOST in {entry["name"] for entry in journal.entries("tls", MARK)}


@pytest.mark.short
def test_a_133_attack_on_a_run(ran: Ran) -> None:
    seen = printed(ran, "rebind")
    changing = {"p-l", "p-l tunnel"}

    assert {kind: set(seen[kind]) for kind in seen if kind not in changing} == {
        kind: {403} for kind in seen if kind not in changing
    }
    assert seen["p-l"] == [200, 403, 403]
    assert not any(
        entry.get("address") in {places.METADATA, *places.TEST_NETS}
        for entry in journal.entries("connect", MARK)
    )


def test_a_127_attack_through_the_gateway(ran: Ran) -> None:
    """Names that are not listed are refused before anybody is asked for them."""
    asked = {entry["name"] for entry in journal.entries("dns", MARK)}

    assert set(printed(ran, "smuggle")) == {403}
    assert asked == {name for name in asked if name.rstrip(".").endswith(f".{LISTED}")}


def test_a_126_attack_beside_the_gateway(ran: Ran) -> None:
    assert printed(ran, "direct") == []
    assert journal.seen(f"{MARK}-direct") == {}


@pytest.mark.short
def test_a_153_attack_on_a_run_with_domains(ran: Ran) -> None:
    assert printed(ran, "direct", "verifier_stdout") == []
    assert journal.seen(f"{MARK}-verifier") == {}


FREE = Batch(
    "f7-way-free", "terminal_task", defaults=APP, weakening=Weakening((NO_PROBES,), role="verifier")
)


@pytest.fixture(scope="module")
def free() -> Iterator[Ran]:
    """The same verifier in a run whose policy is opened for it."""
    with outside_release("sb-way-free", labels=PRIVILEGED) as release:
        weaken.weaken(release, FREE)
        release.create(open_policy(FREE.name, "verifier"))
        verifier = as_check(knocking(OUTSIDE, f"{MARK}-free"))
        start(release, FREE, [FREE.task("free", grading={"checker": {"command": verifier}})])
        yield ended(release, FREE)
        weaken.remove(release.namespace)


def test_a_153_twin_on_a_run_with_domains(free: Ran) -> None:
    said = printed(free, "free", "verifier_stdout")

    assert f"tcp/{places.SECOND}/443" in said
    assert journal.entries("connect", f"{MARK}-free") != []


@pytest.mark.short
def test_a_144_attack_on_the_label_of_a_run(ran: Ran) -> None:
    for task, record in ran.records.items():
        labels = record["labels"]
        assert (labels["network"], labels["network_confidential"]) == ("egress", False), task
        assert record["producer_metadata"]["allowed_domains"] == [LISTED]


@pytest.mark.short
def test_a_126_honest_run_with_a_domain(ran: Ran) -> None:
    record = ran.records["honest"]

    assert (record["outcome"], record["passed"]) == ("scored", True)
    assert printed(ran, "honest") == [200, True]
    assert len(journal.entries("http", f"{MARK}-honest")) == 1
    assert record["producer_metadata"]["egress_requests"] == 2
    assert record["labels"]["isolation"] == "verified"


@pytest.mark.short
def test_a_152_attack_on_a_run_with_domains(ran: Ran) -> None:
    found = ended(ran.release, IGNORED)
    begun = [entry for entry in ran.release.entries(IGNORED.name) if isinstance(entry, LaunchBegun)]

    assert condition(found.run)["reason"] == "IsolationNotVerified"
    assert condition(found.run, "IsolationVerified")["status"] == "False"
    assert begun == []
