"""The live view of a run on a terminal: what is drawn, from plain data; pure.

Every text in it may be hostile. It is drawn as ``Text``, which knows no markup, after ``printable``
has replaced what a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from securebench.client.watch.in_flight import AttemptInFlight
from securebench.client.watch.progress import minutes
from securebench.client.watch.run_view import RunView, ShownScore
from securebench.text import printable

_MOST_ROWS = 12
"""Attempts in flight that are shown; the oldest are the interesting ones."""

_OTHER_LINES = 9
"""Lines of the view besides them, and some of what was printed above."""

_PLAIN_STATES = frozenset({"Running", "new"})
_UNITS = {"G": 10**9, "M": 10**6, "k": 10**3}


@dataclass(frozen=True, slots=True)
class Screen:
    """What the live view shows.

    Attributes:
        view: The run, None before it was seen.
        in_flight: Its attempts in flight; empty where they are not known.
        elapsed_seconds: Since the command started.
        per_second: Finished attempts per second, or None.
        seconds_left: At that rate, or None.
        height: Lines of the terminal.
    """

    view: RunView | None
    in_flight: Sequence[AttemptInFlight]
    elapsed_seconds: float
    per_second: float | None
    seconds_left: float | None
    height: int


def rendered(screen: Screen) -> RenderableType:
    """Return what is drawn; nothing before the run was seen."""
    if screen.view is None:
        return Text(f"securebench {minutes(screen.elapsed_seconds)}", style="dim")
    return Group(*_parts(screen, screen.view))


def _parts(screen: Screen, view: RunView) -> Iterator[RenderableType]:
    yield _title(screen, view)
    yield _bar(screen, view)
    if view.score is not None:
        yield Text(score_line(view.score, view), no_wrap=True, overflow="ellipsis")
    if view.usage:
        yield Text(usage_line(view), style="dim", no_wrap=True, overflow="ellipsis")
    if view.state not in _PLAIN_STATES:
        message = f"{view.state}: {view.message}" if view.message else view.state
        yield Text(printable(message), style="yellow", overflow="ellipsis", no_wrap=True)
    if screen.in_flight:
        yield _table(screen.in_flight, max(3, min(_MOST_ROWS, screen.height - _OTHER_LINES)))


def _title(screen: Screen, view: RunView) -> RenderableType:
    title = Table.grid(padding=(0, 2))
    title.add_column(no_wrap=True, overflow="ellipsis")
    title.add_column(no_wrap=True)
    counts = f"{view.done}/{view.total or '?'} done, {view.active} in flight"
    title.add_row(
        Text(printable(view.name), style="bold"),
        Text(f"{counts}, {minutes(screen.elapsed_seconds)}"),
    )
    return title


def _bar(screen: Screen, view: RunView) -> RenderableType:
    line = Table.grid(padding=(0, 2))
    line.add_row(
        ProgressBar(total=view.total or None, completed=view.done, width=40),
        Text(rate_text(screen.per_second, screen.seconds_left), no_wrap=True),
    )
    return line


def rate_text(per_second: float | None, seconds_left: float | None) -> str:
    """Return rate and time left as people read them, or an empty text."""
    if per_second is None:
        return ""
    message = f"{60 * per_second:.1f} attempts a minute"
    return message if seconds_left is None else f"{message}, about {minutes(seconds_left)} left"


def score_line(score: ShownScore, view: RunView) -> str:
    """Return the score so far with its interval in percent."""
    low, high = 100 * score.low, 100 * score.high
    return (
        f"score so far {100 * score.value:.1f} % (95 % interval {low:.1f} to {high:.1f}),"
        f" {view.passed or 0} of {view.verified} passed"
    )


def usage_line(view: RunView) -> str:
    """Return what the model provider was asked for so far."""
    usage = view.usage
    names = ("inputTokens", "cachedTokens", "outputTokens", "requests")
    tokens, cached, out, requests = (_short(usage.get(name, 0)) for name in names)
    return f"{tokens} tokens in ({cached} cached), {out} out, {requests} requests"


def _table(attempts: Sequence[AttemptInFlight], rows: int) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("TASK", no_wrap=True, overflow="ellipsis", max_width=40)
    table.add_column("ATTEMPT", justify="right", no_wrap=True)
    # Only a column that may wrap gives its width to the others; its cells are cut instead.
    table.add_column("STEP")
    table.add_column("FOR", justify="right", no_wrap=True)
    for each in attempts[:rows]:
        table.add_row(
            Text(printable(each.task)),
            Text(str(each.attempt)),
            Text(printable(each.step), no_wrap=True, overflow="ellipsis"),
            Text(minutes(each.seconds)),
        )
    more = len(attempts) - rows
    return table if more <= 0 else Group(table, Text(f"and {more} more in flight", style="dim"))


def _short(count: int) -> str:
    for unit, size in _UNITS.items():
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return str(count)
