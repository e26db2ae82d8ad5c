import pytest

from bench import model_calls
from bench.model_calls import Added, Span


def call(conversation, ended, seconds, task=""):
    return {"conversation": conversation, "time": ended, "seconds": seconds, "task": task}


def line(task, seconds, route="provider"):
    return {"task_id": task, "seconds": seconds, "route": route}


def test_the_first_call_belongs_to_the_task_that_a_later_one_names():
    lines = [
        call("a", 10.0, 4.0),
        call("b", 11.0, 1.0),
        call("b", 19.0, 2.0, "two"),
        call("a", 20.0, 5.0, "one"),
    ]
    assert model_calls.spans_by_task(lines) == {
        "one": [Span(6.0, 10.0), Span(15.0, 20.0)],
        "two": [Span(10.0, 11.0), Span(17.0, 19.0)],
    }


def test_the_gateway_adds_what_the_provider_did_not_take():
    spans = {"one": [Span(0.0, 4.0), Span(10.0, 15.0)], "two": [Span(0.0, 1.0)]}
    lines = [line("one", 4.25), line("two", 1.5), line("one", 9.0, "proxy"), line("one", 5.125)]
    found, unequal = model_calls.added(spans, model_calls.seconds_by_task(lines))
    assert found == [
        Added(Span(0.0, 4.0), 0.25),
        Added(Span(10.0, 15.0), 0.125),
        Added(Span(0.0, 1.0), 0.5),
    ]
    assert unequal == []


def test_calls_that_do_not_agree_are_named_and_not_counted():
    spans = {"one": [Span(0.0, 4.0)], "two": [Span(0.0, 1.0)]}
    found, unequal = model_calls.added(spans, {"one": [4.0, 4.0], "three": [1.0]})
    assert found == []
    assert unequal == [
        "one: 1 calls at the provider, 2 at the gateway",
        "three: 0 calls at the provider, 1 at the gateway",
        "two: 1 calls at the provider, 0 at the gateway",
    ]


PEAKS = {
    "none": ([], 0),
    "one after the other": ([(0, 1), (1, 2)], 1),
    "within": ([(0, 9), (2, 3), (4, 5)], 2),
    "all": ([(0, 5), (1, 6), (2, 7)], 3),
}


@pytest.mark.parametrize("case", PEAKS)
def test_the_peak_is_the_most_at_once(case):
    spans, want = PEAKS[case]
    assert model_calls.peak(Span(*each) for each in spans) == want


COMMONS = {
    "none": ([], None),
    "overlap": ([(0, 5), (3, 9)], Span(3, 5)),
    "touch": ([(0, 3), (3, 9)], None),
    "apart": ([(0, 1), (3, 9)], None),
}


@pytest.mark.parametrize("case", COMMONS)
def test_all_go_on_at_once_from_the_last_to_begin_to_the_first_to_end(case):
    spans, want = COMMONS[case]
    assert model_calls.common(Span(*each) for each in spans) == want


def test_a_task_goes_on_from_its_first_call_to_its_last():
    assert model_calls.whole({"one": [Span(1, 2), Span(5, 9)]}) == [Span(1, 9)]


def test_only_calls_that_are_wholly_in_a_span_count():
    calls = [Added(Span(*each), 0.0) for each in ((0, 2), (2, 3), (4, 6))]
    assert model_calls.within(calls, Span(1, 5)) == calls[1:2]
    assert model_calls.within(calls, None) == []


def test_percentiles_are_in_milliseconds():
    calls = [Added(Span(0, 1), each / 1000) for each in range(101)]
    assert model_calls.percentiles_ms(calls) == {
        "calls": 101,
        "p50": 50.0,
        "p95": 95.0,
        "p99": 99.0,
        "max": 100.0,
    }
    assert model_calls.percentiles_ms(calls[:1]) == {"calls": 1}
