"""Values of `harness.env` that change while a run is under way stay out of what is kept of it."""

import base64
import json
from collections.abc import Iterator

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import CANDIDATES
from securebench.run.plan.model import LaunchKey, Role
from support.build import Status
from support.operator_world import World, opened
from support.places import launch_place

OLD, NEW = "canary-first-5f3a", "canary-later-9d27"
HARNESS = {
    "type": "command",
    "config": {"command": "echo B"},
    "env": ["TOKEN"],
    "secretRef": {"name": "keys"},
}


class Printing(World):
    """Agents print both values."""

    def ending(self, uid: str, launch: LaunchKey) -> Status:
        status = super().ending(uid, launch)
        if launch.role is Role.HARNESS:
            stream = launch_place(RunStore(self.root, uid), launch) / "producer/stdout"
            stream.write_text(f"old={OLD} new={NEW} end\n")
        return status

    def put_secret(self, value: str) -> None:
        """Create the Secret, or replace it."""
        labels = {"securebench.dev/usable-by-runs": "true"}
        data = {"TOKEN": base64.b64encode(value.encode()).decode()}
        if "keys" in self.cluster.objects(ObjectKind.SECRET):
            self.cluster.remove(ObjectKind.SECRET, "keys")
        body = {"metadata": {"name": "keys", "labels": labels}, "data": data}
        self.runner.run(self.cluster.create(ObjectKind.SECRET, body))

    def printed(self, uid: str) -> set[str]:
        """Return what the records of the run, which has ended, keep of the agents' output."""
        self.work(uid)
        assert self.condition()["reason"] == "Completed"
        lines = (RunStore(self.root, uid).folder / CANDIDATES).read_text().splitlines()
        return {json.loads(line)["producer_stdout"] for line in lines}


@pytest.fixture
def world(tmp_path) -> Iterator[Printing]:
    with opened(Printing, tmp_path) as made:
        yield made


def test_a_value_that_is_replaced_is_masked_like_the_one_before(world):
    world.put_secret(OLD)
    uid = world.apply(harness=HARNESS)
    world.put_secret(NEW)
    assert world.printed(uid) == {f"old={'*' * len(OLD)} new={'*' * len(NEW)} end\n"}


def test_nothing_is_kept_where_no_value_is_known_any_more(world):
    world.put_secret(OLD)
    uid = world.apply(harness=HARNESS)
    world.cluster.remove(ObjectKind.SECRET, "keys")
    world.restart()
    world.observe(None)
    assert {text.strip("*") for text in world.printed(uid)} == {""}
