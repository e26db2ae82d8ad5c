"""Runs that examine a pack: the label, the reference answers, and what keeps them apart."""

import asyncio
import json
import stat

import pytest

from securebench.benchmark.pack.oracle import ReferenceAnswer
from securebench.controller.attempt_keeper import LaneKeeper
from securebench.controller.context import run_object
from securebench.controller.lifecycle import is_pack_error
from securebench.controller.packs import KeyedSource
from securebench.controller.run_ledger import RunLedger
from securebench.controller.sealing import ResultsExport
from securebench.controller.volume.registers import RunIndex
from securebench.errors import ConfigErrors, PackError, SpecError
from securebench.files import tree_digest
from securebench.run.api.models import Pack
from securebench.run.artifacts import Lanes
from support.bound_runs import bound_run
from support.build import FakeClock, context_of, question, run_body, write_pack
from support.fake_cluster import FakeCluster
from support.places import lanes_place
from support.stored_packs import stored_source

UID = "11111111-0000-4000-8000-000000000000"
LATER = "22222222-0000-4000-8000-000000000000"
AUDIT = {"securebench.dev/purpose": "audit"}
ORACLE = {"type": "oracle"}
NOP = {"type": "nop"}


class World:
    def __init__(self, root):
        self.root = root
        clock = FakeClock()
        self.context = context_of(FakeCluster(clock=clock), clock, root)
        self.pack = root / "packs/smoke"
        write_pack(self.pack, [question(name) for name in ("a", "b", "c")])
        self.answers("a", "b", "c")

    def answers(self, *ids):
        (self.pack / "oracle").mkdir(exist_ok=True)
        lines = (json.dumps({"id": name, "candidate": f"answer of {name}"}) for name in ids)
        (self.pack / "oracle/answers.jsonl").write_text("\n".join(lines))

    async def bind(self, harness, labels=AUDIT, uid=UID, name="nightly", **spec):
        body = run_body(name, harness=harness, **spec)
        body["metadata"] |= {"uid": uid, "namespace": "bench", "labels": labels}
        return await bound_run(self.context, run_object(body))

    async def lanes(self, bound, task=0):
        manifest, harness = bound.pack.manifest, bound.plan.harness
        keeper = LaneKeeper(bound.store, manifest.parent, harness.task_file, bound.plan.answers)
        return await keeper.lanes(bound.plan.tasks[task])


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


# The label


@pytest.mark.parametrize("labels", [{}, None, {"securebench.dev/purpose": "Audit"}])
@pytest.mark.parametrize("harness", [ORACLE, NOP])
async def test_without_the_label_nothing_happens(world, harness, labels):
    with pytest.raises(SpecError, match=r"needs the label securebench\.dev/purpose: audit"):
        await world.bind(harness, labels)
    assert not (world.root / "runs").exists()
    assert not (world.root / "packs/.content").exists()


@pytest.mark.parametrize(
    ("labels", "want"), [(AUDIT, True), ({"securebench.dev/purpose": "x"}, False), ({}, False)]
)
async def test_the_label_makes_any_run_an_audit(world, labels, want):
    bound = await world.bind({"type": "command", "config": {"command": "x"}}, labels)
    assert bound.plan.audit is want
    assert bound.plan.answers == {}


@pytest.mark.parametrize("harness", [ORACLE, NOP, {"type": "command", "config": {"command": "x"}}])
async def test_a_label_that_changes_later_changes_nothing(world, harness):
    first = await world.bind(harness)
    assert (await world.bind(harness, {})).plan == first.plan


async def test_a_label_that_comes_later_changes_nothing(world):
    harness = {"type": "command", "config": {"command": "x"}}
    first = await world.bind(harness, {})
    assert (await world.bind(harness, AUDIT)).plan == first.plan


# Reference answers


async def test_an_oracle_is_bound_to_its_answers(world):
    first = await world.bind(ORACLE)
    assert first.plan.answers["b"] == ReferenceAnswer("candidate", "answer of b")
    world.answers("x")
    again = await world.bind(ORACLE)
    assert again.plan == first.plan


async def test_only_an_oracle_reads_them(world):
    world.answers("x")
    assert (await world.bind(NOP)).plan.answers == {}


async def test_answers_of_other_rows_do_not_matter(world):
    world.answers("a", "b")
    bound = await world.bind(ORACLE, taskSelector={"limit": 1})
    assert list(bound.plan.tasks) == [0]
    world.answers("b")
    excluded = await world.bind(ORACLE, uid=LATER, taskSelector={"exclude": ["a", "c"]})
    assert list(excluded.plan.tasks) == [1]


async def test_wrong_answers_are_the_packs_fault(world):
    world.answers("a", "a", "z")
    with pytest.raises(ConfigErrors) as caught:
        await world.bind(ORACLE)
    assert is_pack_error(caught.value)
    assert [str(error) for error in caught.value.errors] == [
        "oracle/answers.jsonl:2: a second answer for task 'a'; the first is on line 1",
        "oracle/answers.jsonl:3: the pack has no task 'z'",
        "oracle/answers.jsonl: there is no answer for task 'b'",
        "oracle/answers.jsonl: there is no answer for task 'c'",
    ]
    assert not (world.root / "runs").exists()


