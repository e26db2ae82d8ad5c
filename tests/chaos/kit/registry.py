"""Injectors of the faults that are brought about in memory, by the kind's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chaos.kit.scene import Moment, Scene
from securebench.run.observe.pods import PodView

Act = Callable[[Scene, PodView], object]

ANY = (
    Moment("canary", "created"),
    Moment("harness", "created"),
    Moment("harness", "started"),
    Moment("harness", "ended"),
    Moment("verifier", "created"),
    Moment("verifier", "started"),
    Moment("verifier", "ended"),
)
"""Stages at which faults come that are not about one Pod."""

LAUNCHES = tuple(moment for moment in ANY if moment.role in {"harness", "verifier"})
WAITING = tuple(moment for moment in LAUNCHES if moment.stage == "created")
RUNNING = tuple(moment for moment in LAUNCHES if moment.stage == "started")
GATEWAY = tuple(moment for moment in ANY if moment.role == "harness")


@dataclass(frozen=True)
class Injector:
    """How a fault is brought about.

    Attributes:
        act: Brings it about; returns False while it does not fit.
        moments: When it may come.
    """

    act: Act
    moments: tuple[Moment, ...]


INJECTORS: dict[str, Injector] = {}


def fault(kind: str, moments: tuple[Moment, ...] = ANY) -> Callable[[Act], Act]:
    """Register an injector."""

    def registered(act: Act) -> Act:
        assert kind not in INJECTORS, kind
        INJECTORS[kind] = Injector(act, moments)
        return act

    return registered
