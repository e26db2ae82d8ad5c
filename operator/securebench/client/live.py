"""What a run does at the moment, on the tester's terminal.

Two watchers poll the operator's Pod: one for the attempts in flight, one for the output of agents
while they work (contract 16.3). The live view shows state, rate, score and attempts in flight below
the lines that a reporter prints.

Every text in the view may be hostile. It is drawn as ``Text``, which knows no markup, after
``printable`` has replaced the characters that a terminal would obey.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from securebench.client.follow import RunState, RunView, in_background, run_view
from securebench.client.progress import Event, LineReporter, Reporter, minutes
from securebench.client.volume import ActiveAttempts, LivePart, OperatorLink
from securebench.errors import (
    ClusterError,
    InvalidInputError,
    PermanentClusterError,
    SecureBenchError,
    StorageError,
)
from securebench.json_values import text_at
from securebench.protocol.exec_calls import LaunchNumbers
from securebench.run.records.reading import RecordKey
from securebench.stats.intervals import Interval, reward_text
from securebench.text import printable

_ATTEMPTS_PAUSE_SECONDS = 3.0
_ATTEMPTS_TROUBLE_SECONDS = 15.0
"""Pause before the next request after the operator's Pod failed to respond."""

_SHARE = 10
"""A pause lasts at least so many times as long as the answer took, because of long journals."""

STARTING_SECONDS = 5.0
"""A launch that is younger may wait: the operator does not tell short waits."""

_HARNESS: Final = "harness"
_VERIFIER: Final = "verifier"
_FOR_CHECK: Final = "waits for its check"

_WORDS = {
    _HARNESS: "agent",
    "produced": _FOR_CHECK,
    _VERIFIER: "check",
    "verified": "writes the record",
    "lost": "waits for a new launch",
}
"""Steps of the exec protocol as people read them."""


class AttemptInFlight(NamedTuple):
    """One attempt in flight.

    Args:
        task: Id of the task, or ``#`` and its index while its id is not known.
        attempt: Number of the attempt, from 1.
        step: What happens to it or what it waits for, in words.
        seconds: For how long that has lasted; of a launch, since it was begun.
        waits_for: What its launch waits for, or empty.
    """

    task: str
    attempt: int
    step: str
    seconds: float
    waits_for: str = ""


def in_flight(active: ActiveAttempts, task_ids: Sequence[str]) -> tuple[AttemptInFlight, ...]:
    """Return the attempts in flight, those that are in their step for longest first."""
    found = [_in_flight(fields, active.now, task_ids) for fields in active.attempts]
    return tuple(sorted(found, key=lambda each: -each.seconds))


