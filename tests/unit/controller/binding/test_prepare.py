import json
import shutil
from dataclasses import replace

import pytest

from securebench.benchmark.files import load
from securebench.benchmark.pack import task as compiling
from securebench.cluster.port import ObjectKind
from securebench.controller.context import run_object
from securebench.controller.volume.registers import RunIndex, write_audit
from securebench.errors import (
    ConfigErrors,
    InvalidInputError,
    PackError,
    SpecError,
)
from securebench.protocol.supervise import ProbeTarget
from securebench.protocol.volume import AuditResult, PackAudit
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import Finished, Kept, LaunchBegun, Opened, RunBound
from support.bound_runs import bound_run
from support.build import NOW, FakeClock, context_of, question, run_body, write_pack
from support.fake_cluster import FakeCluster

EARLIER = "11111111-0000-4000-8000-000000000000"
LATER = "22222222-0000-4000-8000-000000000000"
LABEL = {"securebench.dev/usable-by-runs": "true"}


class World:
    def __init__(self, root):
        self.root = root
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.context = context_of(self.cluster, self.clock, root)
        self.rows("a", "b", "c")

    def rows(self, *ids):
        write_pack(self.root / "packs/smoke", [question(name) for name in ids])

    async def bind(self, name="nightly", uid=EARLIER, **spec):
        body = run_body(name, **spec)
        body["metadata"] |= {"uid": uid, "namespace": "bench", "generation": 1}
        return await bound_run(self.context, run_object(body))

    async def earlier(self, *outcomes, ended="Completed", **spec):
        """Leave a run behind whose tasks ended like this."""
        bound = await self.bind(runId="n", **spec)
        journal = bound.store.open_journal()
        journal.append([RunBound(EARLIER, bound.plan.digest), Opened(1, NOW)])
        for task, outcome in enumerate(outcomes):
            key = AttemptKey(task, 1)
            sha256 = bound.store.write_record(key, [json.dumps({"task": task}).encode()])
            finish = Finish(key, outcome, passed=outcome is Outcome.SCORED)
            journal.append(
                [LaunchBegun(LaunchKey(*key, Role.HARNESS, 1), NOW), Finished(finish, sha256, NOW)]
            )
        journal.close()
        if ended:
            RunIndex(self.root).end(EARLIER, ended)
        return bound

    async def resume(self, uid=LATER, **spec):
        known = {"runId": "n", "resumeFrom": {"run": "nightly"}}
        return await self.bind("again", uid, **known | spec)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# A first start and the ones after it


async def test_a_first_start_binds(world):
    bound = await world.bind()
    assert list(bound.plan.tasks) == [0, 1, 2]
    assert bound.plan.identity.run_id == "nightly"
    assert bound.kept == ()
    assert bound.store.exists()
    assert (bound.index.run_ordinal, bound.index.resume_generation) == (1, 0)
    assert bound.pack.folder.is_relative_to(world.root / "packs/.content")
    binding = bound.store.binding()
    assert binding["plan_digest"] == bound.plan.digest
    assert binding["pack_digest"] == bound.pack.digest


async def test_a_second_start_finds_the_same(world):
    first = await world.bind()
    again = await world.bind()
    assert again.plan == first.plan
    assert again.pack == first.pack
    assert again.index == first.index
    assert len(RunIndex(world.root).entries()) == 1


async def test_the_pack_may_change_or_go_below_a_run(world):
    first = await world.bind()
    world.rows("other")
    assert (await world.bind()).plan == first.plan
    for path in (world.root / "packs/smoke").iterdir():
        path.unlink()
    assert (await world.bind()).plan == first.plan


