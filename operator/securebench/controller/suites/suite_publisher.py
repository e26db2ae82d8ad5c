"""Writes the status of one suite, and its Events when a condition changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from securebench.cluster.port import ObjectKind
from securebench.controller.context import Context, SuiteObject
from securebench.controller.events import EventRecorder
from securebench.controller.metrics import count_verdict
from securebench.controller.publish import VolumeSilence
from securebench.controller.run_status import is_already_stored
from securebench.controller.volume_calls import VolumeCalls
from securebench.run.api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    get_condition,
)
from securebench.run.decide.notices import Notice
from securebench.run.observe.waiting import VOLUME_SILENT, WaitReason, lasting_words
from securebench.suite.api.reasons import SuiteReason
from securebench.suite.api.status import BenchmarkSuiteStatus
from securebench.suite.report import (
    SuiteFindings,
    refused_status,
    restored,
    suite_status,
    with_outage,
)

_REPORTED_TYPES = (ConditionType.READY, ConditionType.GATES_PASSED)
_ACTION = "Reconcile"


class SuitePublisher:
    """The only writer of a suite's status and Events.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        suite: The suite, with the conditions that an earlier process left.
        calls: What the suite has under way on the volume. While one of them is late, the status
            says so.
    """

    def __init__(self, context: Context, suite: SuiteObject, calls: VolumeCalls) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._events = EventRecorder(context.cluster, suite, context.clock, context.process)
        self._conditions = suite.conditions
        self._silence = VolumeSilence(calls, context.clock, "suite")
        self._before_silence: tuple[Condition, ...] | None = None
        self._writing = asyncio.Lock()

    async def tell_of_volume(self, suite: SuiteObject) -> bool:
        """Publish since when a call to the volume is late, or again what was said before.

        Does nothing on the volume; may be called while another method is at work.

        Returns:
            Whether to call it again in a moment: a call is late.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            silence = self._silence.finding()
            if silence is not None:
                await self._tell_of_silence(suite, silence)
            elif self._before_silence is not None:
                now = self._clock.now()
                before = restored(self._before_silence, self._conditions, now)
                await self._write_conditions(suite, before)
                self._before_silence = None
        return silence is not None

    async def publish(self, suite: SuiteObject, findings: SuiteFindings) -> None:
        """Write what a pass has found.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            now = self._clock.now()
            status = suite_status(findings, self._conditions, suite.generation, now)
            cleared = dict.fromkeys(("cells", "lastScheduleTime", "nextScheduleTime"))
            await self._write(suite, status, {**cleared, **status.to_json()})

    async def refuse(self, suite: SuiteObject, reason: SuiteReason, message: str) -> None:
        """Publish why the suite cannot be reconciled; its cells stay as they were.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            now = self._clock.now()
            status = refused_status(reason, message, self._conditions, suite.generation, now)
            said = status.to_json()
            await self._write(
                suite, status, {key: said[key] for key in ("observedGeneration", "conditions")}
            )

    async def _tell_of_silence(self, suite: SuiteObject, silence: WaitReason) -> None:
        before, now = self._conditions, self._clock.now()
        reason = SuiteReason(silence.reason)
        told = with_outage(reason, silence.message, before, suite.generation, now)
        if told == before:
            return
        if self._before_silence is None:
            # An earlier process may have left words about a silence that is over.
            kept = (each for each in before if not each.message.startswith(VOLUME_SILENT))
            # Before the write: the server may take it although its answer is lost.
            self._before_silence = tuple(kept)
        await self._write_conditions(suite, told)
        await self._events.post(changes(before, told))

    async def _write_conditions(
        self, suite: SuiteObject, conditions: tuple[Condition, ...]
    ) -> None:
        """Write nothing but conditions, in the middle of a pass."""
        said = {"conditions": [each.to_json() for each in conditions]}
        await self._cluster.patch_status(ObjectKind.BENCHMARK_SUITE, suite.name, {"status": said})
        self._conditions = conditions

    async def _write(
        self, suite: SuiteObject, status: BenchmarkSuiteStatus, patch: dict[str, object]
    ) -> None:
        shown = {key: value for key, value in patch.items() if value is not None}
        gone = {key for key, value in patch.items() if value is None}
        # What was told of the volume is not in the status as the pass has seen it.
        is_other = self._before_silence is not None or not is_already_stored(suite.status, shown)
        if is_other or gone & set(suite.status):
            await self._cluster.patch_status(
                ObjectKind.BENCHMARK_SUITE, suite.name, {"status": patch}
            )
        before, self._conditions = self._conditions, status.conditions
        self._before_silence = None
        count_verdict(_new_verdict(before, status.conditions))
        await self._events.post(changes(before, status.conditions))


def changes(before: Sequence[Condition], after: Sequence[Condition]) -> Iterator[Notice]:
    """Yield a notice for each condition that has another reason than before, each reason once."""
    told = set[str]()
    for kind in _REPORTED_TYPES:
        old, new = get_condition(before, kind), get_condition(after, kind)
        if new is None or (
            old is not None and (old.status, old.reason) == (new.status, new.reason)
        ):
            continue
        if new.reason in told:
            continue
        told.add(new.reason)
        is_warning = new.status is not ConditionStatus.TRUE and new.reason not in _ROUTINE_REASONS
        note = lasting_words(new.message) or new.reason
        yield Notice(_ACTION, new.reason, note, is_warning, kind.value)


def _new_verdict(before: Sequence[Condition], after: Sequence[Condition]) -> str:
    """Return the reason that the gates give, if it is another one than before; else nothing."""
    old, new = (get_condition(each, ConditionType.GATES_PASSED) for each in (before, after))
    is_news = new is not None and (old is None or old.reason != new.reason)
    return new.reason if new is not None and is_news else ""


_ROUTINE_REASONS = {SuiteReason.RUNNING.value, SuiteReason.SUSPENDED.value}
"""Reasons that need no action; their Events are Normal."""
