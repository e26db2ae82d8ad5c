from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import suite_loop, suite_results
from securebench.controller.volume.folders import run_folder
from securebench.names import REQUESTER_ANNOTATION
from securebench.suite.decide import LOOKS_SECONDS
from support.build import question, write_pack
from support.suite_world import HARNESSES, PACKS, SuiteWorld

ONE = {"matrix": {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}}
PASSED, FAILED = [True] * 12, [False] * 8 + [True] * 4


def ran(world: SuiteWorld, passed: list[Any] = PASSED, **spec: object) -> tuple[str, str, str]:
    """Run a suite of one cell to its end; return what the gates say."""
    world.apply_suite(**{**ONE, **spec})
    world.end_all(passed=passed)
    return world.said("GatesPassed")


def again(world: SuiteWorld, value: str, passed: list[Any], **end: Any) -> tuple[str, str, str]:
    """Run the suite once more; return what the gates say."""
    world.annotate(value)
    world.end_all(passed=passed, **end)
    return world.said("GatesPassed")


@pytest.mark.parametrize(
    ("gates", "passed", "want"),
    [
        ({"minPassRate": "0.3"}, FAILED, ("True", "GatesPassed")),
        ({"minPassRate": "0.9"}, FAILED, ("False", "GatesFailed")),
        ({"minPassRate": "0.55"}, [True] * 11 + [False] * 9, ("True", "GatesPassed")),
        ({"minPassRate": "0.9"}, [None], ("Unknown", "GatesUndecided")),
        ({"maxLostShare": "0.5"}, [True, None], ("True", "GatesPassed")),
        ({"maxLostShare": "0.4"}, [True, None], ("False", "GatesFailed")),
    ],
)
def test_a_gate_on_one_result(
    world: SuiteWorld, gates: dict[str, str], passed: list[Any], want: tuple[str, str]
) -> None:
    assert ran(world, passed, gates=gates)[:2] == want
    is_good = want[0] == "True"
    assert world.said()[0] == str(is_good)
    assert world.said("Stalled")[0] == str(not is_good)
    assert world.said("Reconciling")[0] == "False"


def test_a_gate_that_failed_is_named_with_its_cell(world: SuiteWorld) -> None:
    _, _, message = ran(world, FAILED, gates={"minPassRate": "0.9"})
    assert message == "minPassRate: smoke/a passed 4 of 12 (0.333), needed are 0.9"
    assert world.said() == ("False", "GatesFailed", message)
    events: list[Any] = list(world.cluster.objects(ObjectKind.EVENT).values())
    assert [event["reason"] for event in events] == ["Running", "GatesFailed"]
    assert events[1]["regarding"]["kind"] == "BenchmarkSuite"
    assert events[1]["type"] == "Warning"


def test_gates_wait_for_every_cell(world: SuiteWorld) -> None:
    world.apply_suite(**ONE, gates={"minPassRate": "0.5"})
    assert world.said("GatesPassed")[:2] == ("Unknown", "Running")


PRICES = [{"model": "m", "input": 1_000_000, "output": 2_000_000}]
USAGE = {"requests": 1, "input_tokens": 10, "output_tokens": 5}


def spent(model: str) -> dict[str, object]:
    return {"producer_metadata": {"usage": USAGE, "provider_models": [model]}}


@pytest.mark.parametrize(
    ("greatest", "model", "want"),
    [
        (40, "m", "True"),
        (39, "m", "False"),
        (40, "unknown", "Unknown"),
    ],
)
def test_a_gate_on_the_cost(world: SuiteWorld, greatest: int, model: str, want: str) -> None:
    world.apply_suite(**ONE, gates={"maxCostMicroDollars": greatest, "prices": PRICES})
    world.end_all(passed=[True, True], **spent(model))
    assert world.said("GatesPassed")[0] == want


LAST_GOOD = {"gates": {"notWorse": {}, "maxLostShare": "0.5"}, "baseline": {"suite": "nightly"}}


def test_the_last_good_result_is_the_baseline_and_a_regression_never_becomes_it(
    world: SuiteWorld,
) -> None:
    assert ran(world, gates={"minPassRate": "0.5"})[0] == "True"
    world.apply_suite(**ONE, **LAST_GOOD)
    status, reason, message = again(world, "worse", FAILED)
    assert (status, reason) == ("False", "GatesFailed")
    assert message == (
        "notWorse: smoke/a is worse by 66.7 points (p = 0.00781, 12 tasks; lost: t0, t1, t2, t3,"
        " t4 and 3 more) | the same was run before: smoke/a 2 times"
    )
    assert again(world, "still worse", FAILED)[0] == "False"
    status, _, message = again(world, "well", PASSED)
    assert status == "True"
    assert "points would be found 4 times in 5" in message


