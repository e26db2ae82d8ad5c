"""The answers are what API servers 1.36 sent or what their sources write."""

import json
from pathlib import Path

import pytest

from securebench.cluster.client import (
    classify,
    decode,
    is_uid_conflict,
    split_lines,
    watch_event,
)
from securebench.cluster.port import AlreadyExists, Forbidden, QuotaExceeded, WatchExpired
from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError

ANSWERS = json.loads((Path(__file__).parents[2] / "support" / "kube_answers.json").read_text())

WANT_ERRORS: dict[str, tuple[type[ClusterError], str]] = {
    "already_exists": (AlreadyExists, "a already exists"),
    "being_deleted": (AlreadyExists, "a already exists"),
    "expired": (WatchExpired, "is too old"),
    "invalid": (PermanentClusterError, 'Pod "UPPER" is invalid'),
    "limit_range": (Forbidden, "maximum memory usage per Container is 64Mi"),
    "namespace_missing": (PermanentClusterError, 'namespaces "sbk-none" not found'),
    "namespace_terminating": (Forbidden, "it is being terminated"),
    "pod_security": (Forbidden, 'violates PodSecurity "restricted:latest"'),
    "precondition": (TransientClusterError, "the UID in the precondition"),
    "quota_exceeded": (QuotaExceeded, "exceeded quota: few, requested: pods=1"),
    "quota_must_specify": (Forbidden, "must specify limits.memory for: main"),
    "quota_unknown": (QuotaExceeded, "status unknown for quota: few"),
    "rbac": (Forbidden, 'cannot list resource "pods"'),
    "too_many": (TransientClusterError, "unable to handle the request"),
    "uid_is_immutable": (PermanentClusterError, "metadata.uid: Invalid value"),
    "unauthorized": (TransientClusterError, "Unauthorized"),
    "webhook": (TransientClusterError, "failed calling webhook"),
    "write_race": (TransientClusterError, "the object has been modified"),
}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_answers_of_real_servers(name):
    answer = ANSWERS[name]
    want_type, want_text = WANT_ERRORS[name]

    error = classify(answer["status"], json.dumps(answer["body"]).encode())

    assert type(error) is want_type
    assert want_text in error.reason


@pytest.mark.parametrize("status", [400, 404, 405, 413, 415, 422])
def test_permanent_statuses_keep_the_status(status):
    error = classify(status, b"")

    assert isinstance(error, PermanentClusterError)
    assert error.status == status


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_transient_statuses_need_no_body(status):
    assert type(classify(status, b"<html>bad gateway</html>")) is TransientClusterError


@pytest.mark.parametrize(
    ("header", "details", "want"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 7}, 7.0),
        ("3", {"retryAfterSeconds": 7}, 3.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
        ("0", {}, None),
        ("inf", {}, None),
        (None, {}, None),
        (None, None, None),
    ],
)
def test_the_servers_wish_for_a_wait(header, details, want):
    error = classify(429, {"details": details}, header)

    assert isinstance(error, TransientClusterError)
    assert error.retry_after_seconds == want


@pytest.mark.parametrize("status", [400, 403, 422])
def test_a_webhook_that_denies_may_think_better_of_it(status):
    message = 'admission webhook "pods.example.org" denied the request: no scan of this image yet'
    assert type(classify(status, {"message": message})) is Forbidden


def test_quota_words_outside_of_a_403_do_not_count():
    assert type(classify(422, {"message": "exceeded quota: x"})) is PermanentClusterError


def test_a_message_is_bounded():
    assert len(classify(422, {"message": "x" * 100_000}).reason) < 3000


def test_another_uid_is_told_from_write_races():
    other = (
        "Operation cannot be fulfilled: Precondition failed: UID in precondition: a, UID in x: b"
    )

    assert is_uid_conflict(409, ANSWERS["precondition"]["body"])
    assert is_uid_conflict(409, {"message": other})
    assert not is_uid_conflict(409, ANSWERS["write_race"]["body"])
    assert not is_uid_conflict(422, ANSWERS["precondition"]["body"])
    assert is_uid_conflict(422, ANSWERS["uid_is_immutable"]["body"])
    assert not is_uid_conflict(422, ANSWERS["invalid"]["body"])


async def chunks(*parts):
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n"], [b"ab", b"c"]),
        ([b"a\n\n\nb\n"], [b"a", b"b"]),
        ([b"a\ncut"], [b"a"]),
        ([], []),
    ],
)
async def test_lines_over_chunk_borders(parts, want):
    assert [line async for line in split_lines(chunks(*parts))] == want


async def test_an_endless_line_is_refused():
    with pytest.raises(TransientClusterError, match="too long"):
        [line async for line in split_lines(chunks(*[b"x" * 1_000_000] * 9))]


def test_a_watch_line_is_an_event():
    event = watch_event(b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}')

    assert event == ("ADDED", {"metadata": {"name": "a"}})


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (ANSWERS["expired"]["body"], WatchExpired),
        ({"code": 500, "message": "etcd"}, TransientClusterError),
        ({"code": 403, "message": "no"}, PermanentClusterError),
        ({}, TransientClusterError),
    ],
)
def test_an_error_line_raises_what_it_carries(status, want):
    with pytest.raises(want):
        watch_event(json.dumps({"type": "ERROR", "object": status}).encode())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff\xfe{}", b'{"a":'])
def test_what_is_no_object_is_a_passing_trouble(body):
    with pytest.raises(TransientClusterError):
        decode(body)
