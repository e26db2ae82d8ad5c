"""Follow a BenchmarkRun to its end: its states, and the fields that commands show.

A follower yields the state of a run and then every change, and reconnects as needed. Reading a
BenchmarkRun is pure. A step that creates objects is shielded, so that an interrupt leaves no Secret
without its run, and no run whose name the user never sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TypeVar, cast

from securebench.client.output import without_numbers
from securebench.clock import backoff, seconds_since_epoch
from securebench.cluster.port import Cluster, ObjectKind, Raw, WatchExpired
from securebench.errors import ClusterError, TransientClusterError
from securebench.json_values import object_at, text_at
from securebench.run.api.status import ConditionType, EndState, Reason, run_end
from securebench.stats.intervals import Interval

StepT = TypeVar("StepT")

CREATION_SECONDS = 10.0
"""How long an interrupted start waits for a creation in progress."""


async def shielded(step: Coroutine[object, object, StepT]) -> StepT:
    """Complete a step that creates objects, even if the program is interrupted.

    Otherwise an interrupt could leave a Secret without its run, or a run whose name the user never
    sees. A step that takes longer is cancelled; it must then delete what it created.
    """
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=CREATION_SECONDS)


@asynccontextmanager
async def in_background(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Do something while the body of the context runs, and end it with the body."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


T = TypeVar("T")

_PAUSE_SECONDS = 0.5
"""Pause between two watches; each lasts minutes, so this only prevents a busy loop."""

_FIRST_WAIT_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 30.0

_WORTH_A_NOTE = frozenset(
    reason.value
    for reason in (
        Reason.SUSPENDED,
        Reason.CANCELLING,
        Reason.QUOTA_EXCEEDED,
        Reason.FORBIDDEN,
        Reason.UNSCHEDULABLE,
        Reason.SCHEDULING_GATED,
        Reason.STORAGE_UNAVAILABLE,
        Reason.INTERNAL,
    )
)
"""Reasons that are reported also without a message."""

_NOTE_SECONDS = 30.0
"""Before which a note is not repeated, also where its numbers differ, as those of a long pull."""


@dataclass(frozen=True, slots=True)
class RunState:
    """The part of a BenchmarkRun's status that the command line uses.

    Attributes:
        succeeded: Status of the condition ``Succeeded``; empty if not set yet.
        reason: Its reason; empty if not set yet.
        total: Number of attempts, 0 while unknown.
        done: Finished attempts.
        run: The BenchmarkRun itself; empty for one that is gone.
    """

    name: str
    uid: str
    succeeded: str
    reason: str
    message: str
    total: int
    done: int
    run: Raw = field(default_factory=dict, repr=False, compare=False)

    @property
    def end(self) -> EndState | None:
        """How it ended, or None while it is active."""
        return run_end(self.succeeded, self.reason)

    def failure(self) -> str:
        """Return the error message for a run that did not finish its work."""
        message = f": {self.message}" if self.message else ""
        return f"BenchmarkRun {self.name} ended with {self.reason}{message}"

    @property
    def note(self) -> str:
        """What the run, or a task of it, waits for; empty while nothing waits."""
        if self.end is not None or not (self.message or self.reason in _WORTH_A_NOTE):
            return ""
        return f"{self.reason}: {self.message}" if self.message else self.reason


class NoteFilter:
    """Suppresses repeated notes; ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = ""
        self._printed_at: dict[str, float] = {}

    def is_new(self, note: str) -> bool:
        """Whether to print a note; one that differs only in numbers passes after a while.

        So does one that comes again after another, or after a time without any.
        """
        masked, last, now = without_numbers(note), self._last, self._clock()
        self._last = masked
        printed_at = self._printed_at.get(masked)
        if not masked or (printed_at is not None and now < printed_at + _NOTE_SECONDS):
            return False
        if printed_at is not None and masked == last and masked == note:
            return False
        self._printed_at[masked] = now
        return True


def run_state(run: Raw) -> RunState:
    """Extract the state from a BenchmarkRun."""
    meta, status = object_at(run, "metadata"), object_at(run, "status")
    tasks = object_at(status, "tasks")
    conditions = cast("list[Mapping[str, object]]", status.get("conditions") or [])
    kind = ConditionType.SUCCEEDED.value
    succeeded = next((item for item in conditions if item.get("type") == kind), {})
    return RunState(
        name=str(meta.get("name")),
        uid=str(meta.get("uid")),
        succeeded=str(succeeded.get("status") or ""),
        reason=str(succeeded.get("reason") or ""),
        message=str(succeeded.get("message") or ""),
        total=cast("int", tasks.get("total") or 0),
        done=cast("int", tasks.get("done") or 0),
        run=run,
    )


def pack_path(run: Raw) -> str:
    """Return the folder below ``packs/`` that a run uses, or an empty string."""
    volume = object_at(object_at(object_at(run, "spec"), "pack"), "volume")
    return str(volume.get("path") or "")


def published_sha256(run: Raw) -> str:
    """Return the digest of the published records, or an empty string."""
    return str(object_at(object_at(run, "status"), "results").get("publishedSha256") or "")


