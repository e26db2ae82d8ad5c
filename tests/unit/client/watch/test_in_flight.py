"""How those who watch learn where the attempts in flight are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.client.live import AttemptInFlight, InFlightWatch, in_flight
from securebench.client.progress import Event
from securebench.client.run_start import Watching
from securebench.client.volume import ActiveAttempts
from securebench.errors import (
    InvalidInputError,
    PermanentClusterError,
    SecureBenchError,
    TransientClusterError,
)
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.entries import LaunchBegun
from support.fake_operator import OperatorRun, complete
from unit.client.bench import Bench

ACTIVE = ActiveAttempts(
    ({"task": 0, "attempt": 1, "step": "harness", "since": 90.0, "reason": ""},), 100.0
)
FLIGHT = (AttemptInFlight("a", 1, "agent", 10.0),)


PULLS = {"wait": "pulling x:1", "has_begun": False}
STEPS: dict[str, tuple[dict[str, object], str]] = {
    "an agent": ({}, "agent"),
    "a check": ({"step": "verifier"}, "check"),
    "an agent that may not have begun": ({"since": 96.0}, "agent starting"),
    "a check that may not have begun": ({"step": "verifier", "since": 96.0}, "check starting"),
    "a Pod of an agent": (PULLS, "pulling x:1"),
    "a young Pod": ({**PULLS, "since": 96.0}, "pulling x:1"),
    "a Pod of a check": ({**PULLS, "step": "verifier"}, "waits for its check: pulling x:1"),
    "an agent that waits": ({**PULLS, "has_begun": True}, "agent, pulling x:1"),
    "a young result": ({"step": "verified", "since": 99.0}, "writes the record"),
    "a lost launch": ({"step": "lost", "reason": "r"}, "waits for a new launch after r"),
    "a step of a later version": ({"step": "new"}, "new"),
}


@pytest.mark.parametrize(("fields", "want"), STEPS.values(), ids=STEPS)
def test_the_words_of_a_step(fields: dict[str, object], want: str) -> None:
    (found,) = in_flight(ActiveAttempts(({**ACTIVE.attempts[0], **fields},), 100.0), ["a"])
    assert (found.step, found.waits_for) == (want, fields.get("wait", ""))


class Link:
    """Answers one after the other, then for ever the last one."""

    def __init__(self, *answers: ActiveAttempts | SecureBenchError) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def get_active(self, _uid: str) -> ActiveAttempts:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        if isinstance(answer, SecureBenchError):
            raise answer
        return answer

    async def list_tasks(self, _uid: str) -> list[str]:
        return ["a", "b"]


async def watched(link: Link, polls: int) -> tuple[list[object], list[float]]:
    """Watch until so many answers were asked for, or none is any more."""
    reports, pauses = list[object](), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    watch = InFlightWatch(link, "u", reports.append, lambda: float(link.asked))  # type: ignore[arg-type]
    async with watch.watched(sleep):
        for _ in range(20):
            if link.asked >= polls:
                break
            await asyncio.sleep(0)
    return reports, pauses


async def test_answers_are_reported_and_pauses_grow_with_their_time() -> None:
    reports, pauses = await watched(Link(ACTIVE), 2)
    assert reports[:2] == [FLIGHT, FLIGHT]
    assert set(pauses) == {10.0}


@pytest.mark.parametrize(
    "error", [InvalidInputError("the run has not begun yet"), TransientClusterError("reset")]
)
async def test_trouble_goes_by(error: SecureBenchError) -> None:
    reports, _ = await watched(Link(error, ACTIVE), 2)
    assert reports[:2] == [None, FLIGHT]


async def test_who_may_not_ask_does_not_ask_again() -> None:
    link = Link(PermanentClusterError("forbidden", status=403))
    reports, pauses = await watched(link, 2)
    assert (reports, pauses, link.asked) == ([None], [], 1)


@pytest.mark.parametrize("is_shown", [True, False])
async def test_a_session_reports_them_for_a_live_view(tmp_path: Path, *, is_shown: bool) -> None:
    async def script(run: OperatorRun) -> None:
        run.journal(LaunchBegun(LaunchKey(1, 1, Role.HARNESS, 1), 4e9))
        for _ in range(50):
            await asyncio.sleep(0)
        await complete(run)

    bench = Bench(tmp_path)
    bench.watching = Watching(in_flight=is_shown)
    await bench.run(script)
    told = [
        fields["attempts"] for event, fields in bench.reporter.events if event == Event.IN_FLIGHT
    ]
    assert ((AttemptInFlight("b", 1, "agent starting", 0.0),) in told) is is_shown
    states = [fields["state"] for event, fields in bench.reporter.events if event == Event.STATUS]
    assert [state.done for state in states][-1] == 3  # type: ignore[attr-defined]
