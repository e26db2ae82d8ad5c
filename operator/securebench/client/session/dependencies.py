"""What a session uses of the world around it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from securebench.client.progress import Event, Reporter
from securebench.client.volume import OperatorLink
from securebench.cluster.port import Cluster


class Watching(NamedTuple):
    """What to report while attempts are in flight.

    Args:
        output: Agents' output while they work.
        in_flight: Where the attempts are.
    """

    output: bool = False
    in_flight: bool = False


NOT_WATCHING = Watching()


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """External dependencies of a session, replaced in tests.

    Attributes:
        cluster: API server, limited to the run's namespace.
        link: Exec protocol with the operator's Pod.
        environ: Environment variables, for ``harness.env``.
        reporter: Receives progress events.
        sleep: ``asyncio.sleep`` outside of tests.
        user_name: Returns the tester's name, as the API server knows it.
        suffix: Returns six random lower-case letters and digits.
        watching: What to report while attempts are in flight.
    """

    cluster: Cluster
    link: OperatorLink
    environ: Mapping[str, str]
    reporter: Reporter
    sleep: Callable[[float], Awaitable[None]]
    user_name: Callable[[], Awaitable[str]]
    suffix: Callable[[], str]
    watching: Watching = NOT_WATCHING

    def note(self, message: str) -> None:
        """Report what the tester may want to know."""
        self.reporter.report(Event.NOTE, message=message)

    def warn(self, message: str) -> None:
        """Report what the tester should look at."""
        self.reporter.report(Event.WARNING, message=message)
