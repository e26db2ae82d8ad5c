"""The Lease of a namespace's operators as data: who holds it, and who may take it.

The rules are those of client-go's ``leaderelection``. One more: every acquisition makes
``leaseTransitions`` grow, also by the holder of before in a new process. It is the epoch, by which
files of a leader are distinguished from those of the next (decision 0066).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from securebench.cluster.port import Raw, metadata
from securebench.core.json_values import object_at, text_at
from securebench.core.names import OPERATOR_LEASE

RELEASED_SECONDS: Final = 1
"""``leaseDurationSeconds`` of a Lease without holder; 0 is not valid."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says.

    Attributes:
        holder: ``<Pod name>_<Pod uid>``; empty: nobody.
        epoch: How often the Lease was acquired.
        duration_seconds: For how long it holds after a renewal.
        acquired_at: Time of the acquisition, as the API server has it.
        renewed_at: Time of the last renewal by its holder's clock; only whether it changes counts.
    """

    holder: str
    epoch: int
    duration_seconds: int
    acquired_at: str = ""
    renewed_at: str = ""


def lease_record(raw: Raw) -> LeaseRecord:
    """Return what a Lease says; parts that are missing or odd count as empty."""
    spec = object_at(raw, "spec")
    return LeaseRecord(
        holder=text_at(spec, "holderIdentity"),
        epoch=_number(spec, "leaseTransitions"),
        duration_seconds=_number(spec, "leaseDurationSeconds"),
        acquired_at=text_at(spec, "acquireTime"),
        renewed_at=text_at(spec, "renewTime"),
    )


def lease_manifest(record: LeaseRecord, stored: Raw | None = None) -> Raw:
    """Return the Lease that says this.

    Args:
        record: With times in the form of ``micro_time``.
        stored: The Lease that it replaces, as it was read; None for a new one. Its uid is sent as
            well: the API server would otherwise create anew a Lease that was deleted since.
    """
    known: Raw = {} if stored is None else metadata(stored)
    identity = {key: known[key] for key in ("resourceVersion", "uid") if key in known}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OPERATOR_LEASE, **identity},
        "spec": {
            "holderIdentity": record.holder,
            "leaseTransitions": record.epoch,
            "leaseDurationSeconds": record.duration_seconds,
            "acquireTime": record.acquired_at,
            "renewTime": record.renewed_at,
        },
    }


def may_take(record: LeaseRecord, own: str, unchanged_seconds: float) -> bool:
    """Return whether an operator may take a Lease.

    Args:
        record: What it says.
        own: Who asks. What the same Pod held was held by an earlier process of its container.
        unchanged_seconds: For how long the asker has seen it say that, by its own clock; clocks of
            other machines do not count.
    """
    is_over = unchanged_seconds > record.duration_seconds
    return not record.holder or record.holder == own or is_over


def _number(spec: Mapping[str, object], name: str) -> int:
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
