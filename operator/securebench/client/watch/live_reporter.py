"""A reporter that keeps a live view of the run below the lines that it prints."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

from rich.console import Console, RenderableType
from rich.live import Live

from securebench.client.watch.follow import RunState
from securebench.client.watch.in_flight import AttemptInFlight
from securebench.client.watch.live_view import Screen, rendered
from securebench.client.watch.progress import Event, LineReporter
from securebench.client.watch.rate import Rate
from securebench.client.watch.run_view import RunView, run_view

_DRAWN_A_SECOND = 4


def can_draw(console: Console) -> bool:
    """Whether a live view can be drawn: on a terminal that can move its cursor."""
    return console.is_terminal and not console.is_dumb_terminal


class LiveReporter:
    """Prints the lines of ``LineReporter`` above the live view; a context manager.

    Args:
        console: A terminal.
        clock: Returns seconds.
        show_command_output: Whether to print command output.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float], *, show_command_output: bool = False
    ) -> None:
        self._console = console
        self._clock = clock
        self._began_at = clock()
        self._lines = LineReporter(console, show_command_output=show_command_output)
        self._view: RunView | None = None
        self._in_flight: tuple[AttemptInFlight, ...] | None = None
        self._told_at = 0.0
        self._rate = Rate()
        self._live = Live(
            console=console,
            transient=True,
            refresh_per_second=_DRAWN_A_SECOND,
            get_renderable=self.render,
        )

    def __enter__(self) -> Self:
        """Show the view."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the view."""
        self._live.stop()

    def report(self, event: str, **fields: object) -> None:
        """Print the event's lines, or update the view."""
        if event == Event.STATUS:
            self._view = run_view(cast("RunState", fields["state"]).run)
            self._rate.note(self._view.done, self._clock())
        elif event == Event.IN_FLIGHT:
            self._in_flight = cast("tuple[AttemptInFlight, ...] | None", fields["attempts"])
            self._told_at = self._clock()
        else:
            self._lines.report(event, **fields)

    def render(self) -> RenderableType:
        """Return the view as it is now."""
        now, view = self._clock(), self._view
        since = now - self._told_at
        in_flight = [each._replace(seconds=each.seconds + since) for each in self._in_flight or ()]
        return rendered(
            Screen(
                view=view,
                in_flight=in_flight,
                elapsed_seconds=now - self._began_at,
                per_second=self._rate.per_second(now),
                seconds_left=None if view is None else self._rate.seconds_left(view.total, now),
                height=self._console.height,
            )
        )