class InFlightWatch:
    """Asks again and again where the attempts in flight are.

    Args:
        link: Exec protocol with the operator's Pod.
        report: Called with the attempts; with None where they are not known at the moment.
        clock: Returns seconds.
        task_ids: Ids of the rows in pack order; None asks the operator's Pod for them.
    """

    def __init__(
        self,
        link: OperatorLink,
        uid: str,
        report: Callable[[tuple[AttemptInFlight, ...] | None], None],
        clock: Callable[[], float],
        task_ids: Sequence[str] | None = None,
    ) -> None:
        self._link = link
        self._uid = uid
        self._report = report
        self._clock = clock
        self._task_ids = task_ids

    def watched(
        self, sleep: Callable[[float], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Poll in the background while the body of the context runs."""
        return in_background(self._watch(sleep))

    async def _poll(self) -> tuple[AttemptInFlight, ...]:
        if self._task_ids is None:
            self._task_ids = await self._link.list_tasks(self._uid)
        return in_flight(await self._link.get_active(self._uid), self._task_ids)

    async def _watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            asked_at = self._clock()
            try:
                self._report(await self._poll())
            except InvalidInputError:
                # The run has not begun, or an older operator does not know the call.
                self._report(None)
            except SecureBenchError as error:
                self._report(None)
                if isinstance(error, PermanentClusterError):
                    return
                await sleep(_ATTEMPTS_TROUBLE_SECONDS)
            await sleep(max(_ATTEMPTS_PAUSE_SECONDS, _SHARE * (self._clock() - asked_at)))


def _in_flight(
    fields: Mapping[str, object], now: float, task_ids: Sequence[str]
) -> AttemptInFlight:
    task, since = fields.get("task"), fields.get("since")
    index = task if isinstance(task, int) else -1
    seconds = max(now - since, 0.0) if isinstance(since, int | float) else 0.0
    attempt = fields.get("attempt")
    return AttemptInFlight(
        task=task_ids[index] if 0 <= index < len(task_ids) else f"#{index}",
        attempt=attempt if isinstance(attempt, int) else 1,
        step=_step(fields, seconds),
        seconds=seconds,
        waits_for=text_at(fields, "wait"),
    )


def _step(fields: Mapping[str, object], seconds: float) -> str:
    """Return what happens to an attempt, or what its launch waits for, in words."""
    step, reason, wait = (text_at(fields, name) for name in ("step", "reason", "wait"))
    words = _WORDS.get(step, step)
    if wait and fields.get("has_begun") is not True:
        return wait if step == _HARNESS else f"{_FOR_CHECK}: {wait}"
    if wait:
        return f"{words}, {wait}"
    if step in {_HARNESS, _VERIFIER} and seconds < STARTING_SECONDS:
        return f"{words} starting"
    return f"{words} after {reason}" if reason else words


_OUTPUT_PAUSE_SECONDS = 2.0
_OUTPUT_TROUBLE_SECONDS = 30.0
"""Pause before the next request after the operator's Pod failed to respond."""


class LiveOutput:
    """Reports complete lines that active agents print, each once.

    Args:
        link: Exec protocol with the operator's Pod.
        task_ids: Ids of the rows, in pack order.
        reporter: Receives ``agent_output`` events.
    """

    def __init__(
        self, link: OperatorLink, uid: str, task_ids: Sequence[str], reporter: Reporter
    ) -> None:
        self._link = link
        self._uid = uid
        self._task_ids = task_ids
        self._reporter = reporter
        self._sizes: dict[LaunchNumbers, int] = {}
        self._pending: dict[LaunchNumbers, bytes] = {}
        self._finished: set[RecordKey] = set()

    def finish(self, key: RecordKey) -> None:
        """Note that an attempt's record has arrived; later live output of it is dropped."""
        self._finished.add(key)
        for launch in [seen for seen in self._sizes if self._key(seen) == key]:
            del self._sizes[launch]
            self._pending.pop(launch, None)

    def watched(
        self, sleep: Callable[[float], Awaitable[None]]
    ) -> AbstractAsyncContextManager[None]:
        """Poll in the background while the body of the context runs."""
        return in_background(self._watch(sleep))

    async def poll(self) -> None:
        """Fetch once and report new lines.

        Raises:
            SecureBenchError: See ``OperatorLink.get_live``.
        """
        for part in await self._link.get_live(self._uid, dict(self._sizes)):
            key = self._key(part.launch)
            if key is not None and key not in self._finished:
                self._take(key, part)

    async def _watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        while True:
            try:
                await self.poll()
            except InvalidInputError:
                return
            except (ClusterError, StorageError):
                await sleep(_OUTPUT_TROUBLE_SECONDS)
            await sleep(_OUTPUT_PAUSE_SECONDS)

    def _take(self, key: RecordKey, part: LivePart) -> None:
        if part.offset != self._sizes.get(part.launch, 0):
            return
        self._sizes[part.launch] = part.offset + len(part.data)
        data = self._pending.get(part.launch, b"") + part.data
        whole, end, rest = data.rpartition(b"\n")
        self._pending[part.launch] = rest
        if end:
            self._reporter.report(
                Event.AGENT_OUTPUT,
                task_id=key.task_id,
                launch=part.launch,
                text=whole.decode("utf-8", "replace"),
            )

    def _key(self, launch: LaunchNumbers) -> RecordKey | None:
        if launch.task >= len(self._task_ids):
            return None
        return RecordKey(self._task_ids[launch.task], launch.attempt)


_CHANGES = 30
"""Changes of the count that are looked back at: a run may have fast and slow parts."""


class _Seen(NamedTuple):
    done: int
    at: float


class Rate:
    """Finished attempts per second over the last changes; the clock is the caller's."""

    def __init__(self) -> None:
        self._seen: deque[_Seen] = deque(maxlen=_CHANGES)

    def note(self, done: int, at: float) -> None:
        """Note how many attempts have finished at a time in seconds."""
        if not self._seen or self._seen[-1].done != done:
            self._seen.append(_Seen(done, at))

    def per_second(self, now: float) -> float | None:
        """Return the rate, or None before the first observed completion."""
        if not self._seen:
            return None
        first, last = self._seen[0], self._seen[-1]
        if last.done <= first.done or now <= first.at:
            return None
        return (last.done - first.done) / (now - first.at)

    def seconds_left(self, total: int, now: float) -> float | None:
        """Return how long the rest takes at this rate, or None if that is unknown."""
        rate = self.per_second(now)
        if rate is None or total <= 0:
            return None
        return max(total - self._seen[-1].done, 0) / rate


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


def score_line(score: Interval, view: RunView) -> str:
    """Return the score so far with its interval in percent, and the mean reward if there is one."""
    low, high = 100 * score.low, 100 * score.high
    reward = "" if view.mean_reward is None else f", mean reward {reward_text(view.mean_reward)}"
    return (
        f"score so far {100 * score.value:.1f} % (95 % interval {low:.1f} to {high:.1f}),"
        f" {view.passed or 0} of {view.verified} passed{reward}"
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
