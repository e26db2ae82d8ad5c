"""Earlier runs with the same run id: which one to join, and which one to resume.

Source: contract 15.6; design 3 (joining a run).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from securebench.client.follow import run_state
from securebench.client.volume import RunEntry
from securebench.cluster.port import Raw
from securebench.errors import ConfigError, ConfigErrors
from securebench.json_values import object_at
from securebench.names import HARNESS_DIGEST_ANNOTATION
from securebench.run.records.record import record_outcome
from securebench.run.state.history import KEPT_ON_RESUME

KEPT_OUTCOMES = frozenset(record_outcome(outcome) for outcome in KEPT_ON_RESUME)
"""Outcomes whose records a resume keeps (contract 15.1); null means a family without verifier."""


class Binding(NamedTuple):
    """What must be equal for results to be comparable (contract 15.6)."""

    run_id: str
    pack_digest: str
    harness_digest: str
    verifier_version: str


def joinable_run(runs: Iterable[Raw], binding: Binding, wanted: Raw) -> Raw | None:
    """Return the newest active run that is equivalent to the one that would be started.

    Args:
        runs: The BenchmarkRuns of the namespace.
        binding: Binding of the run that would be started.
        wanted: Spec of the run that would be started.
    """
    found = [run for run in runs if _is_equivalent(run, binding, wanted)]
    return max(found, key=_created, default=None)


def resumable_run(entries: Sequence[RunEntry], binding: Binding, records: Path) -> RunEntry | None:
    """Return the run to resume, or None for a normal start.

    Args:
        entries: The user's runs with this run id on the volume, oldest first.
        binding: Binding of the run that would be started.
        records: The local ``candidates.jsonl``.

    Raises:
        ConfigErrors: The last run differs; one line per value.
        ConfigError: There are local records but no such run on the volume, or the last run has
            not ended.
    """
    if not entries:
        if records.exists() and records.stat().st_size:
            raise ConfigError(
                f"cannot resume: {records} has records, but the results volume has no run"
                f" {binding.run_id!r} of yours; start without --resume or use another output folder"
            )
        return None
    last = entries[-1]
    pairs = {
        "pack digest": (last.pack_digest, binding.pack_digest),
        "harness digest": (last.harness_digest, binding.harness_digest),
        "verifier version": (last.verifier_version, binding.verifier_version),
    }
    differing = [
        ConfigError(
            f"cannot resume run {last.run}: its {what} is {old or 'unknown'}, now it is {new};"
            " start without --resume"
        )
        for what, (old, new) in pairs.items()
        if old != new
    ]
    if differing:
        raise ConfigErrors(differing)
    if last.removed_at:
        raise ConfigError(
            f"cannot resume run {last.run}: its results were removed from the volume at"
            f" {last.removed_at}; start without --resume"
        )
    if not last.outcome:
        raise ConfigError(
            f"cannot resume run {last.run}: it has not ended, and its settings differ;"
            " wait for it or cancel it"
        )
    return last


def _is_equivalent(run: Raw, binding: Binding, wanted: Raw) -> bool:
    spec, meta = object_at(run, "spec"), object_at(run, "metadata")
    state = run_state(run)
    if state.end is not None or meta.get("deletionTimestamp") or spec.get("cancel"):
        return False
    return (
        spec.get("runId") == binding.run_id
        and object_at(spec, "pack").get("digest") == binding.pack_digest
        and _harness_digest(run) == binding.harness_digest
        and _selection(spec) == _selection(wanted)
        and object_at(spec, "verification") == object_at(wanted, "verification")
        and spec.get("attempts", 1) == wanted.get("attempts", 1)
        and object_at(spec, "budget") == object_at(wanted, "budget")
    )


def _selection(spec: Raw) -> tuple[object, ...]:
    selector = object_at(spec, "taskSelector")
    return (
        selector.get("limit"),
        selector.get("include") or ["*"],
        selector.get("exclude") or [],
    )


def _harness_digest(run: Raw) -> object:
    resolved = object_at(object_at(run, "status"), "resolved").get("harnessDigest")
    noted = object_at(object_at(run, "metadata"), "annotations").get(HARNESS_DIGEST_ANNOTATION)
    return resolved or noted


def _created(run: Raw) -> tuple[str, str]:
    meta = cast("Mapping[str, str]", object_at(run, "metadata"))
    return meta.get("creationTimestamp", ""), meta.get("name", "")
