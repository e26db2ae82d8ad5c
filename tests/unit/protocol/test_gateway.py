"""Operator and gateway read exactly what the other wrote."""

import json

import pytest

from securebench.protocol.gateway import (
    GatewayConfig,
    LaunchReport,
    ProviderWait,
    ProviderWaits,
    RelayReport,
    decode,
    encode,
)
from support.gateways import PROVIDER, config

RECORDS = (
    config(),
    config(provider=PROVIDER, authorities="/a", idle_seconds=300.0),
    LaunchReport("p", "u"),
    LaunchReport("p", "u", "192.0.2.1", closed=True, relay=RelayReport(stripped_tools=("a", "b"))),
    LaunchReport("p", "u", relay=RelayReport(is_key_taken=True, models=("a", "b"))),
    ProviderWaits(),
    ProviderWaits(9, (ProviderWait("p", 1.5, 429, 2.5), ProviderWait("q", 2.0))),
)


@pytest.mark.parametrize("record", RECORDS)
def test_what_is_written_comes_back(record):
    assert decode(type(record), encode(record)) == record


def test_missing_fields_have_their_defaults():
    assert decode(LaunchReport, '{"pod": "p", "pod_uid": "u"}') == LaunchReport("p", "u")


def changed(**fields):
    return json.dumps({**json.loads(encode(config(provider=PROVIDER))), **fields})


WRONG = {
    "no JSON": "{",
    "a list": "[]",
    "twice": '{"namespace": "a", "namespace": "b"}',
    "missing": '{"namespace": "a"}',
    "other type": changed(run=1),
    "text for a list": changed(domains="docs.dev"),
    "a number as text": changed(limits={"connections": "64"}),
    "unknown field": changed(more=1),
    "unknown field inside": changed(limits={"more": 1}),
    "unknown field of the provider": changed(
        provider={"name": "a", "host": "b", "key_file": "c", "api_key": "d"}
    ),
    "not a number": changed(limits={"idle_seconds": float("nan")}),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        decode(GatewayConfig, text)


def test_a_value_is_not_repeated_in_the_message():
    with pytest.raises(ValueError, match="namespace") as caught:
        decode(GatewayConfig, changed(namespace=["s3cret"]))
    assert "s3cret" not in str(caught.value)
