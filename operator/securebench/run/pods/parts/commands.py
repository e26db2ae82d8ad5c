"""Command lines of the programs inside Pods, with their specifications.

Source: docs/reference/protocol.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from securebench.protocol.candidate import CandidateBounds
from securebench.protocol.messages import encode_spec
from securebench.protocol.supervise import (
    CollectSpec,
    ExtractionSpec,
    RunSpec,
    SealSpec,
    StreamsSpec,
)
from securebench.run import layout
from securebench.run.pods.parts.sizes import tail_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import DataclassInstance

    from securebench.protocol.supervise import SuperviseSpec
    from securebench.run.plan.model import ClusterFacts, RunPlan, TaskPlan

PYTHON = "python3"
POD_SUPERVISE = "/usr/local/bin/supervise"
"""In our Pod image; task images get a copy of it."""

PROBE_TIMEOUT_SECONDS = 20
"""How long supervise waits for the probes to be closed."""


def module_argv(module: str, spec: DataclassInstance) -> list[str]:
    """Return the command line of a module in our Pod image, ``grading.verify_text`` for one."""
    return [PYTHON, "-I", "-m", f"securebench.{module}", "--spec", encode_spec(spec)]


def supervise_argv(program: str, spec: SuperviseSpec) -> list[str]:
    """Return the command line of supervise.

    Args:
        program: Where it lies in the container.
        spec: What to do.
    """
    return [program, spec.verb, "--spec", encode_spec(spec)]


def base_spec(plan: RunPlan, facts: ClusterFacts, head: int) -> RunSpec:
    """Return what the specifications of every ``supervise run`` share.

    Args:
        plan: The run.
        facts: How many processes there may be.
        head: How much of the beginning of a stream is kept.
    """
    return RunSpec(
        streams=StreamsSpec(layout.OUTPUT, head, tail_bytes(plan.limits)),
        temporary=layout.TEMPORARY,
        probes=tuple(plan.pods.probes),
        probe_timeout_seconds=PROBE_TIMEOUT_SECONDS,
        max_processes=facts.max_processes,
    )


def seal_spec(plan: RunPlan, task: TaskPlan, exclude: Sequence[str]) -> SealSpec:
    """Return the courier's job in a harness Pod.

    An agent's output can be watched, unless it may hold values that a tester exposes: these are
    taken out of whole texts only.

    Args:
        plan: The run.
        task: The task.
        exclude: Paths of the workspace that never belong to a candidate.
    """
    extraction = task.extraction
    return SealSpec(
        extraction=ExtractionSpec(extraction.mode, extraction.path, extraction.kind),
        limits=_bounds(plan),
        exclude=tuple(exclude),
        live=not plan.harness.env,
    )


def collect_spec(plan: RunPlan, folders: Sequence[str] = ()) -> CollectSpec:
    """Return the courier's job in a verifier Pod.

    Args:
        plan: The run.
        folders: Relative to ``layout.COURIER_ROOT``; made at once, in this order, for containers
            that wait for the last one.
    """
    return CollectSpec(_bounds(plan), tuple(folders))


def _bounds(plan: RunPlan) -> CandidateBounds:
    """Return the bounds that the courier keeps: a record's length is none of them."""
    return CandidateBounds(
        **{each.name: getattr(plan.limits, each.name) for each in fields(CandidateBounds)}
    )
