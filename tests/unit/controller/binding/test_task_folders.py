"""Runs of packs of Harbor task folders: what is bound, and what each Pod gets."""

import json
import pickle
import stat

import pytest

from securebench.agents.registry import harness_config
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.controller.attempt_keeper import LaneKeeper
from securebench.controller.context import run_object
from securebench.controller.lifecycle import is_pack_error
from securebench.errors import ConfigErrors
from securebench.run.plan.build import task_plan
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.harness import harness_pod
from securebench.run.verification.base import Member, verifier_pod
from support.bound_runs import bound_run
from support.build import FakeClock, context_of, run_body
from support.fake_cluster import FakeCluster
from support.harbor_packs import READY, folder_pack
from support.manifest_samples import FACTS, LANES, candidate

UID = "11111111-0000-4000-8000-000000000000"
AUDIT = {"securebench.dev/purpose": "audit"}
FILES = {
    "instruction.md": "# canary\n\n- Sort `names`.\n",
    "tests/test.sh": "#!/bin/bash\n/tests/helper\n",
    "tests/helper": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n",
    "tests/secret.txt": "hidden words\n",
    "solution/solve.sh": "#!/bin/bash\necho solved\n",
}
CONFIG = {
    "environment": {**READY["environment"], "workdir": "/srv", "cpus": 2, "env": {"A": "b"}},
    "verifier": {"timeout_sec": 30, "env": {"A": "c"}},
}


class World:
    def __init__(self, root):
        clock = FakeClock()
        self.root = root
        self.context = context_of(FakeCluster(clock=clock), clock, root)
        self.pack = folder_pack(root / "packs/smoke", "sort-it", config=CONFIG, **FILES)

    async def bind(self, harness, labels=AUDIT, **spec):
        body = run_body("nightly", harness=harness, **spec)
        body["metadata"] |= {"uid": UID, "namespace": "bench", "labels": labels}
        return await bound_run(self.context, run_object(body))

    async def lanes(self, bound):
        manifest, harness = bound.pack.manifest, bound.plan.harness
        keeper = LaneKeeper(bound.store, manifest.parent, harness.task_file, bound.plan.answers)
        return await keeper.lanes(bound.plan.tasks[0])


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.mark.parametrize("kind", ["oracle", "nop"])
async def test_a_later_start_restores_the_same_plan(world, kind):
    first = await world.bind({"type": kind})
    (task,) = first.plan.tasks.values()
    environment = task.environment
    assert (task.task.id, environment.image) == ("sort-it", "debian:12")
    assert (environment.workspace, environment.workdir) == ("", "/srv")
    assert (environment.env, environment.limits.cpus) == ({"A": "b"}, 2)
    assert bool(first.plan.answers) is (kind == "oracle")
    (world.pack / "sort-it/instruction.md").write_text("another text\n")
    assert (await world.bind({"type": kind})).plan == first.plan


async def test_the_oracle_alone_gets_the_solution(world):
    found = {}
    for kind in ("oracle", "nop"):
        world.context.settings.data_root.joinpath("runs").mkdir(exist_ok=True)
        bound = await World(world.root / kind).bind({"type": kind})
        lanes = await World.lanes(world, bound)
        pod = harness_pod(
            bound.plan, bound.plan.tasks[0], LaunchKey(0, 1, Role.HARNESS, 1), lanes, FACTS
        )
        found[kind] = json.dumps(pod)
    assert "/opt/securebench/oracle" in found["oracle"]
    assert "oracle" not in found["nop"].replace('"oracle": false', "")
    for text in found.values():
        assert "evaluation_inputs" not in text
        assert "hidden words" not in text


async def test_tests_lie_at_their_place_and_programs_run(world):
    bound = await world.bind({"type": "nop"})
    task, lanes = bound.plan.tasks[0], await world.lanes(bound)
    member = Member(task, LaunchKey(0, 1, Role.VERIFIER, 1), lanes, candidate("root.tar"))
    (container,) = verifier_pod(bound.plan, [member], FACTS)["spec"]["containers"]
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    assert mounts["/tests"]["readOnly"] is True
    folders = [path for path in world.root.rglob("evaluation_inputs") if path.is_dir()]
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for folder in folders
        for path in folder.iterdir()
    }
    assert modes == {"test.sh": 0o755, "helper": 0o755, "secret.txt": 0o644}
    spec = json.loads(container["command"][3])
    assert spec["phases"][0]["env"] == {"A": "c"}
    assert spec["phases"][0]["timeout_seconds"] == 30