def test_the_first_result_of_a_suite_becomes_its_baseline(world: SuiteWorld) -> None:
    assert ran(world, **LAST_GOOD)[0] == "True"
    world.settle(120)
    message = world.said("GatesPassed")[2]
    assert "notWorse; first result, nothing to compare with: smoke/a" in message
    assert again(world, "worse", FAILED)[:2] == ("False", "GatesFailed")


def test_a_changed_pack_is_accepted_by_a_sync_without_the_comparison(world: SuiteWorld) -> None:
    assert ran(world, **LAST_GOOD)[0] == "True"
    write_pack(world.root / "packs/smoke", [question("z")])
    world.apply_suite(**ONE, **LAST_GOOD)
    world.end_all(passed=PASSED)
    assert world.said("GatesPassed")[:2] == ("Unknown", "GatesUndecided")
    world.apply_suite(**ONE, gates={"maxLostShare": "0.5"})
    assert world.said("GatesPassed")[0] == "True"
    world.apply_suite(**ONE, **LAST_GOOD)
    assert world.said("GatesPassed")[0] == "True"
    assert again(world, "worse", FAILED)[:2] == ("False", "GatesFailed")


def test_another_suite_without_a_good_result_decides_nothing(world: SuiteWorld) -> None:
    gates = {"gates": {"notWorse": {}}}
    world.apply_suite("other", **ONE, suspend=True)
    world.apply_suite("nightly", **ONE, **gates, baseline={"suite": "other"})
    world.end_all(passed=PASSED)
    assert world.said("GatesPassed") == (
        "Unknown",
        "GatesUndecided",
        (
            "notWorse: smoke/a: its baseline, BenchmarkSuite other, has no good result of this cell"
            f" yet | baselines: other is uid {world.suite_uid('other')}"
        ),
    )


def first_run(world: SuiteWorld, **record: object) -> str:
    world.apply_suite(**ONE, gates={"minPassRate": "0.5"})
    world.end_all(passed=PASSED, **record)
    (name,) = world.run_names()
    return name


def test_a_run_is_a_baseline_also_without_its_object(world: SuiteWorld) -> None:
    name = first_run(world)
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"run": name})
    assert again(world, "worse", FAILED)[:2] == ("False", "GatesFailed")


def compared(world: SuiteWorld, passed: list[Any], **baseline: Any) -> tuple[str, str, str]:
    """Run a suite against a baseline; return what its gates say."""
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline=baseline)
    world.end_all(passed=passed)
    return world.said("GatesPassed")


@pytest.fixture
def golden(world: SuiteWorld) -> str:
    """Return the uid of a good run with the name ``golden``."""
    world.apply_suite("first", **ONE)
    world.end_all(passed=PASSED)
    return world.put_run("golden", PASSED)


def test_a_name_that_another_run_takes_decides_nothing(world: SuiteWorld, golden: str) -> None:
    assert compared(world, FAILED, run="golden")[1] == "GatesFailed"
    other = world.put_run("golden", [False] * 12)
    world.settle(LOOKS_SECONDS + 31)
    assert world.said("GatesPassed") == (
        "Unknown",
        "GatesUndecided",
        (
            f"notWorse: smoke/a: its baseline, BenchmarkRun golden, had uid {golden} when this"
            f" suite first used it, and another object has taken that name since, uid {other}: set"
            " uid of the baseline to the one that is meant | runs of this agent and model on this"
            " pack, with any other settings: smoke/a is number 3"
            f" | baselines: golden is uid {golden}"
        ),
    )
    world.restart_suites()
    assert golden in again(world, "later", FAILED)[2]
    assert compared(world, FAILED, run="golden", uid=golden)[1] == "GatesFailed"


def test_a_new_suite_does_not_choose_among_runs_of_one_name(world: SuiteWorld, golden: str) -> None:
    other = world.put_run("golden", [False] * 12)
    status, reason, message = compared(world, FAILED, run="golden")
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert f"may be any of the 2 runs that had that name (uids {golden}, {other})" in message
    assert compared(world, FAILED, run="golden", uid=golden)[1] == "GatesFailed"
    assert "with uid none" in compared(world, FAILED, run="golden", uid="none")[2]