async def test_a_pack_is_checked_by_the_first_start_only(world, monkeypatch):
    files, rows = [], []

    def file_problems(task, *_, **__):
        files.append(task.id)
        return iter(())

    def row_problems(family, *_):
        rows.append(family)
        return iter(())

    monkeypatch.setattr(load, "task_problems", file_problems)
    monkeypatch.setattr(compiling, "row_problems", row_problems)
    first = await world.bind()
    assert files == ["a", "b", "c"]
    assert rows == ["multiple_choice"] * 3
    assert (await world.bind()).plan == first.plan
    assert (len(files), len(rows)) == (3, 3)


async def test_fields_that_may_change_do_not_matter(world):
    first = await world.bind()
    again = await world.bind(parallelism=9, suspend=True, activeDeadlineSeconds=5)
    assert again.plan.digest == first.plan.digest


def audited(world, bound, result=PackAudit.PASSED):
    digest, version = bound.plan.pack_digest, bound.plan.verifier_version
    write_audit(world.root, AuditResult(digest, version, result, "2026-11-23T03:00:00Z", 3, {}))


async def test_a_run_says_what_the_newest_audit_of_its_pack_said(world):
    first = await world.bind()
    assert first.plan.pack_audit is PackAudit.NONE
    audited(world, first)
    second = await world.bind("second", LATER, runId="nightly")
    assert second.plan.pack_audit is PackAudit.PASSED
    assert second.plan.digest == first.plan.digest


async def test_what_an_audit_said_at_the_start_stays(world):
    audited(world, await world.bind())
    await world.bind("second", LATER)
    audited(world, await world.bind(), PackAudit.FAILED)
    assert (await world.bind("second", LATER)).plan.pack_audit is PackAudit.PASSED


async def test_an_audit_of_another_pack_says_nothing(world):
    audited(world, await world.bind())
    world.rows("a", "b")
    assert (await world.bind("second", LATER)).plan.pack_audit is PackAudit.NONE


async def test_a_run_that_is_read_otherwise_keeps_what_it_was_bound_to(world, monkeypatch):
    first = await world.bind()
    monkeypatch.setattr("securebench.run.plan.score_fields.VERIFIER_VERSION", "99")
    again = await world.bind()
    assert "is not the one it was started with" in again.plan.mismatch
    assert replace(again.plan, mismatch="") == first.plan


async def test_repeated_tries_are_counted(world):
    await world.bind()
    second = await world.bind(uid=LATER)
    assert second.index.run_ordinal == 2


# Refusals leave nothing behind


def untouched(world):
    return not (world.root / "runs").exists()


async def test_a_pack_with_defects_is_refused_with_all_of_them(world):
    rows = [question("a"), question("a"), question("b") | {"eval": {}}]
    write_pack(world.root / "packs/smoke", rows)
    with pytest.raises(ConfigErrors) as caught:
        await world.bind()
    assert [str(error).split(":")[:2] for error in caught.value.errors] == [
        ["tasks.jsonl", "2"],
        ["tasks.jsonl", "3"],
    ]
    assert untouched(world)


