"""docs/architecture.md names modules that exist, and a traced run calls those that it lists."""

import asyncio
import re
import sys
import tomllib
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import h11
import pytest

from securebench.gateway.provider_route import serve_provider
from securebench.protocol.gateway import ProviderConfig, Route
from support import gateways, relays
from support.agent_world import RepositoryWorld
from support.operator_world import World, opened

ROOT = Path(__file__).parents[3]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHECKLISTS = (ROOT / "docs" / "checklists.md").read_text(encoding="utf-8")
MODULE = r"`([a-z_]+(?:\.[a-z_0-9]+)+)`"
NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
GO = r"`(images/[a-z/_]+\.go)`"


def steps(heading):
    """Return the table of a way, and what follows it."""
    section = MAP.split(f"## {heading}\n")[1].split("\n## ")[0]
    table, _, rest = section.split("| --- | --- |")[1].partition("\n\n")
    return table, " ".join(rest.split())


WAYS = {name: steps(name) for name in ("One row, step by step", "One codex patch, step by step")}
NAMED = sorted(set(re.findall(MODULE, MAP + CHECKLISTS)))
LAYERED = ("controller", "run", "run.decide", "suite", "gateway", "client", "grading")
PRODUCT = "securebench."
ELSEWHERE = ("grading.", "benchmark.scorers.")
"""Packages of what runs in Pods, and not in the operator of a test."""
BELOW_HANDLERS = "controller.handlers"
FILES = (".toml", ".md", ".py", ".go", ".json", ".jsonl", ".yaml", ".lock", ".sh", ".mod")


@pytest.mark.parametrize("name", [name for name in NAMED if not name.endswith(FILES)])
def test_every_module_is_there(name):
    assert name.startswith("settings.") or find_spec(f"securebench.{name}") is not None


@pytest.mark.parametrize("package", LAYERED)
def test_the_layers_are_those_of_the_import_contracts(package):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (
        each["layers"]
        for each in settings["tool"]["importlinter"]["contracts"]
        if each.get("containers") == [f"securebench.{package}"]
    )
    text = MAP.split(f"\n- `{package}`: ")[1].split("\n\n")[0].split("\n- ")[0]
    assert re.findall(r"`([a-z_0-9]+)`", text) == re.findall(r"\w+", " ".join(layers))


@pytest.mark.parametrize("name", WAYS)
def test_the_number_of_modules_is_right(name):
    table, rest = WAYS[name]
    on_the_way, in_go = re.findall(MODULE, table), re.findall(GO, table)
    packages = {module.partition(".")[0] for module in on_the_way}
    number = NUMBERS[len(in_go)]
    count = f"These are {len(on_the_way) + len(in_go)} modules, {number} of them in Go, in"
    assert f"{count} {len(packages)} packages" in rest
    assert len(set(on_the_way)) == len(on_the_way)
    assert all((ROOT / path).is_file() for path in in_go)


@contextmanager
def traced():
    """Yield the names of all modules of the product in which a function is called meanwhile."""
    passed = set()

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and frame.f_code.co_name != "<module>" and name.startswith(PRODUCT):
            passed.add(name.removeprefix(PRODUCT))

    sys.setprofile(note)
    try:
        yield passed
    finally:
        sys.setprofile(None)


def not_passed(way, passed):
    expected = set(re.findall(MODULE, WAYS[way][0])) - {BELOW_HANDLERS}
    return {name for name in expected - passed if not name.startswith(ELSEWHERE)}


def test_a_row_passes_the_modules_of_its_way(tmp_path):
    with opened(World, tmp_path) as world, traced() as passed:
        world.work(world.apply(taskSelector={"limit": 1}))
    assert world.condition()["reason"] == "Completed"
    assert not_passed("One row, step by step", passed) == set()


async def asked_through_the_gateway(folder):
    """Ask a scripted provider as the sidecar of a launch does, and end the launch."""
    answer = relays.answer(*relays.events("openai"))
    async with relays.world("openai", [answer], folder) as world:
        provider = ProviderConfig("openai", relays.HOSTS["openai"], str(world.key_file))
        settings = gateways.config((), provider, str(folder / "ca.crt"))
        routes = {Route.PROVIDER: serve_provider}
        async with gateways.serving(folder, routes, settings, world.script) as gateway:
            line, reader, writer = await gateway.knock("provider")
            writer.write(relays.request("openai"))
            http = h11.Connection(h11.CLIENT)
            http.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
            http.send(h11.EndOfMessage())
            answered = await relays.answered(http, reader)
            assert (line, await gateway.close()) == (b"OK\n", b"OK\n")
            return answered.status


def test_a_patch_by_codex_passes_the_modules_of_its_way(tmp_path):
    with traced() as passed:
        with opened(RepositoryWorld, tmp_path / "run") as world:
            world.work(world.begin(), rounds=30)
            reason = world.condition()["reason"]
        (tmp_path / "gateway").mkdir()
        assert asyncio.run(asked_through_the_gateway(tmp_path / "gateway")) == 200
    assert reason == "Completed"
    assert not_passed("One codex patch, step by step", passed) == set()


def test_no_class_of_two_modules_has_one_name():
    """Decision 0046: a name leads to one class."""
    found = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
    modules = (ROOT / "operator" / "securebench").rglob("*.py")
    names = [name for path in modules for name in found.findall(path.read_text(encoding="utf-8"))]
    assert [name for name, count in Counter(names).items() if count > 1] == []
