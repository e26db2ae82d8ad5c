"""What Prometheus learns of suites."""

from __future__ import annotations

from prometheus_client import REGISTRY

from support.suite_world import HARNESSES, PACKS, SuiteWorld

ONE = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}}


class Value:
    """How much a metric has changed since this was made."""

    def __init__(self, name: str, **labels: str) -> None:
        self._name, self._labels = f"securebench_{name}", labels
        self._before = self._now()

    @property
    def change(self) -> float:
        return self._now() - self._before

    def _now(self) -> float:
        return REGISTRY.get_sample_value(self._name, self._labels) or 0.0


def cells(state: str) -> Value:
    return Value("suite_cells", state=state)


def gates(reason: str) -> Value:
    return Value("suite_gates_total", reason=reason)


def test_cells_are_counted_by_state_until_the_suite_is_gone(world: SuiteWorld) -> None:
    waiting, running, succeeded = map(cells, ("Waiting", "Running", "Succeeded"))
    world.apply_suite(maxConcurrentRuns=1)
    assert (waiting.change, running.change, succeeded.change) == (3, 1, 0)
    world.end(world.going()["smoke/a"])
    assert (waiting.change, running.change, succeeded.change) == (2, 1, 1)
    world.tell_suite(kind="DELETED")
    assert (waiting.change, running.change, succeeded.change) == (0, 0, 0)


def test_a_round_is_counted_once(world: SuiteWorld) -> None:
    rounds = Value("suite_rounds_total")
    world.apply_suite(**ONE)
    world.restart_suites()
    world.end_all()
    assert rounds.change == 1
    world.apply_suite(**ONE, template={"parallelism": 2})
    assert rounds.change == 1
    world.annotate("again")
    assert rounds.change == 2


def test_a_verdict_is_counted_once_also_over_a_restart(world: SuiteWorld) -> None:
    passed, failed = gates("GatesPassed"), gates("GatesFailed")
    world.apply_suite(**ONE, gates={"minPassRate": "0.5"})
    world.end_all()
    world.restart_suites()
    assert (passed.change, failed.change) == (1, 0)
    world.annotate("again")
    world.end_all(passed=[False])
    assert (passed.change, failed.change) == (1, 1)
    world.annotate("once more")
    world.end_all(passed=[False])
    assert (passed.change, failed.change) == (1, 2)
