"""The chart's admission policies on who requests a run, on a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from securebench.names import REQUESTER_ANNOTATION, RERUN_ANNOTATION
from support.requesters import Requests, named, naming, requester, requests

pytestmark = pytest.mark.cluster

RUN, SUITE = "BenchmarkRun", "BenchmarkSuite"
RERUN = {"metadata": {"annotations": {RERUN_ANNOTATION: "now"}}}
FEWER: dict[str, Any] = {"spec": {"maxConcurrentRuns": 1}}


@pytest.fixture(scope="module")
def stamped() -> Iterator[Requests]:
    with requests() as opened:
        yield opened


@pytest.fixture(scope="module")
def unstamped() -> Iterator[Requests]:
    """Return a namespace of a cluster that has no mutating policies."""
    with requests(is_stamped=False) as opened:
        yield opened


@pytest.mark.parametrize("kind", [RUN, SUITE])
def test_an_edit_that_requests_nothing_keeps_the_requester(stamped: Requests, kind: str) -> None:
    item = named(kind, f"kept-{kind.lower()}")
    assert stamped.create("ada", item) == "ada"
    assert stamped.edit("ben", item, {"metadata": {"labels": {"team": "b"}}}) == "ada"
    assert stamped.edit("ben", item, naming(None)) == "ada"
    assert stamped.edit("ben", item, {"metadata": {"annotations": None}}) == "ada"


def test_a_run_that_is_suspended_by_another_user_keeps_its_requester(stamped: Requests) -> None:
    run = named(RUN, "suspended")
    stamped.create("ada", run)
    assert stamped.edit("ben", run, {"spec": {"suspend": True}}) == "ada"


@pytest.mark.parametrize(("name", "change"), {"spec": FEWER, "rerun": RERUN}.items())
def test_whoever_changes_what_a_suite_runs_requests_it(
    stamped: Requests, name: str, change: dict[str, Any]
) -> None:
    suite = named(SUITE, f"changed-{name}")
    stamped.create("ada", suite)
    assert stamped.edit("ben", suite, change) == "ben"


def test_an_object_is_applied_and_replaced_from_a_file_without_the_name(stamped: Requests) -> None:
    suite = named(SUITE, "applied")
    del suite["metadata"]["annotations"]
    for words in (("apply",), ("apply", "--server-side", "--force-conflicts"), ("replace",)) * 2:
        stamped.kubectl("ada", *words, "-f", "-", body=suite)
        found = json.loads(stamped.kubectl("ben", "get", "bsuite", "applied", "-o", "json"))
        assert requester(found) == "ada", words


def test_the_operator_names_the_requester_of_a_suite(stamped: Requests) -> None:
    operator = stamped.operator
    assert stamped.create(operator, named(RUN, "of-ada", "ada")) == "ada"
    assert stamped.create(operator, named(RUN, "of-somebody")) == ""
    cancel = {"spec": {"cancel": "Immediate"}}
    assert stamped.edit(operator, named(RUN, "of-ada"), cancel) == "ada"
    assert stamped.edit(operator, named(RUN, "of-somebody"), cancel) == ""
    assert REQUESTER_ANNOTATION in stamped.edit(operator, named(RUN, "of-ada"), naming("ben"))


@pytest.mark.parametrize("kind", [RUN, SUITE])
def test_without_mutating_policies_a_name_is_true_or_absent(unstamped: Requests, kind: str) -> None:
    low = kind.lower()
    assert unstamped.create("ada", named(kind, f"own-{low}", "ada")) == "ada"
    assert unstamped.create("ada", named(kind, f"none-{low}")) == ""
    assert unstamped.edit("ada", named(kind, f"none-{low}"), naming("ben")) != "ben"


def test_without_mutating_policies_a_changed_suite_names_whoever_changed_it(
    unstamped: Requests,
) -> None:
    suite = named(SUITE, "edited", "ada")
    unstamped.create("ada", suite)
    assert "ben, not ada" in unstamped.edit("ben", suite, FEWER)
    assert unstamped.edit("ben", suite, {**naming("ben"), **FEWER}) == "ben"
