"""The file of waits: what is in it, its bounds, and what is read of others' files."""

from __future__ import annotations

import json

import pytest

from securebench.protocol.volume import (
    MAX_WAIT_CHARACTERS,
    MAX_WAIT_MESSAGES,
    MAX_WAITS_BYTES,
    OTHER_WAIT,
    SharedWait,
    decode_waits,
    encode_waits,
    shared_waits,
)
from securebench.run.api.models import MAX_PARALLELISM

WAITS = (
    SharedWait("pulling x:1", ("a", "b")),
    SharedWait("waiting for the model provider", ("c",), has_begun=True),
)


def test_what_is_written_is_read() -> None:
    assert decode_waits(json.dumps(encode_waits(WAITS)).encode()) == WAITS


def test_waits_of_the_most_pods_come_first() -> None:
    found = shared_waits({("z", False): ["3"], ("y", False): ["2", "1"], ("x", True): ["4"]})
    assert found == (
        SharedWait("y", ("1", "2")),
        SharedWait("x", ("4",), has_begun=True),
        SharedWait("z", ("3",)),
    )


def test_a_long_message_is_cut() -> None:
    longest = "x" * MAX_WAIT_CHARACTERS
    found = shared_waits({(longest, False): ["a"], (longest + "y", False): ["b"]})
    assert [each.message for each in found] == [longest, longest[:-1] + "…"]


def test_the_longest_file_is_read() -> None:
    emoji = chr(0x1F600) * MAX_WAIT_CHARACTERS
    different = {
        (f"{number:04}{emoji}", False): [f"sb-3f2a9c1e5b7d-{number}-1h1"]
        for number in range(MAX_PARALLELISM)
    }
    found = shared_waits(different)
    assert len(found) == MAX_WAIT_MESSAGES + 1
    assert found[-1].message == OTHER_WAIT
    assert len(found[-1].pods) == MAX_PARALLELISM - MAX_WAIT_MESSAGES
    assert len(json.dumps(encode_waits(found), indent=2)) < MAX_WAITS_BYTES


def test_agents_beyond_the_bound_are_said_to_work() -> None:
    found = shared_waits({(str(number), True): ["p"] for number in range(MAX_WAIT_MESSAGES + 1)})
    assert len(found) == MAX_WAIT_MESSAGES
    assert all(each.has_begun for each in found)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"{}", ()),
        (b'{"waits": 1, "more": 1}', ()),
        (b'{"waits": [{"message": "m", "pods": ["p"], "more": 1}]}', (SharedWait("m", ("p",)),)),
        (b'{"waits": [1, {"message": 1, "pods": "p"}]}', (SharedWait("", ()), SharedWait("", ()))),
    ],
)
def test_what_is_read_of_a_file_of_another_version(
    text: bytes, want: tuple[SharedWait, ...]
) -> None:
    assert decode_waits(text) == want