class Follower:
    """Follows one BenchmarkRun.

    Args:
        cluster: Limited to the run's namespace.
        sleep: ``asyncio.sleep`` outside of tests.
        note: Called with a line when the connection is lost and when it is restored.
    """

    def __init__(
        self,
        cluster: Cluster,
        sleep: Callable[[float], Awaitable[None]],
        note: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._sleep = sleep
        self._note = note
        self._failures = 0

    async def states(self, name: str, uid: str) -> AsyncGenerator[RunState, None]:
        """Yield the run's current state and then every change, forever.

        Raises:
            ClusterError: The run was deleted, or the API server rejects the requests.
        """
        while True:
            try:
                async with aclosing(self._round(name, uid)) as round_:
                    async for state in round_:
                        self._connected()
                        yield state
                await self._sleep(_PAUSE_SECONDS)
            except WatchExpired:
                continue
            except TransientClusterError as error:
                await self._disconnected(error)

    async def with_retries(
        self,
        call: Callable[[], Awaitable[T]],
        attempts: int,
        kind: type[ClusterError] = ClusterError,
    ) -> T:
        """Call the operator's Pod with retries, as it may be restarting.

        Args:
            call: Must be idempotent.
            attempts: Maximum number of calls.
            kind: Errors that are retried.

        Raises:
            SecureBenchError: The error of the last call, or one that is not retried.
        """
        for attempt in range(1, attempts):
            try:
                return await call()
            except kind:
                await self._sleep(_wait_seconds(attempt))
        return await call()

    async def _round(self, name: str, uid: str) -> AsyncGenerator[RunState, None]:
        run = await self._cluster.get(ObjectKind.BENCHMARK_RUN, name)
        if run is None or run_state(run).uid != uid:
            raise ClusterError(f"the BenchmarkRun {name} was deleted")
        yield run_state(run)
        version = str(object_at(run, "metadata").get("resourceVersion"))
        async with aclosing(self._cluster.watch(ObjectKind.BENCHMARK_RUN, "", version)) as events:
            async for event in events:
                if object_at(event.object, "metadata").get("uid") != uid:
                    continue
                if event.type == "DELETED":
                    raise ClusterError(f"the BenchmarkRun {name} was deleted")
                yield run_state(event.object)

    def _connected(self) -> None:
        if self._failures:
            self._note("connected again")
        self._failures = 0

    async def _disconnected(self, error: TransientClusterError) -> None:
        self._failures += 1
        if self._failures == 1:
            self._note(f"connection lost; the run continues, reconnecting ({error})")
        await self._sleep(max(_wait_seconds(self._failures), error.retry_after_seconds or 0.0))


def _wait_seconds(failures: int) -> float:
    return backoff(_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, failures)


@dataclass(frozen=True, slots=True)
class RunView:
    """A BenchmarkRun as commands show it.

    Attributes:
        state: Reason of ``Succeeded``, or ``new`` while the operator has not seen the run.
        total: Attempts of the run, 0 while unknown.
        done: Finished attempts.
        active: Attempts in flight.
        passed: Attempts that passed; None while the status says nothing.
        verified: Attempts with a verdict.
        score: Share of the verdicts that passed; None while nothing is verified.
        usage: Requests and tokens of the model provider; empty without one.
        pack: Id of the pack, empty while unknown.
        created: RFC 3339.
        started: RFC 3339; empty while the operator has not started it.
        completed: RFC 3339; empty while the run is active.
        mean_reward: Mean score of the verdicts; None unless a record has a reward.
    """

    name: str
    run_id: str
    state: str
    message: str
    total: int
    done: int
    active: int
    passed: int | None
    verified: int
    score: Interval | None
    usage: Mapping[str, int] = field(default_factory=dict)
    pack: str = ""
    harness: str = ""
    created: str = ""
    started: str = ""
    completed: str = ""
    mean_reward: Interval | None = None

    @property
    def started_at(self) -> float | None:
        """When the operator started it, in seconds since the epoch, or None."""
        with suppress(ValueError):
            return seconds_since_epoch(self.started)
        return None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        shares = {"score": self.score, "mean_reward": self.mean_reward}
        found = {name: each and each._asdict() for name, each in shares.items()}
        return {**asdict(self), "usage": dict(self.usage), **found}


def run_view(run: Raw) -> RunView:
    """Extract what is shown from a BenchmarkRun."""
    state, status, spec = run_state(run), object_at(run, "status"), object_at(run, "spec")
    tasks, score = object_at(status, "tasks"), object_at(status, "score")
    return RunView(
        name=state.name,
        run_id=run_id_of(run),
        state=state.reason or "new",
        message=state.message,
        total=state.total,
        done=state.done,
        active=_count(tasks, "active"),
        passed=_count(score, "passed") if score else None,
        verified=_count(score, "verified"),
        score=_interval(object_at(score, "passRate")),
        usage=_counts(object_at(status, "usage")),
        pack=text_at(object_at(status, "resolved"), "pack"),
        harness=text_at(object_at(spec, "harness"), "type"),
        created=created_at(run),
        started=text_at(status, "startTime"),
        completed=text_at(status, "completionTime"),
        mean_reward=_interval(object_at(score, "meanReward")),
    )


def run_id_of(run: Raw) -> str:
    """Return the run_id of a run's records; by default it is the name."""
    resolved = object_at(object_at(run, "status"), "resolved").get("runId")
    name = object_at(run, "metadata").get("name")
    return str(resolved or object_at(run, "spec").get("runId") or name or "")


def created_at(run: Raw) -> str:
    """Return when a run was created, in the form of RFC 3339."""
    return text_at(object_at(run, "metadata"), "creationTimestamp")


def _interval(raw: Mapping[str, object]) -> Interval | None:
    with suppress(KeyError, TypeError, ValueError):
        return Interval(*(float(raw[name]) for name in Interval._fields))  # type: ignore[arg-type]
    return None


def _count(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _counts(fields: Mapping[str, object]) -> dict[str, int]:
    return {name: value for name, value in fields.items() if isinstance(value, int)}
