import json

import pytest

from securebench.errors import PackError
from securebench.oci.artifact import (
    CONFIG,
    HIDDEN_LAYER,
    PUBLIC_LAYER,
    Descriptor,
    PackArtifact,
    decode_artifact,
    encode_artifact,
)

PUBLIC = Descriptor(PUBLIC_LAYER, "sha256:" + "a" * 64, 10)
HIDDEN = Descriptor(HIDDEN_LAYER, "sha256:" + "b" * 64, 20)
ARTIFACT = PackArtifact(PUBLIC, HIDDEN, "smoke", "sha256:" + "c" * 64)
BODY = json.loads(encode_artifact(ARTIFACT))


def test_a_manifest_is_read_as_it_was_written():
    assert decode_artifact(encode_artifact(ARTIFACT), "x/y:1") == ARTIFACT


def test_the_empty_configuration_is_that_of_the_image_spec():
    assert CONFIG.digest == (
        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )
    assert BODY["config"] == CONFIG.to_json()


def layer(**changes):
    return {**PUBLIC.to_json(), **changes}


OTHERS = {
    "not JSON": (b"{", "its manifest is not JSON"),
    "deep": (b"[" * 60_000, "its manifest is not JSON"),
    "a list": (b"[]", "is no pack of artifact type"),
    "a container image": ({**BODY, "artifactType": ""}, "is no pack of artifact type"),
    "a later version": (
        {**BODY, "artifactType": "application/vnd.securebench.pack.v2"},
        "is no pack of artifact type application/vnd.securebench.pack.v1",
    ),
    "one layer": ({**BODY, "layers": BODY["layers"][:1]}, "does not have the two layers"),
    "three layers": ({**BODY, "layers": BODY["layers"] * 2}, "does not have the two layers"),
    "in another order": ({**BODY, "layers": BODY["layers"][::-1]}, "does not have the two layers"),
    "one layer twice": (
        {**BODY, "layers": [layer(), layer(mediaType=HIDDEN_LAYER)]},
        "image x/y:1 names one layer twice",
    ),
    "no layers": ({**BODY, "layers": None}, "does not have the two layers"),
    "another type": ({**BODY, "layers": [layer(mediaType="x"), {}]}, "without a SHA-256 digest"),
    "a path": ({**BODY, "layers": [layer(digest="sha256:../../x")]}, "without a SHA-256 digest"),
    "upper case": ({**BODY, "layers": [layer(digest="sha256:" + "A" * 64)]}, "without a SHA-256"),
    "a truth": ({**BODY, "layers": [layer(size=True)]}, "a SHA-256 digest and a size"),
    "below zero": ({**BODY, "layers": [layer(size=-1)]}, "a SHA-256 digest and a size"),
    "a fraction": ({**BODY, "layers": [layer(size=1.5)]}, "a SHA-256 digest and a size"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_pack(name):
    content, message = OTHERS[name]
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(PackError, match="image x/y:1") as raised:
        decode_artifact(content, "x/y:1")
    assert message in str(raised.value)
