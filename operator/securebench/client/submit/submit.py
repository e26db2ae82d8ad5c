"""Build the BenchmarkRun and the Secrets of a tester's configuration; pure but for the suffix."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from secrets import token_hex

from securebench.agents.registry import agent_named, forwarded_env
from securebench.client.submit.prepare import LocalPack
from securebench.client.submit.secrets import secret_names
from securebench.client.submit.tester_config import HarnessSection, TesterConfig
from securebench.cluster.port import Raw
from securebench.digests import PREFIX
from securebench.errors import ConfigError, ConfigErrors, SpecError
from securebench.json_values import object_at
from securebench.names import (
    APP_NAME,
    AUDIT,
    HARNESS_DIGEST_ANNOTATION,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    PURPOSE_LABEL,
    USABLE,
    USABLE_BY_GATEWAY,
    USABLE_LABEL,
    kubernetes_name,
)
from securebench.run.api.field_types import API_VERSION, KIND
from securebench.run.api.models import BenchmarkRunSpec

_MANAGED = {NAME_LABEL: APP_NAME, MANAGED_BY_LABEL: f"{APP_NAME}-cli"}
_SUFFIX_BYTES = 3
_DIGEST_CHARACTERS = 12
_NAME_LIMIT = 56
"""Leaves room for the suffix within a DNS label."""


def run_name(run_id: str, suffix: str) -> str:
    """Return the name of a new BenchmarkRun.

    Args:
        run_id: The tester's id; any text.
        suffix: Lower-case letters and digits that make the name unique, as of ``random_suffix``.
    """
    return f"{kubernetes_name(run_id, limit=_NAME_LIMIT)}-{suffix[: 2 * _SUFFIX_BYTES]}"


def random_suffix() -> str:
    """Return a suffix for the name of a new BenchmarkRun."""
    return token_hex(_SUFFIX_BYTES)


def pack_folder(pack: LocalPack) -> str:
    """Return the folder below ``packs/`` for a pack, derived from its content.

    With reference answers the pack gets a different folder, so that uploads with and without them
    do not replace each other.
    """
    digests = (pack.digest, pack.answers_digest)
    parts = [digest.removeprefix(PREFIX)[:_DIGEST_CHARACTERS] for digest in digests if digest]
    return "-".join((kubernetes_name(pack.id, limit=50), *parts))


def build_spec(
    config: TesterConfig,
    pack: LocalPack,
    *,
    name: str,
    parallelism: int | None,
    resume_from: Raw | None,
) -> Raw:
    """Return the spec of a run.

    Args:
        config: With the command line's overrides applied.
        pack: Uploaded to its ``pack_folder``.
        name: Name of the run, and prefix of the names of its Secrets.
        parallelism: Concurrent attempts; None uses the API's default.
        resume_from: The run to resume, by name and uid, or None.

    Raises:
        ConfigErrors: The spec is invalid.
    """
    secrets = secret_names(name, config.harness)
    spec: dict[str, object] = {
        "runId": config.run.id,
        "pack": {"volume": {"path": pack_folder(pack)}, "digest": pack.digest},
        "harness": _harness(config.harness, secrets.harness),
        "verification": {
            "disallowDangerousCommands": config.verification.disallow_dangerous_commands,
            "denyCommands": list(config.verification.deny_commands),
        },
    }
    if secrets.provider:
        spec["provider"] = {"secretRef": {"name": secrets.provider}}
    if config.run.attempts > 1:
        spec["attempts"] = config.run.attempts
    if config.run.budget_tokens is not None:
        spec["budget"] = {"tokens": config.run.budget_tokens}
    if config.run.limit is not None:
        spec["taskSelector"] = {"limit": config.run.limit}
    if parallelism is not None:
        spec["parallelism"] = parallelism
    if resume_from is not None:
        spec["resumeFrom"] = dict(resume_from)
    _check(spec)
    return spec


def _harness(section: HarnessSection, secret: str) -> Raw:
    harness: dict[str, object] = {"type": section.type, "config": dict(section.config)}
    if secret:
        harness["env"] = list(
            dict.fromkeys(forwarded_env(section.type, section.env, section.config))
        )
        harness["secretRef"] = {"name": secret}
    return harness


def run_manifest(name: str, spec: Raw, harness_digest: str) -> Raw:
    """Return the BenchmarkRun; an oracle or nop harness gets the audit label."""
    harness = spec["harness"]
    is_audit = isinstance(harness, Mapping) and agent_named(str(harness.get("type"))).is_audit
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": {**_MANAGED, **({PURPOSE_LABEL: AUDIT} if is_audit else {})},
            "annotations": {HARNESS_DIGEST_ANNOTATION: harness_digest},
        },
        "spec": spec,
    }


def secret_manifest(name: str, values: Mapping[str, str], *, by_gateway: bool = False) -> Raw:
    """Return a Secret with the tester's values; ``by_gateway`` restricts it to the gateway."""
    usable = USABLE_BY_GATEWAY if by_gateway else USABLE
    encoded = {
        key: base64.b64encode(value.encode("utf-8", "surrogateescape")).decode()
        for key, value in values.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {**_MANAGED, USABLE_LABEL: usable}},
        "type": "Opaque",
        "data": encoded,
    }


def owner_patch(run: Raw) -> Raw:
    """Return the merge patch that makes a run the only owner of an object."""
    return {"metadata": {"ownerReferences": [_owner_reference(run)]}}


def shared_owners_patch(item: Raw, run: Raw) -> Raw:
    """Return the merge patch that adds a run to the owners of an object."""
    return {"metadata": {"ownerReferences": [*_owners(item), _owner_reference(run)]}}


def is_owned_by(item: Raw, run: Raw) -> bool:
    """Whether an object goes when a run is deleted."""
    uid = _owner_reference(run)["uid"]
    return any(owner.get("uid") == uid for owner in _owners(item))


def _owners(item: Raw) -> list[Raw]:
    owners = object_at(item, "metadata").get("ownerReferences")
    return owners if isinstance(owners, list) else []


def _owner_reference(run: Raw) -> Raw:
    meta = run["metadata"]
    if not isinstance(meta, Mapping):
        raise TypeError("the run has no metadata")
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": meta["name"],
        "uid": meta["uid"],
    }


def _check(spec: Raw) -> None:
    try:
        BenchmarkRunSpec.parse(spec)
    except SpecError as error:
        problems = error.reason.splitlines()
        raise ConfigErrors([ConfigError(problem) for problem in problems]) from None
