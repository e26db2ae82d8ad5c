"""What is said of launches that the model provider makes wait."""

import pytest

from securebench.protocol.gateway import ProviderWait, ProviderWaits
from securebench.run.api.status import Reason
from securebench.run.observe.waiting import (
    LaunchWait,
    WaitReason,
    deduplication_key,
    longest_wait,
    observed_provider,
    provider_waiting,
)
from securebench.run.plan.model import LaunchKey, Role, harness_launch, pod_name
from securebench.run.state.history import AttemptIndex
from support.build import HARNESS, NOW, live

UID = "0f1e2d3c-aaaa-bbbb-cccc-000000000000"
OTHER = "1f1e2d3c-aaaa-bbbb-cccc-000000000000"
AT = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:01:00Z"


def launch(task, number=1):
    return LaunchKey(task, 1, Role.HARNESS, number)


def seen(*launches, count=None, **changes):
    waits = [
        ProviderWait(pod_name(UID, each), NOW, **{"status": 429, **changes}) for each in launches
    ]
    told = ProviderWaits(len(waits) if count is None else count, tuple(waits))
    return observed_provider(told, UID, "api.openai.com")


NAMES = {
    "harness": (pod_name(UID, launch(12, 3)), launch(12, 3)),
    "verifier": (pod_name(UID, LaunchKey(0, 1, Role.VERIFIER, 1)), None),
    "another run": (pod_name(OTHER, launch(0)), None),
    "gateway": ("sb-0f1e2d3caaaa-gateway-1", None),
    "too long a number": (f"sb-0f1e2d3caaaa-{'9' * 10}-1h1", None),
    "a path": (f"../{pod_name(UID, launch(0))}", None),
}


@pytest.mark.parametrize("case", NAMES)
def test_only_names_of_harness_pods_of_the_run_are_known(case):
    name, want = NAMES[case]
    assert harness_launch(UID, name) == want


def test_pods_that_are_not_of_the_run_are_left_out():
    waits = ProviderWaits(
        2, (ProviderWait("other", NOW), ProviderWait(pod_name(UID, HARNESS), NOW))
    )
    found = observed_provider(waits, UID, "h").longest
    assert found == (LaunchWait(HARNESS, waits.longest[1]),)


LONGEST = {
    "the first": ([launch(0), launch(1)], launch(0)),
    "one that has ended is passed over": ([launch(0, 9), launch(1)], launch(1)),
    "one that is no attempt is passed over": ([launch(7), launch(1)], launch(1)),
    "nobody": ([launch(0, 9)], None),
}


@pytest.mark.parametrize("case", LONGEST)
def test_the_launch_that_waits_for_longest_is_under_way(case):
    launches, want = LONGEST[case]
    attempts = AttemptIndex([live(launch(0)), live(launch(1))])
    found = longest_wait(seen(*launches), attempts)
    assert (found.launch if found else None) == want


WORDS = {
    "a status": ({}, f"which answers 429: since {AT}", None),
    "no answer": ({"status": 0}, f"which does not answer as it should: since {AT}", None),
    "a time": (
        {"until": NOW + 60},
        f"which answers 429: since {AT}, not before {LATER}",
        NOW + 60,
    ),
    "a time that is past": ({"until": NOW}, f"which answers 429: since {AT}", None),
    "another launch": ({"count": 2}, f"which answers 429: since {AT}; 1 more launch waits", None),
    "others": ({"count": 9}, f"which answers 429: since {AT}; 8 more launches wait", None),
}


@pytest.mark.parametrize("case", WORDS)
def test_words(case):
    changes, want_words, want_at = WORDS[case]
    provider = seen(launch(4), **changes)
    found = provider_waiting(provider, provider.longest[0], NOW)
    start = "task #4: waiting for the model provider api.openai.com, "
    assert found == WaitReason(Reason.RUNNING, start + want_words, want_at)
    want_key = f"waiting for the model provider api.openai.com, {want_words.partition(':')[0]}"
    assert deduplication_key(found.message) == want_key
