import re

import pytest

from securebench.errors import InvalidInputError
from securebench.names import PINNED_PATTERN, ImageReference, image_reference

DIGEST = "sha256:" + "a" * 64
REFERENCES = {
    "packs.example.org/smoke:1": ImageReference("packs.example.org", "smoke", "1"),
    f"packs.example.org:5000/team/a_b/c--d:V1.0_x@{DIGEST}": ImageReference(
        "packs.example.org:5000", "team/a_b/c--d", "V1.0_x", DIGEST
    ),
    f"127.0.0.1:5000/smoke@{DIGEST}": ImageReference("127.0.0.1:5000", "smoke", "", DIGEST),
    "localhost/smoke": ImageReference("localhost", "smoke"),
}
NO_REFERENCES = [
    "",
    "smoke",
    "https://packs.example.org/smoke:1",
    "packs.example.org/Smoke:1",
    "PACKS.example.org/smoke:1",
    "packs.example.org//smoke",
    "packs.example.org/../smoke",
    "packs.example.org/smoke:",
    "packs.example.org/smoke:-1",
    "packs.example.org/smoke@sha256:abc",
    "packs.example.org/smoke@sha512:" + "a" * 128,
    "user@packs.example.org/smoke:1",
    "user:password@packs.example.org/smoke:1",
    "packs.example.org/smoke:1\n",
    "packs.example.org/smoke?x=1",
    "[::1]/smoke:1",
]


@pytest.mark.parametrize("text", REFERENCES)
def test_a_reference_is_read_and_written(text):
    assert image_reference(text) == REFERENCES[text]
    assert str(REFERENCES[text]) == text


@pytest.mark.parametrize("text", NO_REFERENCES)
def test_what_is_no_reference(text):
    with pytest.raises(InvalidInputError, match="names no image; write registry/repository:tag"):
        image_reference(text)


def test_only_a_digest_pins():
    pinned = [text for text in REFERENCES if re.fullmatch(PINNED_PATTERN, text)]
    assert pinned == [text for text, reference in REFERENCES.items() if reference.digest]
