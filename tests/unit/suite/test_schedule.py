from __future__ import annotations

from datetime import UTC, datetime

import pytest

from securebench.errors import SpecError
from securebench.suite.api import BenchmarkSuiteSpec
from securebench.suite.rounds import schedule_times
from support.suite_world import suite_spec


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def text(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spec(schedule: str, zone: str | None = None, deadline: int | None = None) -> BenchmarkSuiteSpec:
    given = {"schedule": schedule, "timeZone": zone, "startingDeadlineSeconds": deadline}
    return BenchmarkSuiteSpec.parse(
        suite_spec(**{key: value for key, value in given.items() if value is not None})
    )


BERLIN = "Europe/Berlin"
NIGHTLY = "0 2 * * *"
HALF_PAST_TWO = "30 2 * * *"
CASES = {
    # schedule, zone, deadline, handled, now, due, following
    "due": (NIGHTLY, None, None, "2026-11-24T12:00Z", "2026-11-25T12:00Z",
            "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "not yet": (NIGHTLY, None, None, "2026-11-25T02:00Z", "2026-11-25T12:00Z",
                "", "2026-11-26T02:00:00Z"),
    "at the second": (NIGHTLY, None, None, "2026-11-24T12:00Z", "2026-11-25T02:00Z",
                      "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "many missed": (NIGHTLY, None, None, "2026-10-01T02:00Z", "2026-11-25T12:00Z",
                    "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "within the deadline": (NIGHTLY, None, 60, "2026-11-24T12:00Z", "2026-11-25T02:01Z",
                            "2026-11-25T02:00:00Z", "2026-11-26T02:00:00Z"),
    "beyond the deadline": (NIGHTLY, None, 60, "2026-11-24T12:00Z", "2026-11-25T02:01:01Z",
                            "", "2026-11-26T02:00:00Z"),
    "zone": (NIGHTLY, BERLIN, None, "2026-11-24T12:00Z", "2026-11-25T12:00Z",
             "2026-11-25T01:00:00Z", "2026-11-26T01:00:00Z"),
    "an hour that is left out": (HALF_PAST_TWO, BERLIN, None, "2026-03-28T12:00Z",
                                 "2026-03-29T12:00Z", "2026-03-29T01:00:00Z",
                                 "2026-03-30T00:30:00Z"),
    "an hour that is there twice fires once": (
        HALF_PAST_TWO, BERLIN, None, "2026-10-25T00:30Z", "2026-10-25T01:45Z", "",
        "2026-10-26T01:30:00Z"),
    "clock set back": (NIGHTLY, None, None, "2026-11-27T02:00Z", "2026-11-25T12:00Z",
                       "", "2026-11-28T02:00:00Z"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_times(name: str) -> None:
    schedule, zone, deadline, handled, now, due, following = CASES[name]
    found = schedule_times(spec(schedule, zone, deadline), seconds(handled), seconds(now))
    assert (text(found.due), text(found.following)) == (due, following)
    assert found.is_clock_back == (name == "clock set back")


@pytest.mark.parametrize(
    ("schedule", "zone", "want"),
    [
        ("0 2 30 2 *", None, "is not valid or never fires (Bad day-of-month)"),
        ("0 2 31 4,6 *", None, "never fires"),
        ("0 0 2 * * *", None, "has not 5 fields"),
        ("0 25 * * *", None, "Bad hour"),
        ("@nightly x", None, "has not 5 fields"),
        (NIGHTLY, "Europe/Bielefeld", "there is no time zone 'Europe/Bielefeld'"),
        (NIGHTLY, "../../etc/passwd", "there is no time zone"),
    ],
)
def test_what_never_fires_is_refused(schedule: str, zone: str | None, want: str) -> None:
    with pytest.raises(SpecError) as caught:
        schedule_times(spec(schedule, zone), 0.0, seconds("2026-11-25T12:00Z"))
    assert want in str(caught.value)
