"""What an agent prints of the values that a tester exposed to it (A-182)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from urllib.parse import quote

import pytest

from securebench.controller.capture import SecretMatcher
from securebench.text import FILLER, MINIMUM_BYTES

VALUE = b'sk-canary/7f3d+"0123456789'
OTHER = b"another-secret"
FORMS: Mapping[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "reversed": lambda value: value[::-1],
    "hexadecimal": lambda value: value.hex().encode(),
    "hexadecimal in capitals": lambda value: value.hex().upper().encode(),
    "in a URL": lambda value: quote(value, safe="").encode(),
    "in JSON": lambda value: json.dumps(value.decode()).encode(),
    "base64": base64.b64encode,
    "base64 after one byte": lambda value: base64.b64encode(b"x" + value),
    "base64 after two bytes": lambda value: base64.b64encode(b"xy" + value + b"more"),
    "base64 for URLs": base64.urlsafe_b64encode,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_removed_in_its_common_forms(form: str) -> None:
    printed = b"before " + FORMS[form](VALUE) + b" behind\n"

    kept = SecretMatcher([VALUE, OTHER]).without(printed)

    assert len(kept) == len(printed)
    assert kept.startswith(b"before ")
    assert kept.endswith(b" behind\n")
    assert kept.count(FILLER) >= len(VALUE) - 2
    assert SecretMatcher([VALUE]).without(kept) == kept


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_nothing_is_left_of_a_value_that_was_encoded_alone(
    encode: Callable[[bytes], bytes],
) -> None:
    for value in (VALUE, VALUE[:-1], VALUE[:-2]):
        assert SecretMatcher([value]).without(encode(value)).strip(FILLER) == b""


def test_every_occurrence_of_every_value_is_removed() -> None:
    data = b"\n".join([VALUE, OTHER, VALUE + VALUE, b"word"])

    kept = SecretMatcher([OTHER, VALUE]).without(data)

    assert kept.replace(FILLER, b"") == b"\n\n\nword"


def test_a_value_within_another_leaves_nothing_of_the_longer_one() -> None:
    kept = SecretMatcher([b"password", b"password-and-more"]).without(b"password-and-more password")

    assert kept.replace(FILLER, b"") == b" "


def test_blank_space_around_a_value_does_not_count() -> None:
    assert SecretMatcher([OTHER + b"\n"]).without(OTHER) == FILLER * len(OTHER)


def test_short_values_are_left_alone() -> None:
    short = b"x" * (MINIMUM_BYTES - 1)
    exposed = SecretMatcher([short, b"", b"  \n"])

    assert not exposed
    assert exposed.without(b"a " + short) == b"a " + short


def test_honest_text_stays() -> None:
    exposed = SecretMatcher([VALUE])

    assert exposed
    assert exposed.without(b"sk-canary is how it begins\n") == b"sk-canary is how it begins\n"


def test_bytes_that_are_no_text_are_found() -> None:
    value = bytes(range(128, 160))

    assert SecretMatcher([value]).without(b"<" + value + b">") == b"<" + FILLER * 32 + b">"


def test_values_stay_out_of_representations() -> None:
    assert "canary" not in repr(SecretMatcher([VALUE]))
