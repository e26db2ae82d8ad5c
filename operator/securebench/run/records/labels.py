"""Labels, digests and producer metadata of a record: under which conditions it was produced.

Source: contract 11.4, 12.2, 12.3, 13.1, 15.4, 21.8, threats 5.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from securebench.names import logical_name
from securebench.protocol.candidate import KINDS, STREAMS, ExtractionMode
from securebench.reasons import FailurePhase
from securebench.run.plan.model import RunPlan, TaskPlan
from securebench.run.state.attempts import Runtime, runtime_of

if TYPE_CHECKING:
    from securebench.protocol.gateway import LaunchReport
    from securebench.run.plan.model import AgentPlan, EgressPlan, ProviderPlan
    from securebench.run.state.attempts import (
        AttemptHistory,
        CommandReport,
        DiffReport,
        HarnessResult,
        Loss,
        StreamInfo,
        Usage,
    )


TIMEOUT_EXIT_CODE = 124


class IsolationLabel(StrEnum):
    """What is known about the network of the run's Pods."""

    VERIFIED = "verified"
    DECLARED = "declared"


class Network(StrEnum):
    """Whether the harness Pods have egress."""

    NONE = "none"
    EGRESS = "egress"


class Credentials(StrEnum):
    """Whether secret values were within the agent's reach."""

    NONE = "none"
    BROKERED = "brokered"
    """Only the run's gateway holds the model provider's key."""
    EXPOSED = "exposed"


def credentials(plan: RunPlan) -> Credentials:
    """Return the credentials label: exposed if any value enters the Pods, else brokered or none."""
    if plan.harness.env and plan.harness.secret:
        return Credentials.EXPOSED
    is_brokered = plan.egress is not None and plan.egress.provider is not None
    return Credentials.BROKERED if is_brokered else Credentials.NONE


def network(plan: RunPlan) -> Network:
    """Return whether the run's harness Pods have egress."""
    return Network.NONE if plan.egress is None else Network.EGRESS


def _confidential(plan: RunPlan) -> dict[str, object]:
    """Return whether task text can only reach the model provider; a tunnel can leak it anywhere."""
    return {} if plan.egress is None else {"network_confidential": not plan.egress.domains}


def _external_tools(plan: RunPlan) -> bool:
    provider = plan.egress.provider if plan.egress is not None else None
    return provider is not None and provider.allow_external_tools


def record_labels(
    plan: RunPlan,
    task: TaskPlan,
    history: AttemptHistory,
    isolation: IsolationLabel,
    *,
    node_reachable: bool,
) -> dict[str, object]:
    """Return a record's labels.

    The runtime is the one measured in the attempt's Pods, and the user namespace is the harness
    Pod's own: without one that ended, nothing is claimed.
    """
    facts = None if history.production is None else history.production.facts
    return {
        **_grading(task, history),
        "network": network(plan).value,
        **_confidential(plan),
        "credentials": credentials(plan).value,
        "isolation": isolation.value,
        "node_reachable": node_reachable,
        "runtime": _runtime(history).value,
        "user_namespace": facts is not None and facts.user_namespace,
        "external_tools": _external_tools(plan),
        "audit": plan.audit,
        "pack_audit": plan.pack_audit.value,
    }


