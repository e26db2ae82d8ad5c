"""What is kept of a Pod's status in the journal."""

from __future__ import annotations

from securebench.run.observe.pods import ContainerView, PodView
from securebench.run.observe.termination import container_usage
from securebench.run.state.evidence import ContainerEvidence, ContainerUsage, LaunchEvidence

MESSAGE_CHARACTERS = 500
"""Longest message that is kept."""

CONTAINERS = 16
"""Most containers of a Pod that are kept; our Pods have fewer."""


def launch_evidence(view: PodView) -> LaunchEvidence:
    """Return the evidence of a Pod, bounded in size."""
    return LaunchEvidence(
        pod=view.name,
        node=view.facts.node,
        created_at=view.created_at,
        scheduled_at=view.scheduled_at,
        sandbox_at=view.sandbox_since,
        reason=view.reason,
        message=(view.message or view.unschedulable)[:MESSAGE_CHARACTERS],
        containers=tuple(map(_container, list(view.containers.values())[:CONTAINERS])),
    )


def _container(view: ContainerView) -> ContainerEvidence:
    # The rest of termination messages stays out: what they say is in the result of the launch.
    end = view.terminated or view.previous
    usage = container_usage(end.message) if end is not None else ContainerUsage()
    return ContainerEvidence(
        name=view.name,
        image=view.image,
        image_id=view.image_id,
        started_at=view.started_at if end is None else end.started_at,
        finished_at=None if end is None else end.finished_at,
        exit_code=None if end is None else end.exit_code,
        reason=view.waiting_reason if end is None else end.reason,
        message=view.waiting_message[:MESSAGE_CHARACTERS],
        restarts=view.restarts,
        requests=view.requests,
        limits=view.limits,
        usage=usage if usage != ContainerUsage() else None,
    )
