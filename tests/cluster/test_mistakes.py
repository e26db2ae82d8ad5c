"""Mistakes that need a cluster to be noticed: what is printed, and the exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from cluster.shell import Command, Outcome, Shell, write_pack
from support.release import CommandError, Raw, Release, benchmark_run, condition
from support.runs import begin, rows
from support.waiting import KUBECTL_TIMEOUT, until

pytestmark = pytest.mark.cluster

RUN = ("run", "--config", "tester.yaml")
BY_TASK = [
    "python3",
    "-c",
    "import json, os; os.execvp('sh', ['sh', '-c', json.load(open('task.json'))['question']])",
]
"""The public text of a task is the program of its agent."""

ABSENT_IMAGE = "localhost:1/no-such-image:1"
SHORT = {"environment": {"timeout_seconds": 5}}


def program(text: str, **more: Any) -> Raw:
    return {"input": {"question": text, "choices": ["this", "that"]}, **more}


class Row(NamedTuple):
    """A task of the run in which agents go wrong, and the line that tells how it ended."""

    task: Raw
    line: str


ROWS = {
    "honest": Row(program("echo A"), r"PASS honest score=1\.0"),
    "loud": Row(
        program("head -c 100000000 /dev/zero | tr '\\0' x >&2; echo A"), r"PASS loud score=1\.0"
    ),
    "hang": Row(
        program("sleep 600", **SHORT), r"FAIL hang score=0\.0 outcome=agent producer_timeout: .+"
    ),
    "busy": Row(
        program("while :; do :; done", **SHORT),
        r"FAIL busy score=0\.0 outcome=agent producer_timeout: .+",
    ),
    "exits": Row(
        program("echo 'boom: no key' >&2; exit 3"),
        r"FAIL exits score=0\.0 outcome=agent harness_failed: .*exit code 3.*boom: no key.*",
    ),
    "silent": Row(
        program("true"), r"FAIL silent score=0\.0 outcome=agent empty_candidate: .*exit code 0.*"
    ),
}


class Begun(NamedTuple):
    """Commands that go on while the first tests are asked."""

    agents: Command
    absent: Command
    unstartable: Command
    deleted: Command


@pytest.fixture(scope="module")
def begun(user: Callable[..., Shell], place: Release) -> Begun:
    agents, absent, unstartable, deleted = (user() for _ in range(4))
    write_pack(
        agents.folder,
        "agents",
        "",
        tasks={name: row.task for name, row in ROWS.items()},
        harness={"env": ["NOT_EXPORTED"], "config": {"command": BY_TASK}},
    )
    write_pack(
        absent.folder, "absent", "echo A", tasks={"a": {"environment": {"image": ABSENT_IMAGE}}}
    )
    write_pack(
        unstartable.folder,
        "unstartable",
        "",
        harness={"config": {"command": ["no-such-program", "--flag"]}},
    )
    write_pack(deleted.folder, "deleted", "sleep 600")
    made = Begun(
        agents.start(*RUN, "--parallelism", "6"),
        absent.start(*RUN),
        unstartable.start(*RUN),
        deleted.start(*RUN),
    )
    place.kubectl("delete", "benchmarkrun", made.deleted.run)
    return made


def without_times(stderr: str) -> list[str]:
    return re.sub(r" \(\d+:\d\d\)", "", stderr).splitlines()


# While it runs


@pytest.mark.parametrize("name", ROWS)
def test_an_attempt_that_goes_wrong_says_why(begun: Begun, name: str) -> None:
    end = begun.agents.end()
    assert end.code == 0
    ends = [line for line in without_times(end.stderr) if re.match(rf"\S+ \S+ {name} score", line)]
    assert len(ends) == 1, end.stderr
    assert re.fullmatch(f"securebench: {ROWS[name].line}", ends[0]), ends


def test_reasons_are_counted_and_variables_without_a_value_named(begun: Begun) -> None:
    stderr = begun.agents.end().stderr
    want = "4 of 6 attempts without a pass: producer_timeout 2, empty_candidate 1, harness_failed 1"
    assert f"securebench: {want}" in stderr.splitlines()
    assert sum("NOT_EXPORTED" in line for line in stderr.splitlines()) == 1


def test_a_harness_program_that_is_missing_is_named(begun: Begun) -> None:
    end = begun.unstartable.end()
    assert end.code == 0
    told = r"FAIL a score=0\.0 outcome=agent harness_not_started: .*cannot be started.*no-such-prog"
    assert re.search(told, "\n".join(without_times(end.stderr))), end.stderr


def test_an_image_that_does_not_exist_is_named_while_it_is_waited_for(
    begun: Begun, user: Callable[..., Shell]
) -> None:
    """The command goes on, as another node or a registry that is back may have it."""
    begun.absent.wait_for(ABSENT_IMAGE)
    cancelled = user()("cancel", begun.absent.run, "--now")
    assert cancelled[:2] == (0, f"securebench: run={begun.absent.run} cancel=Immediate\n")
    assert begun.absent.end().code == 1


def test_a_run_that_is_deleted_under_the_command(begun: Begun) -> None:
    end = begun.deleted.end()
    assert (end.code, end.stdout) == (
        1,
        f"securebench: error: the BenchmarkRun {begun.deleted.run} was deleted\n",
    )


@pytest.fixture(scope="module")
def late(place: Release) -> str:
    """Return a run that ended at its deadline."""
    run = begin(place, rows(1), "sleep 600", activeDeadlineSeconds=1)
    place.kubectl("wait", "--for=condition=Complete", f"brun/{run}", KUBECTL_TIMEOUT)
    return run


def test_a_deadline_ends_a_run_and_whoever_waits_for_it(
    late: str, place: Release, user: Callable[..., Shell]
) -> None:
    seen = condition(place.get("benchmarkrun", late))
    assert (seen["status"], seen["reason"]) == ("False", "DeadlineExceeded")
    fetched = user()("results", late)
    assert fetched.code == 1
    assert "error: nothing was graded: none of 1 attempts has a verdict" in fetched.stdout


def test_changes_of_an_ended_run_are_observed(late: str, place: Release) -> None:
    place.patch(late, {"parallelism": 7, "suspend": True})
    generation = place.get("benchmarkrun", late)["metadata"]["generation"]
    assert generation > 1
    place.wait(late, lambda seen: seen["status"]["observedGeneration"] == generation, 30)


def test_results_of_a_run_that_was_deleted(begun: Begun, user: Callable[..., Shell]) -> None:
    assert begun.agents.end().code == 0
    shell = user()
    deleted = shell.kubectl("delete", "brun", begun.agents.run)
    assert deleted.code == 0
    fetched = shell("results", "agents")
    assert (fetched.code, "total=6 verification=complete" in fetched.stdout) == (0, True)


def test_a_child_that_is_killed_for_memory(place: Release, user: Callable[..., Shell]) -> None:
    command = "python3 -c 'b\"x\" * 10**9'; true"
    small = {"limits": {"memory": "64Mi"}, "requests": {"memory": "64Mi"}}
    run = begin(place, rows(1), command, resources=small)
    place.wait_ended(run)
    fetched = user()("results", run)
    assert fetched.code == 0
    assert "1 of 1 attempts without a pass: oom_killed 1" in fetched.stderr


# Flags and fields


@pytest.mark.parametrize(
    ("words", "want"),
    {
        "limit -1": (("--limit", "-1"), (1, "limit must be")),
        "parallelism 0": (("--parallelism", "0"), (2, "Invalid value for '--parallelism'")),
    }.values(),
)
def test_flags(user: Callable[..., Shell], words: tuple[str, ...], want: tuple[int, str]) -> None:
    shell = user()
    write_pack(shell.folder, "flags", "echo A")
    end = shell(*RUN, *words)
    assert end.code == want[0], end
    assert want[1] in end.stdout + end.stderr, end


ABSENT_PACK = {"volume": {"path": "absent"}}
HARNESS = {"type": "command", "config": {"command": "true"}}


@pytest.mark.parametrize(
    ("name", "changes", "want"),
    {
        "parallelism 0": ("fields", {"parallelism": 0}, "greater than or equal to 1"),
        "parallelism 100000": ("fields", {"parallelism": 100_000}, "less than or equal to"),
        "capitals": ("Nightly", {}, "a lowercase RFC 1123 subdomain"),
        "unknown field": ("fields", {"parallelismm": 2}, 'unknown field "spec.parallelismm"'),
        "deadline 0": ("fields", {"activeDeadlineSeconds": 0}, "greater than or equal to 1"),
    }.values(),
)
def test_fields_that_the_api_server_refuses(
    user: Callable[..., Shell], name: str, changes: Raw, want: str
) -> None:
    body = benchmark_run(name, {"pack": ABSENT_PACK, "harness": HARNESS, **changes})
    refused = user().kubectl("create", "-f", "-", stdin=json.dumps(body))
    assert refused.code == 1
    assert want in refused.stderr


@pytest.mark.parametrize(
    ("changes", "want"),
    {
        "a fixed field": ({"runId": "another"}, "runId"),
        "cancel taken back": ({"cancel": ""}, "cancel cannot be taken back"),
    }.values(),
)
def test_changes_that_the_api_server_refuses(
    place: Release, late: str, changes: Raw, want: str
) -> None:
    place.patch(late, {"cancel": "Graceful"})
    with pytest.raises(CommandError, match=want):
        place.patch(late, changes)


# Objects, and fields that the operator refuses


class Wrong(NamedTuple):
    """A spec that cannot be run.

    Attributes:
        spec: Replaces parts of a good one.
        reason: Of the run's end.
        message: What its message has.
    """

    spec: Raw
    reason: str
    message: str


WRONG = {
    "selector": Wrong(
        {"taskSelector": {"include": ["none-*"]}}, "InvalidSpec", "matches none of 1 tasks"
    ),
    "runtime class": Wrong(
        {"podTemplate": {"runtimeClassName": "of-somebody-else"}},
        "InvalidSpec",
        "of-somebody-else",
    ),
    "digest": Wrong(
        {"digest": "sha256:" + "0" * 64},
        "PackInvalid",
        "push the pack again, or pin the digest that it has",
    ),
    "pack folder": Wrong({"pack": ABSENT_PACK}, "PackInvalid", "absent"),
    "ConfigMap": Wrong(
        {"pack": {"configMap": {"name": "no-such-map"}}}, "PackInvalid", "no-such-map"
    ),
    "Secret": Wrong(
        {"pack": {"secret": {"name": "no-such-secret"}}}, "PackInvalid", "no-such-secret"
    ),
}


@pytest.fixture(scope="module")
def wrong(place: Release) -> Iterator[dict[str, str]]:
    """Create all of them at once and return their names."""
    names = {}
    for what, given in WRONG.items():
        spec = dict(given.spec)
        digest = spec.pop("digest", None)
        names[what] = begin(place, rows(1), "echo 4", digest=digest, **spec)
    yield names
    for name in names.values():
        with suppress(CommandError):
            place.kubectl("delete", "benchmarkrun", name, "--wait=false")


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_run_says_what_to_do(
    wrong: dict[str, str], what: str, place: Release, user: Callable[..., Shell]
) -> None:
    ended = condition(place.wait_ended(wrong[what], 300))
    assert (ended["status"], ended["reason"]) == ("False", WRONG[what].reason), ended
    assert WRONG[what].message in ended["message"]
    fetched: Outcome = user()("results", wrong[what])
    assert fetched.code == 1
    assert f"has no record; it is {WRONG[what].reason}: " in fetched.stdout
    assert WRONG[what].message in fetched.stdout


def test_a_secret_that_nobody_meant_for_runs(place: Release) -> None:
    place.kubectl("create", "secret", "generic", "unmarked", "--from-literal=manifest=x")
    run = begin(place, rows(1), "echo 4", pack={"secret": {"name": "unmarked"}})
    ended = condition(place.wait_ended(run, 300))
    assert (ended["reason"], "'unmarked'" in ended["message"]) == ("PackInvalid", True)
    until(lambda: place.pods(run) == [], "no Pod of a run that was refused", 10)
