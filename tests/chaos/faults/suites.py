"""What is done to a suite, to its runs, and around both."""

from __future__ import annotations

import errno
from functools import partial
from typing import Any

from chaos.faults import clocks, operators, requests, volumes, watches
from chaos.faults.requests import CUT, fail
from chaos.kit.cluster import answer
from chaos.kit.registry import Act, fault
from chaos.kit.suite_scene import (
    APPLIED,
    COMPARED,
    CREATED,
    ENDED,
    JUDGED,
    REMEMBERED,
    SHORTENED,
    STARTED,
    STATED,
    SUITE,
    TICK,
    SuiteScene,
)
from securebench.cluster.port import ObjectKind, QuotaExceeded
from support.build import lead_of

RUN, SUITES = ObjectKind.BENCHMARK_RUN, ObjectKind.BENCHMARK_SUITE
STAGES = (APPLIED, CREATED, STARTED, ENDED, STATED, REMEMBERED, JUDGED, COMPARED, SHORTENED)
BEFORE_CREATES = (APPLIED, REMEMBERED)
"""Stages after which runs are created for certain."""

GOING = (CREATED, STARTED, ENDED)
"""Stages at which the first round is under way, or the second one."""

SEEN_SECONDS = 1.0
"""Within which the operator has seen an edit."""

for kind, verb, of, error, times, took_effect, moments in (
    ("create-429", "create", RUN, answer(429, retry_after="7"), 3, False, BEFORE_CREATES),
    ("create-500", "create", RUN, answer(500), 3, False, BEFORE_CREATES),
    ("create-409", "create", RUN, answer(409), 3, False, BEFORE_CREATES),
    ("create-403", "create", RUN, answer(403), 2, False, BEFORE_CREATES),
    ("create-cut", "create", RUN, CUT, 2, False, BEFORE_CREATES),
    ("create-answer-lost", "create", RUN, CUT, 1, True, BEFORE_CREATES),
    ("create-504-done", "create", RUN, answer(504), 1, True, BEFORE_CREATES),
    ("create-quota", "create", RUN, QuotaExceeded("exceeded quota"), 3, False, BEFORE_CREATES),
    ("status-500", "patch_status", SUITES, answer(500), 3, False, GOING),
    ("status-409", "patch_status", SUITES, answer(409), 3, False, GOING),
    ("status-answer-lost", "patch_status", SUITES, CUT, 3, True, GOING),
    ("list-500", "list", RUN, answer(500), 3, False, STAGES),
    ("get-500", "get", SUITES, answer(500), 3, False, STAGES),
    ("delete-500", "delete", RUN, answer(500), 1, False, (SHORTENED,)),
    ("delete-answer-lost", "delete", RUN, CUT, 1, True, (SHORTENED,)),
):
    failing = fail(verb, error, times=times, took_effect=took_effect, kind=of)
    fault(f"suite-{kind}", moments)(failing)


def of_one_kind(act: Act, scene: SuiteScene, view: Any) -> None:
    """Disturb the watch of the suites, or that of their runs."""
    scene.cluster.weather.mangled_kinds = [scene.random.choice([RUN, SUITES])]
    act(scene, view)


for kind, act, moments in (
    ("api-away", partial(requests.away, CUT), STAGES),
    ("api-503", partial(requests.away, answer(503)), STAGES),
    ("api-429", partial(requests.away, answer(429, retry_after="1")), STAGES),
    ("api-slow", requests.slow, STAGES),
    ("watch-cut", watches.cut, STAGES),
    ("watch-ended", watches.ended, STAGES),
    ("watch-410", watches.expired, STAGES),
    ("events-doubled", partial(of_one_kind, watches.doubled), GOING),
    ("events-stale", partial(of_one_kind, watches.stale), GOING),
    ("clock-forward", partial(clocks.jump, 3600.0), (*STAGES, TICK)),
    ("clock-back", partial(clocks.jump, -300.0), (*STAGES, TICK)),
    ("clock-unsteady", clocks.unsteady, (*GOING, TICK)),
    ("volume-read-only", volumes.read_only, (STATED, REMEMBERED)),
    ("volume-away", volumes.away, (STATED, REMEMBERED)),
    ("sync-fails", volumes.unsynced, (STATED, REMEMBERED)),
    ("operator-killed", operators.killed, STAGES),
    ("operator-killed-at-an-effect", operators.killed_at_an_effect, STAGES),
    ("operator-restarted", operators.restarted, STAGES),
    ("operator-away", operators.away, GOING),
    ("second-operator", operators.doubled, GOING),
    ("lease-overdue", operators.overdue, (CREATED, STARTED)),
):
    fault(f"suite-{kind}", moments)(act)


@fault("suite-events-lost", GOING)
def lost(scene: SuiteScene, _: Any) -> None:
    """Hide changes of the suite, or of its runs; kopf itself shows that a run is there."""
    scene.cluster.weather.mangled_kinds = [scene.random.choice([RUN, SUITES])]
    watches.mangle(scene, lambda event: [event] if event.type == "ADDED" else [])


@fault("suite-volume-full", (STATED, REMEMBERED))
def full(scene: SuiteScene, view: Any) -> None:
    volumes.full(scene, view)
    scene.volume.room_bytes = 0


@fault("suite-volume-unreadable", (JUDGED, COMPARED))
def unreadable(scene: SuiteScene, view: Any) -> None:
    """Let nothing on the volume be read for a while, nor written."""
    scene.volume.read_trouble = errno.ESTALE
    volumes.away(scene, view)


@fault("suite-leader-deposed", GOING)
def deposed(scene: SuiteScene, _: Any) -> None:
    """Let another operator lead while the first one goes on without knowing."""
    scene.later(0.0, scene.depose)


@fault("suite-leader-late-write", (REMEMBERED,))
def late_write(scene: SuiteScene, _: Any) -> None:
    """Let another leader begin on the volume before the state of the suite is written."""
    path = scene.state_path()
    before = path.read_bytes() if path.exists() else b""
    lead_of(scene.root)
    scene.link.is_cut = True
    written: list[bytes] = []

    def begin() -> None:
        written.append(path.read_bytes() if path.exists() else b"")
        scene.depose()

    scene.later(0.0, begin)
    scene.must_feel.append(lambda: written == [before])


@fault("suite-edited", GOING)
def edited(scene: SuiteScene, _: Any) -> None:
    """Change what no score depends on."""
    scene.edit(maxConcurrentRuns=4, template={"parallelism": 1})
    scene.later(20.0, lambda: scene.edit(maxConcurrentRuns=1, template={"parallelism": 2}))


@fault("suite-suspended", (APPLIED, CREATED))
def suspended(scene: SuiteScene, _: Any) -> None:
    """Suspend the suite for a while, in which no run is created."""
    there: list[set[str]] = []

    def note() -> None:
        there.append(scene.runs_so_far())

    def resume() -> None:
        note()
        scene.edit(suspend=False)

    scene.edit(suspend=True)
    scene.later(SEEN_SECONDS, note)
    scene.later(150.0, resume)
    scene.must_feel.append(lambda: there[0] == there[1])


@fault("suite-status-wiped", (*GOING, JUDGED))
def status_wiped(scene: SuiteScene, _: Any) -> None:
    """Remove the status of the suite as a careless tool would."""
    nothing = {"conditions": None, "results": None, "cells": None, "observedGeneration": None}
    scene.later(1.0, lambda: scene.cluster.edit(SUITES, SUITE, {"status": nothing}))
