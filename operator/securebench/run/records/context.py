"""What a record says of its run, and of the network under which it was produced.

Source: contract 21.8, threats 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from securebench.run.records.labels import IsolationLabel
from securebench.run.state.attempts import ProducerNetwork

if TYPE_CHECKING:
    from securebench.run.state.entries import IsolationResult


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Properties of the run, and the end of the attempt, for a record.

    Attributes:
        isolation: Whether the network isolation was verified.
        finished_at: End of the attempt, seconds since the epoch.
        run_ordinal: Ordinal of the run among those with this run id and these digests, from 1.
        resume_generation: Number of runs before it in a chain of resumed runs.
        platform: ``<os>-<arch>`` of the agents' CLIs.
        node_reachable: Whether the canary reached the node.
    """

    isolation: IsolationLabel
    finished_at: float
    run_ordinal: int = 1
    resume_generation: int = 0
    platform: str = "linux-amd64"
    node_reachable: bool = False


def record_context(
    isolation: IsolationResult | None,
    producer: ProducerNetwork | None,
    finished_at: float,
    run_ordinal: int,
    resume_generation: int,
    platform: str,
) -> RecordContext:
    """Return the context of one record.

    Isolation counts as verified only where a canary proved that of this run and, for a candidate
    that another run produced, that of the other one. The node was reachable if it was for either.

    Args:
        isolation: What is known of this run's network; None before that was found out.
        producer: The network of the run that produced the candidate; None where it is this one.
        finished_at: End of the attempt, seconds since the epoch.
        run_ordinal: As of ``RecordContext``.
        resume_generation: As of ``RecordContext``.
        platform: ``<os>-<arch>`` of the agents' CLIs.
    """
    known = ProducerNetwork()
    if isolation is not None:
        known = ProducerNetwork(isolation.verified, isolation.node_reachable)
    networks = [known] if producer is None else [known, producer]
    is_verified = all(network.verified for network in networks)
    return RecordContext(
        isolation=IsolationLabel.VERIFIED if is_verified else IsolationLabel.DECLARED,
        finished_at=finished_at,
        run_ordinal=run_ordinal,
        resume_generation=resume_generation,
        platform=platform,
        node_reachable=any(network.node_reachable for network in networks),
    )
