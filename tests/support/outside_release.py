"""A release of the chart whose gateways look at the fake internet, and runs of agents in it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outside import places
from support.release import Raw, Release, benchmark_run, keyed_pack, release

IMAGES = places.FOLDER.parent / "images"
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
AUTHORITY_MAP = "securebench-outside-ca"
PROVIDER_SECRET = "fake-provider"
USABLE = {"securebench.dev/usable-by-runs": "true"}
KEYS = {
    "codex": "OPENAI_API_KEY",
    "claude_code": "ANTHROPIC_API_KEY",
    "mini_swe_agent": "OPENAI_API_KEY",
    "opencode": "OPENAI_API_KEY",
}
"""Entry of the Secret by harness type."""
NOT_IN_THE_PACK = {"oracle", "images"}
"""Folders beside a pack's files; the CLI does not send them either."""


@contextmanager
def outside_release(
    prefix: str,
    values: Mapping[str, object] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Iterator[Release]:
    """Install the chart for the fake internet, with its authority and the provider's Secret."""
    chosen = {
        "settings.gateway.nameservers": [places.RESOLVER],
        "settings.gateway.caConfigMap": AUTHORITY_MAP,
        **overlays(),
        **(values or {}),
    }
    with release(prefix, chosen, labels) as installed:
        installed.create(authority_map(), provider_secret())
        yield installed


OVERLAYS = {
    "codex": "CODEX",
    "claudeCode": "CLAUDE_CODE",
    "miniSweAgent": "MINI_SWE_AGENT",
    "opencode": "OPENCODE",
}
"""Values of the chart, and how overlays.env names them."""


def overlays() -> dict[str, object]:
    """Return the chart's values for the overlay images that `make overlays` has built so far."""
    file = IMAGES / "overlays.env"
    if not file.exists():
        return {}
    text = file.read_text(encoding="utf-8")
    known = dict(re.findall(r"(?m)^(\w+)=(\S+)$", text))
    found: dict[str, object] = {}
    for value, name in OVERLAYS.items():
        if f"SECUREBENCH_OVERLAY_{name}" not in known:
            continue
        image = known[f"SECUREBENCH_OVERLAY_{name}"]
        version = known[f"SECUREBENCH_OVERLAY_{name}_VERSION"]
        found[f"settings.overlays.{value}"] = {"images": {version: image}, "latest": version}
    return found


def authority_map() -> Raw:
    """Return the ConfigMap with the test's authority."""
    data = {"ca.crt": places.AUTHORITY.read_text(encoding="ascii")}
    metadata = {"name": AUTHORITY_MAP}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def provider_secret(name: str = PROVIDER_SECRET) -> Raw:
    """Return the Secret with the one key that the fake provider accepts, for all agents."""
    data = dict.fromkeys(KEYS.values(), key())
    metadata = {"name": name, "labels": USABLE}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def key() -> str:
    """Return the planted key, a canary."""
    return places.KEY.read_text(encoding="ascii").strip()


def begin_agent(
    installed: Release,
    pack: str | Mapping[str, bytes],
    agent: str,
    model: str,
    **changes: object,
) -> str:
    """Start a run of a pack with an agent and return its name.

    Args:
        installed: Where.
        pack: Folder name below ``benchmarks/``, or files by their paths.
        agent: ``codex`` or ``claude_code``.
        model: A script of the fake provider, see oracle_scripts.py.
        changes: More of the BenchmarkRun's spec; ``config`` is more of the harness's.
    """
    config: Any = changes.pop("config", {})
    name = f"{agent.replace('_', '-')}-{uuid.uuid4().hex[:6]}"
    files = pack_files(BENCHMARKS / pack) if isinstance(pack, str) else pack
    source_map, source = keyed_pack("ConfigMap", f"{name}-pack", files)
    spec = {
        "pack": source,
        "harness": {"type": agent, "config": {"model": model, **config}},
        "provider": {"secretRef": {"name": PROVIDER_SECRET}},
        "parallelism": 3,
        "retention": {"pods": "All"},
        **changes,
    }
    installed.create(source_map, benchmark_run(name, spec))
    return name


def pack_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a pack by their paths."""
    files = {"manifest.yaml", "tasks.jsonl"}
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        str(path): (folder / path).read_bytes()
        for path in paths
        if (len(path.parts) > 1 or path.name in files) and path.parts[0] not in NOT_IN_THE_PACK
    }