def test_a_baseline_that_goes_on_is_bound_before_it_ends(world: SuiteWorld, golden: str) -> None:
    assert golden
    going = world.put_run("going", PASSED, is_sealed=False)
    assert "was not run to its end" in compared(world, FAILED, run="going")[2]
    other = world.put_run("going", [False] * 12)
    world.settle(LOOKS_SECONDS + 31)
    _, reason, message = world.said("GatesPassed")
    assert reason == "GatesUndecided"
    assert going in message
    assert other in message


def test_a_baseline_that_ends_later_decides(world: SuiteWorld, golden: str) -> None:
    assert golden
    uid = world.put_run("going", PASSED, is_sealed=False)
    assert compared(world, FAILED, run="going")[1] == "GatesUndecided"
    world.seal(uid, PASSED)
    world.settle(LOOKS_SECONDS + 31)
    assert world.said("GatesPassed")[1] == "GatesFailed"


def test_records_that_are_sealed_anew_are_not_the_baseline(world: SuiteWorld, golden: str) -> None:
    assert compared(world, FAILED, run="golden")[1] == "GatesFailed"
    world.seal(golden, FAILED)
    assert "somebody changed it" in again(world, "anew", FAILED)[2]


def test_another_name_and_another_suite_bind_anew(world: SuiteWorld, golden: str) -> None:
    assert compared(world, FAILED, run="golden")[1] == "GatesFailed"
    world.put_run("second", FAILED)
    assert compared(world, FAILED, run="second")[1] == "GatesPassed"
    assert golden
    world.apply_suite("later", **ONE, gates={"notWorse": {}}, baseline={"run": "second"})
    world.end_all(passed=FAILED)
    assert world.said("GatesPassed", "later")[1] == "GatesPassed"


def test_another_suite_that_takes_the_name_decides_nothing(world: SuiteWorld) -> None:
    world.apply_suite("other", **ONE, gates={"minPassRate": "0.5"})
    world.end_all(passed=PASSED)
    assert compared(world, FAILED, suite="other")[1] == "GatesFailed"
    before = world.suite_uid("other")
    world.cluster.remove(ObjectKind.BENCHMARK_SUITE, "other")
    world.apply_suite("other", **ONE)
    world.settle(LOOKS_SECONDS + 31)
    status, reason, message = world.said("GatesPassed")
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert f"BenchmarkSuite other, had uid {before}" in message
    assert world.suite_uid("other") in message
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"suite": "other", "uid": before})
    assert f"not {before}" in world.said("GatesPassed")[2]


def test_a_run_of_the_suite_whose_name_is_taken_decides_nothing(world: SuiteWorld) -> None:
    """Throw a cell's result away, and run it again under its name until it is better."""
    assert ran(world, FAILED, gates={"minPassRate": "0.9"})[1] == "GatesFailed"
    (name,) = world.run_names()
    raw: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
    world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
    world.tell_suite()
    assert world.said("GatesPassed")[1] == "GatesFailed"
    body = {"metadata": {**raw["metadata"], "uid": "another"}, "spec": raw["spec"]}
    world.runner.run(world.cluster.create(ObjectKind.BENCHMARK_RUN, body))
    world.end(name, passed=PASSED)
    status, reason, message = world.said("GatesPassed")
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert f"was begun with uid {raw['metadata']['uid']}" in message


def test_a_baseline_that_is_gone_decides_nothing(world: SuiteWorld) -> None:
    spec = {"gates": {"notWorse": {}}, "baseline": {"run": "lost"}}
    status, reason, message = ran(world, **spec)
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert message == "notWorse: smoke/a: its baseline, BenchmarkRun lost, was not run to its end"


def test_a_baseline_of_another_pack_digest_decides_nothing(world: SuiteWorld) -> None:
    name = first_run(world)
    uid = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]["metadata"]["uid"]
    write_pack(world.root / "packs/smoke", [question("z")])
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"run": name})
    world.end_all(passed=PASSED)
    assert world.said("GatesPassed") == (
        "Unknown",
        "GatesUndecided",
        (
            f"notWorse: smoke/a: it cannot be compared with its baseline {name}: their packs have"
            f" different digests | baselines: {name} is uid {uid}"
        ),
    )


def test_a_baseline_that_lacks_a_digest_decides_nothing(world: SuiteWorld) -> None:
    """It may be of any pack; two that lack it are not the same."""
    name = first_run(world, verifier_version="")
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"run": name})
    status, reason, message = world.said("GatesPassed")
    assert (status, reason) == ("Unknown", "GatesUndecided")
    assert "records without verifier_version do not say what graded them" in message


