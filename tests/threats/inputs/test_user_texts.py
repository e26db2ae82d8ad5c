"""F9: text of users stays text: in objects, in commands and in the names of files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
import yaml

from securebench.benchmark.resources import Resource, ResourceBundle
from securebench.run.plan.model import LaunchKey, Role, RunPlan, TaskPlan
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.isolation import deny_policy
from securebench.run.verification.base import Member, verifier_pod
from securebench.run.verification.command import CommandVerification
from securebench.run.verification.patch import PatchVerification
from support.manifest_samples import (
    FACTS,
    LANES,
    PATCH,
    candidate,
    changed,
    code_task,
    patch_task,
    pods,
    run_plan,
    terminal_task,
    text_task,
)
from support.release import Raw
from threats.honest import APP
from threats.kit.arena import Arena
from threats.kit.batch import RUN_AGENT, Batch

HOSTILE: Mapping[str, str] = {
    "quotes": """a'b"c`d""",
    "lines": "\u00e4\n      hostNetwork: true\n      x: y",
    "template": "{{ .Values.secret }}{% raw %}${HOME}$(id)%s%(x)s{0}",
    "steps": "../../../etc/passwd",
    "shell": "a; touch /tmp/owned & $(touch /tmp/owned) `touch /tmp/owned` | sh #",
    "json": 'a","securityContext":{"privileged":true},"x":"',
    "yaml": "&a !!python/object/apply:os.system ['id']",
    "odd": "\u202e\x7f\x01\ufeff-",
}
TASKS: Mapping[str, TaskPlan] = {
    "text": text_task(),
    "terminal": terminal_task(),
    "code": code_task(),
    "patch": patch_task(),
}
HARMLESS = "w\u00f6rd"
"""No name of a program, which a precheck would look for in the image."""


def filled(task: TaskPlan, text: str) -> TaskPlan:
    """Return a task all of whose free texts are one text."""
    resources = ResourceBundle(
        tuple(replace(each, value=_texts(each, text)) for each in task.task.resources)
    )
    verification = task.verification
    if isinstance(verification, CommandVerification | PatchVerification):
        check = replace(verification.check, command=("sh", "-lc", text))
        verification = replace(verification, check=check)
    identity = replace(task.task, id=text, benchmark_id=text, resources=resources)
    return changed(task, task=identity, verification=verification, image=text)


def _texts(resource: Resource, text: str) -> object:
    value = resource.value
    if isinstance(value, Mapping):
        return {key: each if key == "source" else text for key, each in value.items()}
    return [text] if isinstance(value, list) else text


def run_with(task: TaskPlan, text: str) -> RunPlan:
    plan = run_plan(task, pack_id=text, pods=pods(node_selector={"zone": text}))
    harness = replace(
        plan.harness,
        command=("sh", "-lc", text, text),
        config={"command": text},
        env=(text,),
        secret=text,
    )
    return replace(plan, harness=harness, identity=replace(plan.identity, run_id=text))


def rendered(name: str, text: str) -> list[Raw]:
    """Return everything that is made for a run and a task in which every text is this one."""
    task = filled(TASKS[name], text)
    plan = run_with(task, text)
    launch = LaunchKey(task.index, 1, Role.HARNESS, 1)
    verifier = launch._replace(role=Role.VERIFIER)
    return [
        dict(deny_policy(plan)),
        dict(harness_pod(plan, task, launch, LANES, FACTS)),
        dict(verifier_pod(plan, [Member(task, verifier, LANES, candidate(patch=PATCH))], FACTS)),
    ]


def shape(item: object) -> object:
    """Return the structure of an object: its keys and, in place of the texts, their kinds.

    What our own programs are told is JSON in an argument; it is opened.
    """
    if isinstance(item, Mapping):
        return {key: shape(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [shape(value) for value in item]
    if isinstance(item, str) and item.startswith('{"version":'):
        return shape(json.loads(item))
    return type(item).__name__


def texts(item: object) -> Iterator[str]:
    """Yield all texts in an object, opened as in ``shape``."""
    if isinstance(item, Mapping):
        for value in item.values():
            yield from texts(value)
    elif isinstance(item, list | tuple):
        for value in item:
            yield from texts(value)
    elif isinstance(item, str):
        is_spec = item.startswith('{"version":')
        yield from texts(json.loads(item)) if is_spec else [item]


@pytest.mark.short
@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("name", TASKS)
def test_a_194_attack(name: str, kind: str) -> None:
    text = HOSTILE[kind]
    harmless, hostile = rendered(name, HARMLESS), rendered(name, text)

    assert shape(hostile) == shape(harmless)
    before, after = list(texts(harmless)), list(texts(hostile))
    assert [each for each in after if text in each and each != text] == []
    assert after.count(text) == before.count(HARMLESS) > 0
    assert json.loads(json.dumps(hostile)) == hostile


Renderer = Callable[[str], object]
NAIVE: Mapping[str, Renderer] = {
    "lines": lambda text: yaml.safe_load(f"spec:\n  containers:\n    - name: {text}\n"),
    "json": lambda text: json.loads('{"name":"' + text + '"}'),
}
"""Renderers that put text together; each falls to one kind of text."""


@pytest.mark.parametrize("kind", NAIVE)
def test_a_194_twin(kind: str) -> None:
    assert shape(NAIVE[kind](HOSTILE[kind])) != shape(NAIVE[kind](HARMLESS))


@pytest.mark.parametrize("name", TASKS)
def test_a_194_honest_texts(name: str) -> None:
    assert list(texts(rendered(name, HARMLESS))).count(HARMLESS) > 0


ALL = "".join(text for kind, text in HOSTILE.items() if kind != "odd")
PRINT = """\
import json, os, sys
print(json.dumps([sys.argv[1], os.path.exists("/tmp/owned"), sorted(os.listdir("/app"))]))
"""
ARGUED = Batch(
    "f9-texts",
    "terminal_task",
    defaults=APP,
    spec={
        "runId": ALL.replace("\n", " "),
        "harness": {
            "type": "command",
            "config": {"command": ["python3", "-c", RUN_AGENT, ALL]},
        },
    },
).task(
    ALL,
    agent=PRINT,
    grading={"checker": {"command": "test ! -e /tmp/owned"}, "expected_state": ALL},
)


@pytest.mark.short
@pytest.mark.trials(ARGUED)
def test_a_194_attack_on_a_run(arena: Arena) -> None:
    record = arena.record(ARGUED)
    argument, is_owned, files = json.loads(record["producer_stdout"])

    assert (argument, is_owned, files) == (ALL, False, ["securebench", "task.json"])
    assert record["task_id"] == ALL
    assert record["run_id"] == ALL.replace("\n", " ")
    for role in ("harness", "verifier"):
        (pod,) = arena.pods(ARGUED, role)
        assert "hostNetwork" not in pod["spec"]
        assert ALL not in json.dumps(pod["metadata"])


def test_a_194_attack_on_folders() -> None:
    """Names of users are no names of files: folders are made of numbers and of the run's uid."""
    for text in HOSTILE.values():
        for pod in rendered("terminal", text)[1:]:
            paths = [
                mount["subPath"]
                for part in ("initContainers", "containers")
                for container in pod["spec"].get(part, ())
                for mount in container["volumeMounts"]
                if mount.get("subPath")
            ]
            assert paths
            assert not any(text in path or ".." in path for path in paths)