async def test_a_pack_without_answers_is_refused(world):
    (world.pack / "oracle/answers.jsonl").unlink()
    with pytest.raises(ConfigErrors, match=r"oracle/answers\.jsonl: the pack has no such file"):
        await world.bind(ORACLE)


def test_where_answers_lie(tmp_path):
    assert KeyedSource({"oracle/answers.jsonl": b"x", "answers.jsonl": b"y"}).answers() == b"x"
    assert KeyedSource({}).answers() is None
    pushed = stored_source(tmp_path, Pack.parse({"volume": {"path": "v/w"}}))
    assert pushed.answers() is None
    file = tmp_path / "packs/v/w/oracle/answers.jsonl"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"z")
    assert pushed.answers() == b"z"


def test_a_link_out_of_the_pack_is_refused(world):
    file = world.pack / "oracle/answers.jsonl"
    file.unlink()
    (world.root / "elsewhere").write_bytes(b"secret")
    file.symlink_to(world.root / "elsewhere")
    pack = Pack.parse({"volume": {"path": "smoke"}})
    with pytest.raises(PackError, match="not reached by a symlink"):
        stored_source(world.root, pack).answers()


# On the volume


async def test_an_answer_lies_beside_the_lanes_of_its_task(world):
    bound = await world.bind(ORACLE)
    lanes = await world.lanes(bound, 1)
    folder = lanes_place(bound.store, 1) / "oracle"
    assert [path.name for path in folder.iterdir()] == ["candidate"]
    assert (folder / "candidate").read_bytes() == b"answer of b"
    assert stat.S_IMODE((folder / "candidate").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert lanes.oracle_digest == tree_digest(folder)
    assert await world.lanes(bound, 1) == lanes


async def test_the_lanes_are_those_of_every_other_run(world):
    oracle = await world.bind(ORACLE)
    nop = await world.bind(NOP, uid=LATER)
    with_answer, without = await world.lanes(oracle), await world.lanes(nop)
    assert without.oracle_digest == ""
    assert not (lanes_place(nop.store, 0) / "oracle").exists()
    assert (with_answer.public_digest, with_answer.hidden_digest) == (
        without.public_digest,
        without.hidden_digest,
    )
    assert oracle.plan.pack_digest == nop.plan.pack_digest
    assert oracle.plan.tasks[0].row_digest == nop.plan.tasks[0].row_digest


async def test_what_is_left_of_an_interrupted_write_is_replaced(world):
    bound = await world.bind(ORACLE)
    folder = lanes_place(bound.store, 0) / "oracle"
    folder.mkdir(parents=True)
    (folder / "command").write_text("half")
    lanes = await world.lanes(bound)
    assert [path.name for path in folder.iterdir()] == ["candidate"]
    assert lanes.oracle_digest == tree_digest(folder)


async def test_answers_go_with_the_lanes(world):
    bound = await world.bind(ORACLE)
    await world.lanes(bound)
    await asyncio.to_thread(bound.store.artifacts.remove, Lanes(bound.store.uid, 0))
    assert not (lanes_place(bound.store, 0) / "oracle").exists()


# Resume

COMMAND = {"type": "command", "config": {"command": "x"}}
MIXED = {
    "oracle after command": (COMMAND, {}, ORACLE, AUDIT),
    "oracle after nop": (NOP, AUDIT, ORACLE, AUDIT),
    "normal after audit": (COMMAND, AUDIT, COMMAND, {}),
    "audit after normal": (COMMAND, {}, COMMAND, AUDIT),
}


@pytest.mark.parametrize("name", MIXED)
async def test_results_of_audits_and_other_runs_never_mix(world, name):
    earlier, labels, harness, later_labels = MIXED[name]
    bound = await world.bind(earlier, labels, runId="n")
    bound.store.open_journal().close()
    RunIndex(world.root).end(UID, "Completed")
    again = {"uid": LATER, "name": "again", "runId": "n", "resumeFrom": {"run": "nightly"}}
    with pytest.raises(ConfigErrors, match=r"spec\.resumeFrom: harness_digest differs"):
        await world.bind(harness, later_labels, **again)
    assert (await world.bind(earlier, labels, **again)).index.resume_generation == 1


@pytest.mark.parametrize(("harness", "labels"), [(ORACLE, AUDIT), (COMMAND, AUDIT), (COMMAND, {})])
async def test_results_of_audits_are_not_published(world, harness, labels):
    bound = await world.bind(harness, labels)
    book = await RunLedger.open(bound.plan, bound.store, FakeClock())
    results = ResultsExport(world.context, book)
    await results.seal("Completed", "")
    await book.close()
    assert (world.root / "published" / UID).exists() is (labels == {})
    assert bool(results.exported.published_sha256) is (labels == {})


async def test_other_answers_are_another_harness(world):
    first = await world.bind(ORACLE)
    (world.pack / "oracle/answers.jsonl").write_bytes(
        (world.pack / "oracle/answers.jsonl").read_bytes().replace(b"of a", b"of A")
    )
    second = await world.bind(ORACLE, uid=LATER)
    assert second.plan.pack_digest == first.plan.pack_digest
    assert second.plan.harness.digest != first.plan.harness.digest
