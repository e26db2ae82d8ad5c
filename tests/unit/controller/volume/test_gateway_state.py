"""What counts of the files of a gateway: nothing of one that is not as a gateway writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from securebench.controller.volume.artifacts import VolumeArtifacts
from securebench.controller.volume.gateway_reports import (
    STATE_BYTES,
    GatewayState,
    read_gateway_state,
)
from securebench.controller.volume.store import RunStore
from securebench.protocol.gateway import (
    MAX_LISTED_WAITS,
    USAGE_FILE,
    WAITS_FILE,
    ProviderWait,
    ProviderWaits,
    RunUsage,
    encode,
)
from support.places import gateway_place

WAIT = ProviderWait("sb-pod", 1_767_225_600.0, 429, 1_767_225_660.0)
WAITS = ProviderWaits(1, (WAIT,))
USAGE = encode(RunUsage(70, 100))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    store = RunStore(tmp_path, "0b1e7d4c-uid")
    gateway_place(store).mkdir(parents=True)
    return store


def padded(text: bytes, size: int) -> bytes:
    return text.strip() + b" " * (size - len(text.strip()))


def waits_of(**changes: object) -> ProviderWaits:
    return ProviderWaits(1, (ProviderWait(**{"pod": "sb-pod", "since": 1.0} | changes),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(None, ProviderWaits(), id="missing"),
        pytest.param(encode(WAITS), WAITS, id="one"),
        pytest.param(encode(ProviderWaits(30, (WAIT,))), ProviderWaits(30, (WAIT,)), id="not all"),
        pytest.param(padded(encode(WAITS), STATE_BYTES), WAITS, id="just as long as may be"),
        pytest.param(padded(encode(WAITS), STATE_BYTES + 1), ProviderWaits(), id="too long"),
        pytest.param(b"", ProviderWaits(), id="empty"),
        pytest.param(b"\xff\x00", ProviderWaits(), id="no text"),
        pytest.param(b"[]", ProviderWaits(), id="no object"),
        pytest.param(b'{"launches": "1"}', ProviderWaits(), id="text for a number"),
        pytest.param(b'{"launches": 1, "longest": [1]}', ProviderWaits(), id="no wait"),
        pytest.param(b'{"launches": 1, "more": 1}', ProviderWaits(), id="unknown field"),
        pytest.param(encode(ProviderWaits(0, (WAIT,))), ProviderWaits(), id="more than counted"),
        pytest.param(encode(ProviderWaits(-1)), ProviderWaits(), id="negative"),
        pytest.param(
            encode(ProviderWaits(99, (WAIT,) * (MAX_LISTED_WAITS + 1))), ProviderWaits(), id="long"
        ),
        pytest.param(encode(waits_of(status=-1)), ProviderWaits(), id="status below"),
        pytest.param(encode(waits_of(status=600)), ProviderWaits(), id="status above"),
        pytest.param(encode(waits_of(status=599)), waits_of(status=599), id="highest status"),
        pytest.param(encode(waits_of(since=-1.0)), ProviderWaits(), id="since before 1970"),
        pytest.param(encode(waits_of(since=1e300)), ProviderWaits(), id="since after all time"),
        pytest.param(encode(waits_of(until=1e300)), ProviderWaits(), id="until after all time"),
        pytest.param(
            encode(waits_of(until=253_402_300_799.0)), waits_of(until=253_402_300_799.0), id="9999"
        ),
    ],
)
def test_waits(store: RunStore, content: bytes | None, want: ProviderWaits) -> None:
    (gateway_place(store) / USAGE_FILE).write_bytes(USAGE)
    if content is not None:
        (gateway_place(store) / WAITS_FILE).write_bytes(content)
    assert read_gateway_state(store) == GatewayState(want, 70)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(None, 0, id="missing"),
        pytest.param(USAGE, 70, id="within the budget"),
        pytest.param(encode(RunUsage(170, 100)), 170, id="above the budget"),
        pytest.param(encode(RunUsage(-5, 100)), 0, id="negative"),
        pytest.param(padded(USAGE, STATE_BYTES), 70, id="just as long as may be"),
        pytest.param(padded(USAGE, STATE_BYTES + 1), 0, id="too long"),
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"{", 0, id="cut"),
        pytest.param(b'{"tokens": "70", "limit": 100}', 0, id="text for a number"),
        pytest.param(b'{"tokens": 7.5, "limit": 100}', 0, id="no whole number"),
        pytest.param(b'{"tokens": true, "limit": 100}', 0, id="no number"),
        pytest.param(b'{"tokens": 70}', 0, id="without a limit"),
    ],
)
def test_tokens_used(store: RunStore, content: bytes | None, want: int) -> None:
    (gateway_place(store) / WAITS_FILE).write_bytes(encode(WAITS))
    if content is not None:
        (gateway_place(store) / USAGE_FILE).write_bytes(content)
    assert read_gateway_state(store) == GatewayState(WAITS, want)


def test_times_that_are_no_number_are_not_read(store: RunStore) -> None:
    content = encode(WAITS).replace(b"1767225600.0", b"NaN")
    (gateway_place(store) / WAITS_FILE).write_bytes(content)
    assert read_gateway_state(store) == GatewayState()


def test_what_is_no_file_says_nothing(store: RunStore) -> None:
    (gateway_place(store) / USAGE_FILE).mkdir()
    (gateway_place(store) / WAITS_FILE).symlink_to("elsewhere")
    assert read_gateway_state(store) == GatewayState()


def test_a_volume_that_fails_is_told(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(VolumeArtifacts, "opened", fail)
    with pytest.raises(OSError, match="Input/output error"):
        read_gateway_state(store)
