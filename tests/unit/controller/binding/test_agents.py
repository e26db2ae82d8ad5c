"""The version of an agent's tool, from the administrator's settings to a bound and resumed run."""

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.policy_from_settings import overlays, run_policy
from securebench.errors import ConfigErrors, SpecError
from securebench.run.api.field_types import Outcome
from securebench.run.api.models import BenchmarkRunSpec
from support.build import context_of, settings_of
from unit.controller.binding.test_prepare import LABEL, World

OLD, NEW = "0.169.0", "0.170.0"


def offered(latest, *versions):
    return {"codex": {"images": {each: f"overlay:{each}" for each in versions}, "latest": latest}}


class AgentWorld(World):
    """A volume, a namespace with a provider's key, and an administrator."""

    def offer(self, latest, *versions):
        chosen = offered(latest, *versions)
        self.context = context_of(self.cluster, self.clock, self.root, overlays=chosen)

    async def bind(self, name="nightly", *arguments, version="latest", **spec):
        known = {
            "harness": {"type": "codex", "config": {"model": "m", "version": version}},
            "provider": {"secretRef": {"name": "key"}},
        }
        return await super().bind(name, *arguments, **known | spec)


@pytest.fixture
async def world(tmp_path):
    made = AgentWorld(tmp_path)
    secret = {"metadata": {"name": "key", "labels": LABEL}, "data": {"OPENAI_API_KEY": "aw=="}}
    await made.cluster.create(ObjectKind.SECRET, secret)
    made.offer(OLD, OLD)
    return made


async def test_a_run_keeps_the_version_that_it_began_with(world):
    first = await world.bind()
    assert (first.plan.harness.agent.version, first.plan.harness.agent.overlay) == (
        OLD,
        f"overlay:{OLD}",
    )
    assert first.store.binding()["agent_version"] == OLD
    world.offer(NEW, OLD, NEW)
    assert (await world.bind()).plan == first.plan


async def test_another_image_of_the_same_version_is_the_same_plan(world):
    first = await world.bind()
    chosen = {"codex": {"images": {OLD: "elsewhere/overlay:1"}, "latest": OLD}}
    world.context = context_of(world.cluster, world.clock, world.root, overlays=chosen)
    again = await world.bind()
    assert again.plan.digest == first.plan.digest
    assert again.plan.harness.agent.overlay == "elsewhere/overlay:1"


async def test_a_run_goes_on_with_a_version_that_is_gone(world):
    first = await world.bind()
    world.offer(NEW, NEW)
    assert (await world.bind()).plan == first.plan


async def test_a_run_goes_on_without_the_secret_that_it_began_with(world):
    first = await world.bind()
    world.cluster.remove(ObjectKind.SECRET, "key")
    assert (await world.bind()).plan == first.plan


async def test_what_is_continued_keeps_its_version(world):
    earlier = await world.earlier(Outcome.SCORED)
    world.offer(NEW, OLD, NEW)
    resumed = await world.resume()
    assert resumed.plan.harness.agent == earlier.plan.harness.agent
    assert resumed.store.binding()["agent_version"] == OLD


async def test_a_version_that_is_gone_cannot_be_continued(world):
    await world.earlier(Outcome.SCORED)
    world.offer(NEW, NEW)
    with pytest.raises(
        SpecError, match=r"codex 0\.169\.0 is not installed here; available: 0\.170"
    ):
        await world.resume()


async def test_another_written_version_is_another_harness(world):
    await world.earlier(Outcome.SCORED)
    world.offer(NEW, OLD, NEW)
    with pytest.raises(ConfigErrors, match="harness_digest differs"):
        await world.resume(
            harness={"type": "codex", "config": {"model": "m", "version": NEW}},
        )


async def test_a_version_that_nobody_offers_leaves_nothing_behind(world):
    with pytest.raises(SpecError, match=r"codex 9\.9 is not installed here; available: 0\.169\.0"):
        await world.bind(version="9.9")
    assert not (world.root / "runs").exists()


async def test_a_provider_key_without_the_label_is_refused(world):
    await world.cluster.create(ObjectKind.SECRET, {"metadata": {"name": "other"}})
    with pytest.raises(SpecError, match=r"spec\.provider\.secretRef: Secret 'other'"):
        await world.bind(provider={"secretRef": {"name": "other"}})


def test_what_the_settings_offer(tmp_path):
    settings = settings_of(tmp_path, overlays=offered(NEW, OLD, NEW))
    assert overlays(settings) == {
        "codex": {OLD: f"overlay:{OLD}", NEW: f"overlay:{NEW}", "latest": NEW},
        "claude_code": {},
        "mini_swe_agent": {},
        "opencode": {},
    }
    assert "latest" not in overlays(settings_of(tmp_path, overlays=offered("", OLD)))["codex"]


def test_retries_after_the_provider_failed_are_the_testers(tmp_path):
    raw = {
        "pack": {"volume": {"path": "p"}},
        "harness": {"type": "command", "config": {"command": "x"}},
        "infrastructureRetries": 1,
        "providerRetries": 5,
    }
    policy = run_policy(BenchmarkRunSpec.parse(raw), settings_of(tmp_path))
    assert (policy.infrastructure_retries, policy.provider_retries) == (1, 5)
