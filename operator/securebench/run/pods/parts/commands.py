"""Command lines of the programs inside Pods, with what each is told.

Source: docs/reference/protocol.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from securebench.protocol.messages import VERSION
from securebench.run import layout
from securebench.run.pods.parts.sizes import tail_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.run.plan.model import RunPlan, TaskPlan

PYTHON = "python3"
POD_SUPERVISE = "/usr/local/bin/supervise"
"""In our Pod image; task images get a copy of it."""

PROBE_TIMEOUT_SECONDS = 20
"""How long supervise waits for the probes to be closed."""


def module_argv(module: str, spec: Mapping[str, object]) -> list[str]:
    """Return the command line of a module in our Pod image, ``grading.verify_text`` for one."""
    return [PYTHON, "-I", "-m", f"securebench.{module}", "--spec", encode(spec)]


def supervise_argv(program: str, verb: str, spec: Mapping[str, object]) -> list[str]:
    """Return the command line of supervise.

    Args:
        program: Where it lies in the container.
        verb: ``copy``, ``run``, ``courier``, ``egress-proxy`` or ``probe``.
        spec: What to do, without ``version``.
    """
    return [program, verb, "--spec", encode(spec)]


def encode(spec: Mapping[str, object]) -> str:
    """Return a specification with its version as one line of JSON in ASCII.

    No ``$`` is left in it: the kubelet would replace ``$(NAME)`` by the variable's value, which may
    be a secret, and ``$$`` by ``$``.
    """
    text = json.dumps({"version": VERSION, **spec}, separators=(",", ":"), allow_nan=False)
    return text.replace("$", "\\u0024")


@dataclass(frozen=True, slots=True)
class Phase:
    """One command that supervise runs.

    Attributes:
        name: As the termination message has it.
        command: The argv.
        workdir: Absolute working folder.
        timeout_seconds: Time limit, or None.
        env: Variables besides those of the image.
        is_script: Whether the command's file is started by its #! line; it needs no mode.
        user: User and group; 0 for those of supervise.
        proof: What stderr says when the command ends without proof that it completed; empty for
            one that gives none.
        search: Folders with programs, looked into after those of the PATH.
        is_ready: Whether its program must be there before the candidate is.
        is_guarded: Whether what the command starts is kept from the memory of its process.
        sources: Text for ``-c`` of a script's own Python: it compiles the script before that.
    """

    name: str
    command: tuple[str, ...]
    workdir: str
    timeout_seconds: float | None
    env: Mapping[str, str] = field(default_factory=dict)
    is_script: bool = False
    user: int = 0
    proof: str = ""
    search: tuple[str, ...] = ()
    is_ready: bool = False
    is_guarded: bool = False
    sources: str = ""


def phase_spec(phase: Phase) -> dict[str, object]:
    """Return one phase as supervise reads it."""
    spec: dict[str, object] = {
        "name": phase.name,
        "command": list(phase.command),
        "workdir": phase.workdir,
        "timeout_seconds": phase.timeout_seconds,
        "env": dict(phase.env),
    }
    optional: dict[str, object] = {
        "script": phase.is_script,
        "user": phase.user,
        "proof": phase.proof,
        "search": list(phase.search),
        "ready": phase.is_ready,
        "guarded": phase.is_guarded,
        "sources": phase.sources,
    }
    return spec | {name: value for name, value in optional.items() if value}


def base_spec(plan: RunPlan, head: int) -> dict[str, object]:
    """Return what every ``supervise run`` is told alike.

    Args:
        plan: The run.
        head: How much of the beginning of a stream is kept.
    """
    return {
        "streams": {
            "folder": layout.OUTPUT,
            "head_bytes": head,
            "tail_bytes": tail_bytes(plan.limits),
        },
        "temporary": layout.TEMPORARY,
        "probes": list(plan.pods.probes),
        "probe_timeout_seconds": PROBE_TIMEOUT_SECONDS,
        "max_processes": plan.pods.max_processes,
    }


def lane_spec(path: str, digest: str) -> dict[str, str]:
    """Return a lane that supervise compares with its digest before anything runs."""
    return {"path": path, "digest": digest}


def seal_spec(plan: RunPlan, task: TaskPlan, exclude: list[str]) -> dict[str, object]:
    """Return the courier's job in a harness Pod.

    An agent's output can be watched, unless it may hold values that a tester exposes: these are
    taken out of whole texts only.

    Args:
        plan: The run.
        task: The task.
        exclude: SharedCapacity of the workspace that never belong to a candidate.
    """
    extraction = task.extraction
    return {
        "mode": "seal",
        "extraction": {
            "mode": extraction.mode,
            "path": extraction.path,
            "kind": extraction.kind,
        },
        "limits": limits_spec(plan),
        "exclude": exclude,
        **({} if plan.harness.env else {"live": True}),
    }


def collect_spec(plan: RunPlan, folders: Sequence[str] = ()) -> dict[str, object]:
    """Return the courier's job in a verifier Pod.

    Args:
        plan: The run.
        folders: Relative to ``layout.COURIER_ROOT``; made at once, in this order, for containers
            that wait for the last one.
    """
    made = {"folders": list(folders)} if folders else {}
    return {"mode": "collect", "limits": limits_spec(plan), **made}


def limits_spec(plan: RunPlan) -> dict[str, int]:
    """Return the bounds that the courier keeps."""
    limits: dict[str, int] = asdict(plan.limits)
    del limits["record_bytes"]
    return limits
