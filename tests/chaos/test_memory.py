"""Faults in memory: the operator's real loop against the fake cluster."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from chaos.kit.catalogue import catalogue, kinds
from chaos.kit.registry import INJECTORS
from chaos.kit.scene import NAME, Injection, Moment, scene
from chaos.kit.table import ROWS
from chaos.kit.trial import disturbed, folder
from chaos.kit.verdict import Verdict
from securebench.cluster.port import ObjectKind

DELETED = "run-deleted"
KINDS = [kind for kind in kinds("memory") if kind.name != DELETED]
CANARY = Moment("canary", "created")
TIMES = 8
"""How often each kind comes in the long form."""

STORMS = 20
STORM = 4
"""Faults of different kinds in one run."""

FEW_LOSSES = [kind for kind in KINDS if not kind.lost and not kind.egress]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_records_do_not_show_the_fault(kind):
    verdict = disturbed([kind], seed=1)
    ROWS.add(kind.name, verdict)
    assert verdict.problems == ()
    assert set(verdict.lost) <= set(kind.lost)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_records_do_not_show_the_fault_at_any_moment(kind):
    lost = 0
    for seed in range(TIMES):
        verdict = disturbed([kind], seed=100 + seed)
        ROWS.add(kind.name, verdict)
        lost += verdict.lost.total()
        assert verdict.problems == (), f"seed {100 + seed}"
    assert bool(lost) == bool(kind.lost), "the catalogue says what is lost"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(STORMS))
def test_the_records_do_not_show_many_faults(seed):
    chosen = Random(seed).sample(FEW_LOSSES, STORM)  # noqa: S311 - repeatable, not secret
    verdict = disturbed(chosen, seed=1000 + seed)
    ROWS.add("storm", verdict, injections=STORM)
    assert verdict.problems == (), [kind.name for kind in chosen]


@pytest.mark.parametrize(
    "name", ["clock-forward", "watch-events-lost", "watch-events-reordered", "watch-events-stale"]
)
def test_a_fault_while_the_canary_is_waited_for_does_not_end_the_run(name):
    verdicts = [disturbed([catalogue()[name]], seed, moment=CANARY) for seed in range(6)]
    assert [verdict.problems for verdict in verdicts] == [()] * 6


def test_every_kind_in_memory_has_an_injector():
    assert {kind.name for kind in KINDS} == {
        name for name in INJECTORS if not catalogue()[name].is_of_suites
    }


@pytest.mark.parametrize("role", ["canary", "harness", "verifier"])
def test_a_deleted_run_leaves_nothing(role):
    with folder() as root, scene(root, 1) as played:

        def delete(*_):
            played.cluster.remove(ObjectKind.BENCHMARK_RUN, NAME)
            played.later(0.0, lambda: played.supervisor.observe("DELETED", body))

        body = played.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]
        played.injections.append(Injection(Moment(role, "started"), 1, delete))
        assert played.play()
        played.cluster.collect_garbage()
        played.wait(60)
        going = [view.name for view in played.views() if view.deleting_since is None]
        problems = [*played.errors.lines, *going]
        ROWS.add(DELETED, Verdict(tuple(problems), Counter(), is_equal=True))
        assert problems == []
        assert not played.supervisor.active
