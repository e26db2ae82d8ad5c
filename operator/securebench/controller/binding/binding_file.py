"""``run.json`` and the oracle's answers beside it: what a run was bound to by its first start.

Versions before this one left fields out that came later. Every function that takes a store blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from pydantic import TypeAdapter

from securebench.controller.binding.plan_inputs import PinnedInputs
from securebench.controller.context import RunObject
from securebench.controller.volume.registers import IndexEntry
from securebench.controller.volume.store import RunStore
from securebench.digests import json_digest
from securebench.files import make_folder, replace_file
from securebench.protocol.audit_result import PackAudit
from securebench.run.plan.model import EarlierRun, RunPlan, TaskLimits
from securebench.version import VERSION

ANSWERS = "oracle.jsonl"
"""In the folder of an oracle's run: the reference answers as they were when it started."""


def new_binding(
    run: RunObject, plan: RunPlan, entry: IndexEntry, resumed: IndexEntry | None
) -> Mapping[str, object]:
    """Return what a new run is bound to.

    Args:
        run: The BenchmarkRun.
        plan: Plan of the run.
        entry: Its line of the index.
        resumed: That of the run that it resumes, or None.
    """
    agent = plan.harness.agent
    return {
        "index": asdict(entry),
        "limits": asdict(plan.limits),
        "audit": plan.audit,
        "pack_audit": plan.pack_audit,
        "agent_version": agent.version if agent is not None else "",
        "overlay": agent.overlay if agent is not None else "",
        "resumed_uid": resumed.uid if resumed is not None else "",
        "regrade": asdict(plan.regrade) if plan.regrade is not None else None,
        "operator_version": VERSION,
        "plan_digest": plan.digest,
        "policy_digest": plan.policy_digest,
        "pack_digest": plan.pack_digest,
        "pack_version": plan.pack_version,
        "rows_digest": json_digest({task.task.id: task.row_digest for task in plan.tasks.values()}),
        "spec": dict(run.spec),
    }


def pinned_inputs(
    binding: Mapping[str, object], answers: bytes | None, kept: frozenset[int]
) -> PinnedInputs:
    """Return what a run's first start pinned.

    Args:
        binding: What it is bound to.
        answers: Content of its reference answers, for an oracle.
        kept: Tasks whose records come from an earlier run.

    Raises:
        ValueError: The binding was edited.
    """
    return PinnedInputs(
        bounds=TaskLimits(**_numbers(binding["limits"])),
        audit=binding.get("audit") is True,
        answers=answers,
        agent_version=agent_version(binding),
        kept=kept,
        pack_audit=PackAudit(str(binding.get("pack_audit", PackAudit.NONE))),
        overlay=overlay(binding),
        regrade=_regrade(binding),
    )


def agent_version(binding: Mapping[str, object]) -> str:
    """Return the version of the agent's tool that a run was bound to, or empty."""
    return str(binding.get("agent_version") or "")


def overlay(binding: Mapping[str, object]) -> str:
    """Return the image of that version, or empty."""
    return str(binding.get("overlay") or "")


def read_answers(store: RunStore) -> bytes | None:
    """Return the reference answers that a run began with; None for one without an oracle."""
    path = store.folder / ANSWERS
    return path.read_bytes() if path.exists() else None


def write_answers(store: RunStore, answers: bytes) -> None:
    """Keep the reference answers that a run begins with."""
    make_folder(store.folder)
    replace_file(store.folder / ANSWERS, answers, store.staging)


def _numbers(value: object) -> dict[str, int]:
    return TypeAdapter(dict[str, int]).validate_python(value)


def _regrade(binding: Mapping[str, object]) -> EarlierRun | None:
    known = binding.get("regrade")
    return TypeAdapter(EarlierRun).validate_python(known) if known is not None else None