def _grading(task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    """Return what the verdict of a Pod rests on."""
    if task.verification is None or history.verification is None:
        return {}
    found = task.verification.grading(history.verification)
    return {} if found is None else {"grading": found.value}


def record_digests(plan: RunPlan, task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    """Return the digests of everything that a record depends on, including the images that ran."""
    launches = {"harness": history.production, "verifier": history.verification}
    return {
        "pack": plan.pack_digest,
        "row": task.row_digest,
        "harness": plan.harness.digest,
        "verifier": plan.verifier_version,
        "policy": plan.policy_digest,
        "images": {
            role: launch.facts.image_id
            for role, launch in launches.items()
            if launch is not None and launch.facts.image_id
        },
    }


def _runtime(history: AttemptHistory) -> Runtime:
    """Return the weakest runtime of an attempt's Pods."""
    launches = (history.production, history.verification)
    measured = {runtime_of(launch.facts.kernel) for launch in launches if launch is not None}
    weakest_first = (Runtime.RUNC, Runtime.GVISOR)
    return next((runtime for runtime in weakest_first if runtime in measured), Runtime.UNKNOWN)


def producer_metadata(
    plan: RunPlan, task: TaskPlan, history: AttemptHistory, platform: str
) -> dict[str, object]:
    """Return ``producer_metadata``; most of it is missing if no harness ended.

    Args:
        plan: The run.
        task: The attempt's task.
        history: The attempt.
        platform: ``<os>-<arch>`` of the agents' CLIs.
    """
    workspace = f"workspaces/{logical_name(task.task.id)}"
    result: dict[str, object] = {
        "harness": plan.harness.type,
        "exit_code": None,
        "task_file": plan.harness.task_file,
        "artifact_path": plan.harness.config.get("artifact_path"),
        "workspace_root": workspace,
        "allowed_domains": _effective_domains(plan.egress),
        "credentials": credentials(plan).value,
        "network": network(plan).value,
        "candidate_kind": task.extraction.kind,
        "candidate_extraction": task.extraction.mode,
    }
    form = KINDS[task.extraction.kind]
    if task.extraction.path is not None:
        result["candidate_path"] = task.extraction.path
    if form.archive:
        result[form.record_field] = workspace
    if plan.harness.agent is not None:
        result |= _agent(plan, task, plan.harness.agent, platform)
    if plan.egress is not None and plan.egress.provider is not None:
        result |= _provider(plan.egress.provider, history.usage)
    if history.production is not None:
        result |= _produced(plan, task, history.production) | _dropped(task, history)
    return result


def losses(history: AttemptHistory) -> tuple[int, tuple[Loss, ...]]:
    """Return how many entries of a workspace did not reach the check, and the first losses.

    Sealing drops what no archive holds, staging the links that lead to what is not the agent's.
    """
    production, verification = history.production, history.verification
    count = 0
    named: tuple[Loss, ...] = ()
    if production is not None and production.candidate is not None:
        count, named = production.candidate.dropped_entries, production.candidate.dropped
    if verification is not None:
        count += verification.command.dropped_entries
        named += verification.command.dropped
    return count, named


def usage_fields(usage: Usage) -> dict[str, int]:
    """Return model provider usage as records and summary spell it."""
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
    }


def command_fields(command: CommandReport) -> dict[str, object]:
    """Return how a command ended; its exit code at the time limit is that of ``timeout``."""
    exit_code = TIMEOUT_EXIT_CODE if command.timed_out else command.exit_code
    ended = {"exit_code": exit_code, "duration_seconds": command.duration_seconds}
    kills = {"memory_kills": command.memory_kills} if command.memory_kills else {}
    return {**ended, **kills}


def stream_fields(stdout: StreamInfo, stderr: StreamInfo) -> dict[str, object]:
    """Return the original sizes of truncated streams."""
    result: dict[str, object] = {}
    for name, stream in zip(STREAMS, (stdout, stderr), strict=True):
        if stream.truncated:
            result[f"{name}_truncated"] = True
            result[f"{name}_bytes"] = stream.size_bytes
    return result


def _effective_domains(egress: EgressPlan | None) -> list[str]:
    """Return the provider's host and the configured domains, each once (contract 11.1)."""
    if egress is None:
        return []
    host = () if egress.provider is None else (egress.provider.host,)
    return list(dict.fromkeys((*host, *egress.domains)))


def _agent(plan: RunPlan, task: TaskPlan, agent: AgentPlan, platform: str) -> dict[str, object]:
    if not agent.version:
        return {"agent_image": agent.overlay, "benchmark_environment_image": task.environment.image}
    tool = PurePosixPath(agent.overlay_path).name
    configured = {
        f"{plan.harness.type}_{key}": plan.harness.config.get(key) for key in ("version", "model")
    }
    return {
        **{name: value for name, value in configured.items() if value},
        "cli_version_resolved": agent.version,
        "overlay_platform": platform,
        "overlay_cache_path": f"{tool}/{agent.version}/{platform}",
        "benchmark_environment_image": task.environment.image,
    }


def _provider(provider: ProviderPlan, usage: Usage) -> dict[str, object]:
    """Return the provider's fields, with the usage of all launches, including lost ones."""
    return {
        "provider": provider.name,
        "provider_relay_enabled": True,
        "allow_external_tools": provider.allow_external_tools,
        "usage": usage_fields(usage),
    }


def _diff_fields(task: TaskPlan, diff: DiffReport) -> dict[str, object]:
    result: dict[str, object] = {"repo_patch_baseline": diff.baseline} if diff.baseline else {}
    if task.extraction.mode == ExtractionMode.GIT_DIFF:
        result["candidate_diff_exit_code"] = diff.exit_code
        result["candidate_diff_stderr"] = diff.stderr
    return result


def _produced(plan: RunPlan, task: TaskPlan, production: HarnessResult) -> dict[str, object]:
    result: dict[str, object] = {
        **command_fields(production.command),
        **stream_fields(production.stdout, production.stderr),
        "image_id": production.facts.image_id,
        **_egress_fields(production.egress),
    }
    if production.command.diff is not None:
        result |= _diff_fields(task, production.command.diff)
    if production.command.timed_out:
        command = list(task.command or plan.harness.command)
        result |= {
            "timed_out": True,
            "timeout_seconds": task.environment.timeout_seconds,
            "command": plan.harness.config.get("command", command),
            "phase": FailurePhase.PRODUCER,
        }
        if not KINDS[task.extraction.kind].is_judged_late:
            return result
    candidate = production.candidate
    if candidate is not None and candidate.file is not None:
        result["candidate_sha256"] = candidate.candidate_sha256
    return result


def _dropped(task: TaskPlan, history: AttemptHistory) -> dict[str, object]:
    candidate = history.production.candidate if history.production is not None else None
    if candidate is None or candidate.file is None:
        return {}
    if not KINDS[task.extraction.kind].archive:
        return {}
    count, named = losses(history)
    result: dict[str, object] = {"candidate_dropped_entries": count}
    if named:
        result["candidate_dropped_paths"] = [each._asdict() for each in named]
    return result


def _egress_fields(report: LaunchReport | None) -> dict[str, object]:
    """Return the gateway's report on the launch that produced the candidate."""
    if report is None:
        return {}
    result: dict[str, object] = {
        "egress_requests": report.requests,
        "egress_blocked": report.blocked,
    }
    if report.relay is not None:
        result["provider_relay_requests"] = report.relay.requests
        result["provider_relay_blocked"] = report.relay.blocked
        result["provider_relay_stripped_tools"] = list(report.relay.stripped_tools)
        result["provider_models"] = list(report.relay.models)
        if report.relay.unreported:
            result["provider_answers_without_usage"] = report.relay.unreported
    return result
