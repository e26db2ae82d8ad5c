"""F8: a Pod is a cell."""

from __future__ import annotations

import json

import pytest

from threats.honest import APP, TERMINAL, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Weakening

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
SEEK_TOKEN = f"""\
import json, os
seen = os.path.exists({TOKEN!r})
json.dump({{"token": seen}}, open("seen.json", "w"))
"""
SHOW = {"checker": {"command": "cat seen.json; test -e seen.json"}}
AGENTS = Batch("f8-agents", "terminal_task", defaults=APP)
TOKEN_SOUGHT = AGENTS.task("token", agent=SEEK_TOKEN, grading=SHOW)
WITH_TOKEN = Batch(
    "f8-with-token",
    "terminal_task",
    defaults=APP,
    weakening=Weakening(
        ('[JSONPatch{op: "replace", path: "/spec/automountServiceAccountToken", value: true}]',)
    ),
).task("token", agent=SEEK_TOKEN, grading=SHOW)


@pytest.mark.short
@pytest.mark.trials(TOKEN_SOUGHT)
def test_a_155_attack(arena: Arena) -> None:
    (pod,) = arena.pods(TOKEN_SOUGHT, "harness")

    assert pod["spec"]["automountServiceAccountToken"] is False
    assert TOKEN not in json.dumps(pod)
    assert json.loads(arena.record(TOKEN_SOUGHT)["verifier_stdout"]) == {"token": False}


@pytest.mark.trials(WITH_TOKEN)
def test_a_155_twin(arena: Arena) -> None:
    (pod,) = arena.pods(WITH_TOKEN, "harness")

    assert TOKEN in json.dumps(pod)
    assert json.loads(arena.record(WITH_TOKEN)["verifier_stdout"]) == {"token": True}


@pytest.mark.short
@pytest.mark.trials(TERMINAL)
def test_a_155_honest(arena: Arena) -> None:
    assert_passed(arena, TERMINAL)
