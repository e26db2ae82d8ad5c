"""A family and a kind of verification that no module of the product knows, in one file."""

import asyncio
import json
import re
import subprocess
from pathlib import Path
from unittest import mock

import pytest

import securebench
from securebench.benchmark.families.registry import FAMILIES, eval_visibility_for
from securebench.benchmark.reading.rows import rendered_schemas
from securebench.benchmark.resources import Lane
from securebench.cluster.port import ObjectKind
from securebench.errors import ConfigError
from securebench.run.plan.kinds import KINDS, kind_named
from securebench.run.plan.model import Role
from support.build import ended, inline, pod_status, write_pack
from support.operator_world import World
from support.plugins import PLUGINS, installed, plugin
from support.pod_ends import handed_in
from support.records import VALIDATOR

MANIFEST = """\
id: smoke
version: 1
defaults:
  family: parity
  environment: {image: "busybox:1.36", timeout_seconds: 60}
"""
ANSWER = "42\n"


def row(task_id, *, even):
    return {"id": task_id, "input": {"question": "?"}, "eval": {"even": even}}


class PluginWorld(World):
    """Its verifier Pods run their command on this machine."""

    def ending(self, uid, launch):
        if launch.role is not Role.VERIFIER:
            return handed_in(self.root, uid, launch, ANSWER)
        pods = self.cluster.objects(ObjectKind.POD)
        (pod,) = [raw for name, raw in pods.items() if self.launch(name) == launch]
        (container,) = pod["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        place = str(self.root / mount["subPath"])
        command = [word.replace(mount["mountPath"], place) for word in container["command"]]
        code = subprocess.run(command, check=False).returncode
        return pod_status("Failed" if code else "Succeeded", ended("verifier", code))


@pytest.fixture
def parity(tmp_path):
    (tmp_path / "packages").mkdir()
    with plugin(tmp_path / "packages", "parity"):
        yield


@pytest.fixture
def world(tmp_path, parity):  # noqa: ARG001 - the package is installed
    with mock.patch.object(asyncio, "to_thread", inline):
        world = PluginWorld(tmp_path)
        yield world
        world.runner.run(world.supervisor.close())
        world.runner.close()


def test_a_run_of_a_plug_in_ends_with_records(world):
    write_pack(
        world.root / "packs/smoke", [row("right", even=True), row("wrong", even=False)], MANIFEST
    )
    uid = world.apply()
    world.work(uid, rounds=30)
    assert world.condition()["reason"] == "Completed"
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    right, wrong = map(json.loads, lines)
    for record in (right, wrong):
        VALIDATOR.validate(record)
        assert (record["task_type"], record["outcome"]) == ("parity", "scored")
        assert record["verifier_metadata"]["code"] == 0
    assert (right["passed"], wrong["passed"]) == (True, False)
    assert wrong["verifier_metadata"]["wanted"] == "an odd number"


def test_a_family_without_its_kind_is_named(world):
    points = KINDS._points.pop("last-digit")
    try:
        write_pack(world.root / "packs/smoke", [row("right", even=True)], MANIFEST)
        world.apply()
    finally:
        KINDS._points["last-digit"] = points
    assert world.condition()["reason"] == "InvalidSpec"
    assert "no installed package has the verification 'last-digit'" in world.condition()["message"]


def test_its_rows_are_checked_and_its_answers_are_hidden(world):
    write_pack(world.root / "packs/smoke", [{**row("a", even=True), "eval": {"evn": 1}}], MANIFEST)
    world.apply()
    assert world.condition()["reason"] == "PackInvalid"
    assert "did you mean 'even'" in world.condition()["message"]
    assert eval_visibility_for("parity", "even") is Lane.HIDDEN
    assert "row.parity.schema.json" in rendered_schemas()


def test_no_file_of_the_product_knows_it():
    (module,) = (PLUGINS / "parity").glob("*.py")
    product = Path(securebench.__file__).parent
    words = (module.stem, "last-digit", "LastDigit")
    texts = {path: path.read_text() for path in product.rglob("*.py")}
    assert [path for path, text in texts.items() if any(word in text for word in words)] == []


def other(folder, text="", *, name="other", point="odd", group="families"):
    """Install a package with one module and one entry point."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return installed(folder, name, {f"securebench.{group}": {point: f"{name}:FAMILY"}})


NAMED = "from types import SimpleNamespace\nFAMILY = SimpleNamespace(name={name!r})\n"
BROKEN = {
    "no such name": ("", "has no attribute 'FAMILY'"),
    "an import that fails": ("import nothing_like_this", "No module named 'nothing_like_this'"),
    "no Python": ("def", "invalid syntax"),
    "a missing key": ("{}['key']", "KeyError: 'key'"),
    "an error of its own": ("class Own(Exception): ...\nraise Own('why')", "Own: why"),
    "a file that is not there": ("open('/nothing/like/this')", "FileNotFoundError"),
    "an end of the program": ("raise SystemExit(3)", "SystemExit: 3"),
    "another name": (
        NAMED.format(name="even"),
        "other:FAMILY, which securebench.families calls 'odd', has another name",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_package_that_cannot_be_used_is_named_and_harms_no_other(name, tmp_path):
    text, want = BROKEN[name]
    with other(tmp_path / "packages", text):
        with pytest.raises(ConfigError, match=re.escape(want)):
            FAMILIES["odd"]
        assert FAMILIES["short_answer"].name == "short_answer"
        assert "odd" in list(FAMILIES)
        ours = set(FAMILIES) - {"odd"}
        assert {name for name, _ in FAMILIES.items()} == ours
        assert {family.name for family in FAMILIES.values()} == ours


def test_of_two_packages_with_one_name_neither_is_used(tmp_path):
    text = NAMED.format(name="odd")
    want = "in several installed packages: more:FAMILY, other:FAMILY"
    packages = other(tmp_path / "a", text), other(tmp_path / "b", text, name="more")
    with packages[0], packages[1], pytest.raises(ConfigError, match=want):
        FAMILIES["odd"]


@pytest.mark.parametrize(
    ("registry", "group", "name"),
    [(FAMILIES, "families", "short_answer"), (KINDS, "verifications", "text")],
)
def test_no_package_takes_a_name_of_ours(registry, group, name, tmp_path):
    before = registry[name]
    with other(tmp_path / "a", NAMED.format(name=name), point=name, group=group):
        assert registry[name] is before


@pytest.mark.usefixtures("parity")
def test_a_registry_is_a_mapping():
    assert FAMILIES["parity"] is FAMILIES["parity"]
    assert len(FAMILIES) == len(list(FAMILIES)) == 8
    assert FAMILIES.get("chess") is None
    assert "chess" not in FAMILIES
    assert kind_named("last-digit").name == "last-digit"
