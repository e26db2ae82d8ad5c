"""Faults around a suite, in memory: the operator's real loops against the fake cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chaos.kit.catalogue import Kind, suite_kinds
from chaos.kit.registry import INJECTORS
from chaos.kit.scene import Injection, Moment
from chaos.kit.suite_scene import (
    CREATED,
    ENDED,
    JUDGED,
    RUN,
    STARTED,
    SuiteScene,
    status_of,
    suite_scene,
)
from chaos.kit.suite_trial import disturbed_suite, judged_suite, undisturbed_suite
from chaos.kit.table import ROWS
from chaos.kit.trial import folder
from chaos.kit.verdict import Verdict
from securebench.controller.suite_store import suite_folders
from securebench.controller.volume.registers import RunIndex

SCRIPTED = ("suite-run-deleted", "suite-deleted", "suite-deleted-unseen", "suite-replaced-unseen")
"""Kinds after which a suite does not end as the undisturbed one does."""

KINDS = [kind for kind in suite_kinds() if kind.name not in SCRIPTED]
SUITES = 8
"""So many share all kinds in the short form; a suite takes a second."""

TIMES = 6
"""How often each kind comes in the long form, alone."""

STAGES = [CREATED, STARTED, ENDED, JUDGED]
UNSEEN_SECONDS = 100.0


@pytest.mark.parametrize("number", range(SUITES))
def test_a_suite_does_not_show_several_faults(number: int) -> None:
    chosen = KINDS[number::SUITES]
    verdict = disturbed_suite(chosen, seed=number)
    for kind in chosen:
        ROWS.add(kind.name, verdict)
    assert verdict.problems == (), [kind.name for kind in chosen]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_suite_does_not_show_the_fault_at_any_stage(kind: Kind) -> None:
    for seed in range(100, 100 + TIMES):
        verdict = disturbed_suite([kind], seed)
        ROWS.add(kind.name, verdict)
        assert verdict.problems == (), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("is_scheduled", [False, True])
def test_an_operator_may_die_at_any_effect_of_the_loop(*, is_scheduled: bool) -> None:
    quiet = undisturbed_suite(is_scheduled=is_scheduled)
    for number in range(1, quiet.effects + 1):
        with folder() as root, suite_scene(root, 0, is_scheduled=is_scheduled) as played:
            played.dies_at = number
            verdict = judged_suite(played, quiet)
        ROWS.add("suite-operator-killed-at-an-effect", verdict)
        assert verdict.problems == (), f"effect {number} of {quiet.effects}"


def test_every_kind_of_suites_has_an_injector() -> None:
    assert {kind.name for kind in KINDS} == {
        name for name in INJECTORS if name.startswith("suite-")
    }


@contextmanager
def at(moment: Moment, count: int, act: Any) -> Iterator[SuiteScene]:
    """Open a scene in which something is done at a stage."""
    with folder() as root, suite_scene(root, 1) as played:
        played.injections.append(Injection(moment, count, lambda scene, _: act(scene)))
        yield played


def test_the_cell_of_a_run_that_somebody_deletes_fails_until_the_annotation_is_set() -> None:
    gone: list[str] = []

    def delete(scene: SuiteScene) -> None:
        gone.extend(name for name, raw in scene.cluster.objects(RUN).items() if not _ended(raw))
        scene.later(0.0, lambda: scene.delete_run(gone[0]))

    with at(STARTED, 1, delete) as played:
        played.apply_suite()
        assert played.work()
        said = status_of(played.suite())
        (cell,) = (each for each in said["results"] if each["run"] == gone[0])
        assert (cell["state"], said["Ready"][:2]) == ("Failed", ("False", "CellsFailed"))
        assert "was deleted before it ended" in said["Ready"][2]
        begun = Counter(entry.run for entry in RunIndex(played.root).entries())
        assert set(begun.values()) == {1}
        played.annotate("again")
        assert played.work()
        problems = _problems(played, status_of(played.suite())["Ready"], ("True", "Completed"))
    _add("suite-run-deleted", problems)


@pytest.mark.parametrize("moment", STAGES, ids=lambda moment: moment.stage)
@pytest.mark.parametrize("kind", ["suite-deleted", "suite-deleted-unseen"])
def test_a_deleted_suite_leaves_its_results_alone(kind: str, moment: Moment) -> None:
    def delete(scene: SuiteScene) -> None:
        scene.later(0.0, lambda: scene.delete_suite(unseen=kind == "suite-deleted-unseen"))

    with at(moment, 1, delete) as played:
        played.apply_suite()
        assert played.work()
        played.wait(UNSEEN_SECONDS)
        assert suite_folders(played.root) == []
        assert [*played.cluster.objects(RUN)] == []
        begun = Counter(entry.run for entry in RunIndex(played.root).entries())
        assert set(begun.values()) == {1}
        problems = _problems(played, (played.suites.active,), (0,))
    _add(kind, problems)


@pytest.mark.parametrize("moment", STAGES, ids=lambda moment: moment.stage)
def test_a_suite_that_is_replaced_goes_on_with_the_second_one(moment: Moment) -> None:
    def replace(scene: SuiteScene) -> None:
        scene.later(0.0, lambda: scene.replace_suite(maxConcurrentRuns=1))

    with at(moment, 1, replace) as played:
        played.apply_suite()
        assert played.work()
        played.wait(UNSEEN_SECONDS)
        assert suite_folders(played.root) == [played.suite()["metadata"]["uid"]]
        begun = Counter(entry.run for entry in RunIndex(played.root).entries())
        assert set(begun.values()) == {1}
        problems = _problems(played, (played.suites.active,), (1,))
    _add("suite-replaced-unseen", problems)


def _problems(played: SuiteScene, said: tuple[Any, ...], wanted: tuple[Any, ...]) -> list[str]:
    left = [view.name for view in played.views() if view.deleting_since is None]
    problems = [*played.errors.lines, *left]
    return problems + ([] if said[: len(wanted)] == wanted else [f"{said}, not {wanted}"])


def _add(kind: str, problems: list[str]) -> None:
    ROWS.add(kind, Verdict(tuple(problems), Counter(), is_equal=True))
    assert problems == []


def _ended(raw: Any) -> bool:
    conditions = raw.get("status", {}).get("conditions", [])
    return any(each["type"] == "Succeeded" and each["status"] != "Unknown" for each in conditions)