REFUSED = {
    "no pack": ({"pack": {"volume": {"path": "other"}}}, PackError),
    "harness type": (
        {
            "harness": {"type": "codex", "config": {"model": "m"}},
            "provider": {"secretRef": {"name": "k"}},
        },
        SpecError,
    ),
    "unknown field": ({"nonsense": 1}, InvalidInputError),
    "runtime class": ({"podTemplate": {"runtimeClassName": "gvisor"}}, ConfigErrors),
    "no earlier run": ({"resumeFrom": {"run": "never"}}, SpecError),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refusals(world, name):
    spec, error = REFUSED[name]
    with pytest.raises(error):
        await world.bind(**spec)
    assert untouched(world)


SECRETS = {
    "absent": (None, "does not exist in this namespace"),
    "not labelled": ({}, "lacks the label"),
    "labelled": (LABEL, None),
}


@pytest.mark.parametrize("name", SECRETS)
async def test_the_secret_of_a_harness(world, name):
    labels, words = SECRETS[name]
    if labels is not None:
        body = {"metadata": {"name": "keys", "labels": labels}}
        await world.cluster.create(ObjectKind.SECRET, body)
    harness = {
        "type": "command",
        "config": {"command": "x"},
        "env": ["TOKEN"],
        "secretRef": {"name": "keys"},
    }
    if words is None:
        assert (await world.bind(harness=harness)).plan.harness.secret == "keys"
    else:
        with pytest.raises(SpecError, match=words):
            await world.bind(harness=harness)
        assert untouched(world)


@pytest.mark.parametrize("name", SECRETS)
async def test_the_secret_of_an_image_registry(world, name):
    labels, words = SECRETS[name]
    if labels is not None:
        body = {"metadata": {"name": "registry", "labels": labels}}
        await world.cluster.create(ObjectKind.SECRET, body)
    template = {"imagePullSecrets": [{"name": "registry"}]}
    if words is None:
        plan = (await world.bind(podTemplate=template)).plan
        assert plan.pods.image_pull_secrets == ("registry",)
    else:
        with pytest.raises(SpecError, match=words):
            await world.bind(podTemplate=template)
        assert untouched(world)


async def test_pull_secrets_of_the_release_and_of_the_run_are_used_together(world):
    changed = world.context.settings.model_copy(update={"image_pull_secrets": ("ours", "registry")})
    world.context = replace(world.context, settings=changed)
    body = {"metadata": {"name": "registry", "labels": LABEL}}
    await world.cluster.create(ObjectKind.SECRET, body)
    plan = (await world.bind(podTemplate={"imagePullSecrets": [{"name": "registry"}]})).plan
    assert plan.pods.image_pull_secrets == ("ours", "registry")


KEY = {"OPENAI_API_KEY": "c2VjcmV0"}
PROVIDER_SECRETS = {
    "absent": (None, None, "does not exist in this namespace"),
    "not labelled": ({}, KEY, 'lacks the label securebench.dev/usable-by-runs: "gateway"'),
    "no data": (LABEL, None, "has no key OPENAI_API_KEY; put the model provider's key there"),
    "another key": (LABEL, {"ANTHROPIC_API_KEY": "x"}, "has no key OPENAI_API_KEY"),
    "usable": (LABEL, KEY, None),
}


@pytest.mark.parametrize("name", PROVIDER_SECRETS)
async def test_the_secret_of_a_provider(world, name):
    labels, data, words = PROVIDER_SECRETS[name]
    world.context = context_of(
        world.cluster,
        world.clock,
        world.root,
        overlays={"codex": {"images": {"1": "overlay-codex:1"}, "latest": "1"}},
    )
    if labels is not None:
        body = {"metadata": {"name": "openai", "labels": labels}, "data": data}
        await world.cluster.create(ObjectKind.SECRET, body)
    spec = {
        "harness": {"type": "codex", "config": {"model": "m"}},
        "provider": {"secretRef": {"name": "openai"}},
    }
    if words is None:
        provider = (await world.bind(**spec)).plan.egress.provider
        assert (provider.secret, provider.key) == ("openai", "OPENAI_API_KEY")
        return
    with pytest.raises(SpecError) as caught:
        await world.bind(**spec)
    assert str(caught.value).startswith("spec.provider.secretRef: Secret 'openai' ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert untouched(world)


async def test_supervise_waits_until_every_address_but_the_node_is_closed(world):
    targets = (
        ProbeTarget("api-server", "fd00::1", 443, "tcp"),
        ProbeTarget("kubelet", "192.0.2.1", 10250, "tcp"),
        ProbeTarget("dns", "10.96.0.10", 53, "udp"),
        ProbeTarget("metadata", "169.254.169.254", 80, "tcp"),
        ProbeTarget("extra-1", "10.0.0.9", 5432, "tcp"),
    )
    world.context = replace(world.context, targets=targets)
    plan = (await world.bind()).plan
    assert plan.pods.probes == ("[fd00::1]:443", "169.254.169.254:80", "10.0.0.9:5432")


async def test_supervise_leaves_the_node_out_where_it_may_be_open(world):
    targets = (
        ProbeTarget("api-server", "192.0.2.1", 6443, "tcp", is_node=True),
        ProbeTarget("extra-1", "192.0.2.1", 22, "tcp", is_node=True),
        ProbeTarget("extra-2", "10.0.0.9", 5432, "tcp"),
    )
    world.context = replace(world.context, targets=targets)
    allowed = (await world.bind(isolation={"allow": ["Node"]})).plan
    assert allowed.pods.probes == ("10.0.0.9:5432",)
    plan = (await world.bind("second", "33333333-0000-4000-8000-000000000000")).plan
    assert plan.pods.probes == ("192.0.2.1:6443", "192.0.2.1:22", "10.0.0.9:5432")


async def test_a_one_node_volume_keeps_the_pods_on_its_node(world):
    world.context = context_of(world.cluster, world.clock, world.root, access_mode="ReadWriteOnce")
    assert (await world.bind()).plan.pods.node_name == "node-1"


# resumeFrom

ENDS = (Outcome.SCORED, Outcome.INFRASTRUCTURE, Outcome.NOT_VERIFIED)


async def test_a_resumed_run_keeps_what_was_scored(world):
    await world.earlier(*ENDS)
    bound = await world.resume()
    assert [(entry.finish.key.task, entry.finish.outcome) for entry in bound.kept] == [
        (0, Outcome.SCORED),
        (2, Outcome.NOT_VERIFIED),
    ]
    assert all(isinstance(entry, Kept) and entry.run_uid == EARLIER for entry in bound.kept)
    assert bound.index.resume_generation == 1
    count, _ = bound.store.export([(entry.finish.key, entry.record_sha256) for entry in bound.kept])
    assert count == 2
    data = (bound.store.folder / "candidates.jsonl").read_text()
    assert data == '{"task": 0}\n{"task": 2}\n'


@pytest.mark.parametrize("outcome", Outcome)
async def test_which_outcomes_are_kept(world, outcome):
    await world.earlier(outcome)
    kept = (await world.resume()).kept
    assert bool(kept) is (
        outcome in {Outcome.SCORED, Outcome.AGENT, Outcome.RESOURCE, Outcome.NOT_VERIFIED}
    )


async def test_a_resumed_run_is_found_again_by_its_folder(world):
    await world.earlier(*ENDS)
    first = await world.resume()
    await world.bind("nightly", "33333333-0000-4000-8000-000000000000", runId="n")
    again = await world.resume()
    assert (again.plan, again.kept) == (first.plan, first.kept)


async def test_a_resumed_run_goes_on_without_the_folder_of_the_run_before_it(world):
    await world.earlier(*ENDS)
    first = await world.resume(taskSelector={"limit": 2})
    shutil.rmtree(world.root / "runs" / EARLIER)
    again = await world.resume(taskSelector={"limit": 2})
    assert (again.plan, again.kept) == (first.plan, first.kept)


async def test_a_run_may_resume_one_of_its_own_name(world):
    await world.earlier(*ENDS)
    spec = {"runId": "n", "resumeFrom": {"run": "nightly"}}
    first = await world.bind("nightly", LATER, **spec)
    again = await world.bind("nightly", LATER, **spec)
    assert again.kept == first.kept != ()


async def test_a_name_that_several_runs_had_is_not_resumed(world):
    await world.earlier(*ENDS)
    other = "44444444-0000-4000-8000-000000000000"
    (known,) = RunIndex(world.root).entries()
    RunIndex(world.root).add(replace(known, uid=other))
    with pytest.raises(SpecError, match="'nightly' may be any of 2 runs") as caught:
        await world.resume()
    assert EARLIER in str(caught.value)
    assert f"uid {other}; set spec.resumeFrom.uid" in str(caught.value)
    assert not (world.root / "runs" / LATER).exists()
    with pytest.raises(SpecError, match="with uid nobody on this volume"):
        await world.resume(resumeFrom={"run": "nightly", "uid": "nobody"})
    bound = await world.resume(resumeFrom={"run": "nightly", "uid": EARLIER})
    assert {entry.run_uid for entry in bound.kept} == {EARLIER}


async def test_a_bound_run_keeps_to_what_it_resumed(world):
    await world.earlier(*ENDS)
    first = await world.resume()
    (known, _) = RunIndex(world.root).entries()
    RunIndex(world.root).add(replace(known, uid="44444444-0000-4000-8000-000000000000"))
    assert (await world.resume()).kept == first.kept


async def test_a_folder_with_the_results_of_another_run_is_not_resumed(world):
    await world.earlier(*ENDS)
    path = world.root / "runs" / EARLIER / "run.json"
    path.write_text(path.read_text().replace(EARLIER, "another"))
    with pytest.raises(SpecError, match="holds results of uid another: restore"):
        await world.resume()


async def test_what_was_kept_is_kept_again(world):
    await world.earlier(*ENDS)
    second = await world.resume()
    journal = second.store.open_journal()
    journal.append([RunBound(LATER, second.plan.digest), Opened(1, NOW), *second.kept])
    journal.close()
    RunIndex(world.root).end(LATER, "Cancelled")
    third = await world.bind(
        "third",
        "33333333-0000-4000-8000-000000000000",
        runId="n",
        resumeFrom={"run": "again"},
    )
    assert [replace(entry, run_uid="") for entry in third.kept] == [
        replace(entry, run_uid="") for entry in second.kept
    ]
    assert third.index.resume_generation == 2
    assert b"".join(third.store.record_pieces(AttemptKey(0, 1))) == b'{"task": 0}'


async def test_a_limit_limits_what_is_run_but_not_what_is_kept(world):
    await world.earlier(*ENDS)
    bound = await world.resume(taskSelector={"limit": 2})
    assert list(bound.plan.tasks) == [0, 1, 2]


MISMATCHES = {
    "run_id": ({"runId": "m"}, ("a", "b", "c")),
    "pack_digest": ({}, ("a", "b", "x")),
    "harness_digest": (
        {"harness": {"type": "command", "config": {"command": "echo C"}}},
        ("a", "b", "c"),
    ),
}


@pytest.mark.parametrize("name", MISMATCHES)
async def test_a_mismatch_is_named_with_both_values(world, name):
    spec, rows = MISMATCHES[name]
    earlier = await world.earlier(*ENDS)
    world.rows(*rows)
    with pytest.raises(ConfigErrors) as caught:
        await world.resume(**spec)
    old = {
        "run_id": "n",
        "pack_digest": earlier.plan.pack_digest,
        "harness_digest": earlier.plan.harness.digest,
    }[name]
    assert f"spec.resumeFrom: {name} differs: run 'nightly' had {old}, this run has" in str(
        caught.value
    )
    assert not (world.root / "runs" / LATER).exists()


async def test_all_mismatches_come_together(world):
    await world.earlier(*ENDS)
    world.rows("x")
    with pytest.raises(ConfigErrors) as caught:
        await world.resume(runId="m")
    assert len(caught.value.errors) == 2


async def exists(world, uid):
    body = {"metadata": {"name": "nightly"}}
    await world.cluster.create(ObjectKind.BENCHMARK_RUN, body)
    if uid == "same":
        world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"metadata": {"uid": EARLIER}})


async def test_a_run_that_goes_on_is_not_resumed(world):
    await world.earlier(*ENDS, ended="")
    await exists(world, "same")
    with pytest.raises(SpecError, match="run 'nightly' has not ended; cancel it or wait"):
        await world.resume()


@pytest.mark.parametrize("there", ["nobody", "another"])
async def test_a_run_that_was_deleted_is_resumed_as_far_as_it_came(world, there):
    await world.earlier(*ENDS, ended="")
    if there == "another":
        await exists(world, "another")
    assert len((await world.resume()).kept) == 2