COMPOSE = """\
services:
  main: {depends_on: {web: {condition: service_healthy}}}
  web: {image: nginx, depends_on: [db], healthcheck: {test: curl -f http://127.0.0.1}}
  db: {image: "postgres:16", environment: {PASSWORD: words-of-db}}
"""


async def test_both_pods_have_the_services(world):
    (world.pack / "sort-it/environment").mkdir(exist_ok=True)
    (world.pack / "sort-it/environment/docker-compose.yaml").write_text(COMPOSE)
    bound = await world.bind({"type": "nop"})
    task, lanes = bound.plan.tasks[0], await world.lanes(bound)
    launch = LaunchKey(0, 1, Role.VERIFIER, 1)
    pods = [
        harness_pod(bound.plan, task, launch._replace(role=Role.HARNESS), lanes, FACTS),
        verifier_pod(bound.plan, [Member(task, launch, lanes, candidate("root.tar"))], FACTS),
    ]
    for pod in pods:
        spec = pod["spec"]
        database, web, courier = spec["initContainers"]
        assert [each["name"] for each in (database, web)] == ["service-db", "service-web"]
        assert database["env"] == [{"name": "PASSWORD", "value": "words-of-db"}]
        assert web["startupProbe"]["exec"]["command"][:2] == ["/bin/sh", "-c"]
        assert spec["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["db", "web"]}]
        others = json.dumps([web, courier, *spec["containers"]])
        assert "words-of-db" not in others
    lanes_of_run = [path for path in world.root.rglob("lanes/public/**/*") if path.is_file()]
    assert lanes_of_run
    assert not [path for path in lanes_of_run if b"words-of-db" in path.read_bytes()]


async def test_its_plan_reaches_the_process_that_reads(world):
    plan = (await world.bind({"type": "nop"})).plan
    assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own


@pytest.mark.parametrize("agent", ["codex", "claude_code", "opencode", "mini_swe_agent"])
async def test_an_agents_prompt_is_the_instruction(world, agent):
    """It looks like an option here, so that it comes last."""
    task = (await world.bind({"type": "nop"})).plan.tasks[0].task
    plan = task_plan(0, task, harness_config(agent, {"model": "m"}), VerificationPolicy())
    assert plan.command[-2:] == ("--", "- Sort `names`.\n")


async def test_a_bad_folder_is_the_packs_fault(world):
    (world.pack / "sort-it/tests/test.sh").unlink()
    with pytest.raises(ConfigErrors) as caught:
        await world.bind({"type": "nop"})
    assert is_pack_error(caught.value)
    (error,) = caught.value.errors
    assert str(error).startswith("sort-it/tests/test.sh: is missing")


async def test_an_open_network_needs_a_word_of_the_run(world):
    folder_pack(world.pack, "open", config={"environment": {"docker_image": "debian:12"}})
    with pytest.raises(ConfigErrors, match="task 'open' asks for the network public"):
        await world.bind({"type": "nop"})
    only = {"include": ["sort-it"]}
    assert len((await world.bind({"type": "nop"}, taskSelector=only)).plan.tasks) == 1


async def test_a_health_check_comes_before_the_agent(world):
    check = {"healthcheck": {"command": "test -S /run/db", "retries": 2}}
    config = {**CONFIG, "environment": {**CONFIG["environment"], **check}}
    folder_pack(world.pack, "checked", config=config)
    bound = await world.bind({"type": "nop"}, taskSelector={"include": ["checked"]})
    (task,) = bound.plan.tasks.values()
    launch = LaunchKey(task.index, 1, Role.HARNESS, 1)
    (container,) = harness_pod(bound.plan, task, launch, LANES, FACTS)["spec"]["containers"]
    first, second = json.loads(container["command"][3])["phases"]
    assert (first["name"], second["name"]) == ("healthcheck", "harness")
    assert "'test -S /run/db'" in first["command"][2]
    assert first["env"] == {"A": "b"}
