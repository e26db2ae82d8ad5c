from __future__ import annotations

from wsgiref.util import setup_testing_defaults

import pytest

from securebench.controller.process.health import HEALTH_PATH, Liveness, probe_application
from support.build import FakeClock

MAX_AGE = 90.0


def asked(liveness: Liveness, path: str = HEALTH_PATH) -> tuple[int, str]:
    environ: dict[str, object] = {"PATH_INFO": path}
    setup_testing_defaults(environ)
    statuses: list[str] = []
    body = probe_application(liveness)(environ, lambda status, _: statuses.append(status))
    return int(statuses[0].split()[0]), b"".join(body).decode().strip()


def test_an_operator_without_an_answered_list_is_not_alive() -> None:
    code, reason = asked(Liveness(FakeClock(), MAX_AGE))
    assert (code, reason) == (503, "the API server has not answered a list yet")


@pytest.mark.parametrize(
    ("age", "want"),
    [
        (0.0, (200, "ok")),
        (MAX_AGE, (200, "ok")),
        (MAX_AGE + 1, (503, "the API server answered the last list 91 s ago")),
    ],
)
def test_the_age_of_the_last_list_decides(age: float, want: tuple[int, str]) -> None:
    clock = FakeClock()
    liveness = Liveness(clock, MAX_AGE)
    liveness.listed()
    clock.advance(age)
    assert asked(liveness) == want


def test_a_new_list_brings_the_operator_back() -> None:
    clock = FakeClock()
    liveness = Liveness(clock, MAX_AGE)
    liveness.listed()
    clock.advance(MAX_AGE + 1)
    liveness.listed()
    assert asked(liveness)[0] == 200


def test_nothing_else_is_served() -> None:
    liveness = Liveness(FakeClock(), MAX_AGE)
    liveness.listed()
    assert asked(liveness, "/metrics")[0] == 404