def test_a_baseline_that_was_edited_on_the_volume_decides_nothing(world: SuiteWorld) -> None:
    name = first_run(world)
    uid = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]["metadata"]["uid"]
    path = world.root / run_folder(uid) / "candidates.jsonl"
    path.write_bytes(path.read_bytes().replace(b"true", b"false"))
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"run": name})
    status, _, message = again(world, "worse", FAILED)
    assert status == "Unknown"
    assert "somebody changed it" in message


def test_a_result_that_was_edited_passes_no_gate(world: SuiteWorld) -> None:
    world.apply_suite(**ONE, suspend=False)
    world.end_all(passed=FAILED)
    (raw,) = world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()
    path = world.root / run_folder(raw["metadata"]["uid"]) / "candidates.jsonl"
    path.write_bytes(path.read_bytes().replace(b"false", b"true"))
    world.apply_suite(**ONE, gates={"minPassRate": "0.9"})
    assert world.said("GatesPassed")[:2] == ("Unknown", "GatesUndecided")


@pytest.mark.parametrize(
    ("content", "path", "want"),
    [
        (None, "good.jsonl", "False"),
        (b"other\n", "good.jsonl", "Unknown"),
        (None, "lost.jsonl", "Unknown"),
        (None, "link.jsonl", "Unknown"),
    ],
)
def test_a_file_is_a_baseline_by_its_digest(
    world: SuiteWorld, content: bytes | None, path: str, want: str
) -> None:
    name = first_run(world)
    uid = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]["metadata"]["uid"]
    records = (world.root / run_folder(uid) / "candidates.jsonl").read_bytes()
    folder = world.root / "baselines"
    folder.mkdir()
    (folder / "good.jsonl").write_bytes(content or records)
    (folder / "link.jsonl").symlink_to(folder / "good.jsonl")
    file = {"path": path, "sha256": "sha256:" + hashlib.sha256(records).hexdigest()}
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"file": file})
    assert again(world, "worse", FAILED)[0] == want


def records_of(world: SuiteWorld, name: str) -> Path:
    uid = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]["metadata"]["uid"]
    return world.root / run_folder(uid) / "candidates.jsonl"


def test_a_baseline_file_that_is_put_there_later_is_read(world: SuiteWorld) -> None:
    records = records_of(world, first_run(world)).read_bytes()
    folder = world.root / "baselines"
    folder.mkdir()
    file = {"path": "good.jsonl", "sha256": "sha256:" + hashlib.sha256(records).hexdigest()}
    world.apply_suite(**ONE, gates={"notWorse": {}}, baseline={"file": file})
    status, _, message = again(world, "worse", FAILED)
    assert status == "Unknown"
    assert "its baseline cannot be read" in message
    (folder / "good.jsonl").write_bytes(records)
    world.settle(LOOKS_SECONDS + 31)
    assert world.said("GatesPassed")[:2] == ("False", "GatesFailed")


def test_records_that_are_put_back_are_read(world: SuiteWorld) -> None:
    path = records_of(world, first_run(world))
    records = path.read_bytes()
    path.unlink()
    world.apply_suite(**ONE, gates={"minPassRate": "0.9"})
    assert world.said("GatesPassed")[:2] == ("Unknown", "GatesUndecided")
    path.write_bytes(records)
    world.settle(LOOKS_SECONDS + 31)
    assert world.said("GatesPassed")[:2] == ("True", "GatesPassed")


def test_what_cannot_be_read_is_tried_once_a_minute(world: SuiteWorld) -> None:
    """And not at every event of a run."""
    name = first_run(world)
    records_of(world, name).unlink()
    world.apply_suite(**ONE, gates={"minPassRate": "0.9"})
    raw = world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]

    async def tell() -> None:
        world.suites.observe_run("DELETED", raw)

    with (
        mock.patch.object(suite_results, "judge", wraps=suite_results.judge) as judged,
        mock.patch.object(suite_loop, "decide", wraps=suite_loop.decide) as decided,
    ):
        for _ in range(5):
            world.runner.run(tell())
            world.settle(1)
        assert decided.call_count >= 5
        assert judged.call_count == 0
        world.settle(LOOKS_SECONDS + 31)
        assert judged.call_count == 1


