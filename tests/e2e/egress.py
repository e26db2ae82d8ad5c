"""A release whose gateways look at the fake internet, and the agents that go out through them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.scenario import PUBLISHED
from outside import places
from support.outside_release import AUTHORITY_MAP, USABLE, authority_map
from support.release import ROOT, Raw, Record, Release, call, release
from support.runs import begin, row

OUTSIDE = ROOT / "tests" / "outside" / "outside"
OFFERED = "1.2.3"
"""The one version of codex that the release offers; no run gets so far that its image is pulled."""

VALUES = {
    "settings.gateway.nameservers": [places.RESOLVER],
    "settings.gateway.caConfigMap": AUTHORITY_MAP,
    "settings.launch.retryBackoffSeconds": 1,
    "settings.overlays.codex": {"images": {OFFERED: "overlay.test/codex:1"}, "latest": OFFERED},
}

AGENT = """\
python3 - <<'AGENT'
import ssl, sys, time, urllib.error, urllib.request

def get(url):
    context = ssl.create_default_context(cadata='''{authority}''')
    with urllib.request.urlopen(url, timeout=60, context=context) as answer:
        return answer.read().decode()

def status(url):
    try:
        get(url)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)
{work}
AGENT
"""
"""Its program trusts the servers' own authority: a certificate that the gateway made fails."""


def agent(work: str) -> str:
    """Return the command of an agent.

    Args:
        work: Python; may call ``get(url)`` for a body and ``status(url)`` for a refusal.
    """
    authority = places.AUTHORITY.read_text(encoding="ascii")
    return AGENT.format(authority=authority, work=work)


@contextmanager
def egress_release(prefix: str, values: Mapping[str, object] | None = None) -> Iterator[Release]:
    """Install the chart for the fake internet, which is started where it does not run."""
    if os.environ.get("SECUREBENCH_CLUSTER") == "kind":
        pytest.skip("the fake internet hangs on the local node, and this cluster is kind's")
    call(str(OUTSIDE), "up")
    with release(prefix, VALUES | dict(values or {})) as installed:
        installed.create(authority_map())
        yield installed


def begin_agent(own: Release, work: str, tasks: int = 1, **spec: object) -> str:
    """Start a run whose agents may reach ``allowed.test``, and return its name."""
    config = {"command": agent(work), "allowed_domains": ["allowed.test"]}
    harness = {"type": "command", "config": config}
    given = [row(f"task-{number}") for number in range(tasks)]
    return begin(own, given, "", harness=harness, **spec)


def secret(name: str, entry: str, *, is_usable: bool = True) -> Raw:
    """Return a Secret with one entry."""
    metadata = {"name": name, "labels": USABLE if is_usable else {}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {entry: "k"}}


def objects(own: Release, kind: str, run_uid: str, role: str = "") -> list[str]:
    """Return the names of a run's objects."""
    selector = f"securebench.dev/run-uid={run_uid}"
    if role:
        selector += f",securebench.dev/role={role}"
    words = ("get", kind, "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
    return own.kubectl(*words).split()


def decisions(own: Release, run: str) -> list[dict[str, Any]]:
    """Return the lines of egress.jsonl."""
    return [json.loads(line) for line in own.file(run, "egress.jsonl").splitlines()]


def published(records: Sequence[Record]) -> Sequence[Record]:
    """Return records that are as the published schema says."""
    for record in records:
        PUBLISHED.validate(record)
    return records