def test_what_no_file_can_change_is_not_read_again(world: SuiteWorld) -> None:
    """Too few tasks stay too few."""
    ran(world, [True] * 3, gates={"minPassRate": "0.5"})
    world.apply_suite(**ONE, **LAST_GOOD)
    assert again(world, "worse", [False] * 3)[0] == "Unknown"
    with mock.patch.object(suite_results, "judge", wraps=suite_results.judge) as seen:
        world.settle(10 * LOOKS_SECONDS)
    assert seen.call_count == 0


def test_too_few_tasks_decide_nothing(world: SuiteWorld) -> None:
    ran(world, [True] * 3, gates={"minPassRate": "0.5"})
    world.apply_suite(**ONE, **LAST_GOOD)
    assert again(world, "worse", [False] * 3)[2] == (
        "notWorse: too few tasks to show any loss: smoke/a"
        " | the same was run before: smoke/a 2 times"
    )


def test_several_cells_are_corrected_for_their_number(world: SuiteWorld) -> None:
    matrix = {"packs": PACKS, "harnesses": HARNESSES}
    world.apply_suite(matrix=matrix, maxConcurrentRuns=4, gates={"minPassRate": "0.1"})
    world.end_all(passed=PASSED)
    world.apply_suite(matrix=matrix, maxConcurrentRuns=4, **LAST_GOOD)
    world.annotate("worse")
    (worse, *others) = sorted(world.going().values())
    world.end(worse, passed=[False] * 6 + [True] * 6)
    for name in others:
        world.end(name, passed=PASSED)
    # Six of twelve lost: p = 0.031 alone, 0.125 among four.
    assert world.said("GatesPassed")[0] == "True"


def test_an_incomplete_run_counts_where_a_gate_judges_the_loss(world: SuiteWorld) -> None:
    gates = {"maxLostShare": "0.5"}
    world.apply_suite(**ONE, gates=gates)
    world.end_all(passed=[True, None], reason="Incomplete")
    assert world.said("GatesPassed")[0] == "True"
    world.apply_suite(**ONE)
    assert world.said()[:2] == ("False", "CellsFailed")


def test_tries_with_a_comment_in_the_command_are_counted(world: SuiteWorld) -> None:
    """And those of other suites and runs: the message, the status and the index have the number."""
    for number in range(1, 4):
        harness = {"type": "command", "config": {"command": f"echo A # {number}"}}
        matrix = {"packs": PACKS[:1], "harnesses": [{"name": f"try-{number}", "harness": harness}]}
        world.apply_suite(f"suite-{number}", matrix=matrix, gates={"minPassRate": "0.5"})
        world.end_all(passed=PASSED)
    assert world.said("GatesPassed", "suite-1")[2] == "minPassRate: all 1 cells keep to 0.5"
    assert world.said("GatesPassed", "suite-3")[2] == (
        "minPassRate: all 1 cells keep to 0.5 | runs of this agent and model on this pack, with any"
        " other settings: smoke/try-3 is number 3"
    )
    assert world.suite_status("suite-3")["results"][0]["agentTries"] == 3


def test_tries_of_other_users_stand_apart_and_change_no_gate(world: SuiteWorld) -> None:
    matrix = {"packs": PACKS[:1], "harnesses": HARNESSES[:1]}
    for number, user in enumerate(("ada", "ben", "ben", "ada")):
        world.user = user
        world.apply_suite(f"suite-{number}", matrix=matrix, gates={"minPassRate": "0.5"})
        world.end_all(passed=PASSED)
    status, reason, message = world.said("GatesPassed", "suite-3")
    assert (status, reason) == ("True", "GatesPassed")
    assert message == (
        "minPassRate: all 1 cells keep to 0.5 | runs of this agent and model on this pack, with any"
        " other settings: smoke/a is number 2 | more by others, which count for nothing here:"
        " smoke/a 2"
    )
    (result,) = world.suite_status("suite-3")["results"]
    assert (result["agentTries"], result["triesByOthers"]) == (2, 2)


def test_the_runs_of_a_suite_are_requested_by_whoever_changed_it_last(world: SuiteWorld) -> None:
    world.user = "ada"
    world.apply_suite(**ONE)
    world.end_all(passed=PASSED)
    world.user = "ben"
    world.apply_suite(**ONE, attempts=2)
    runs: Any = world.cluster.objects(ObjectKind.BENCHMARK_RUN).values()
    named = [run["metadata"]["annotations"][REQUESTER_ANNOTATION] for run in runs]
    assert sorted(named) == ["ada", "ben"]
