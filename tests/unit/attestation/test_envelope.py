import json

import pytest

from securebench.attestation.envelope import key_id, open_envelope, pem_key, pem_signer, sealed
from securebench.errors import ConfigError
from support.sealed_runs import OPERATOR, key_pair

OTHER = key_pair(2)
PAYLOAD = b'{"a":1}'
SIGNED = sealed(PAYLOAD, pem_signer(OPERATOR.private))


def test_a_signature_holds_for_its_key_alone():
    own, other = OPERATOR.key, OTHER.key
    assert open_envelope(SIGNED, (other, own)) == ({"a": 1}, (own.keyid,), (own.keyid,))
    assert open_envelope(SIGNED, (other,)) == ({"a": 1}, (own.keyid,), ())
    assert key_id(pem_signer(OPERATOR.private)) == own.keyid != other.keyid
    assert key_id(None) == ""


def test_without_a_signer_nobody_vouches_for_it():
    assert open_envelope(sealed(PAYLOAD, None), (OPERATOR.key,)) == ({"a": 1}, (), ())


def test_a_payload_that_was_exchanged_is_not_signed():
    raw = json.loads(SIGNED) | {"payload": json.loads(sealed(b'{"a":2}', None))["payload"]}
    forged = json.dumps(raw, sort_keys=True).encode() + b"\n"
    assert open_envelope(forged, (OPERATOR.key,)).signed_by == ()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (SIGNED.replace(b"in-toto", b"other"), "holds no in-toto statement"),
        (SIGNED.replace(b'"sig"', b'"gis"'), "is no DSSE envelope"),
        (SIGNED.replace(b": ", b":"), "was written by somebody else or changed"),
        (SIGNED.replace(b'=="}', b'="}'), "Incorrect padding"),
        (SIGNED.replace(b'0DA=="}', b'0DB=="}'), "was written by somebody else or changed"),
        (SIGNED[:-1], "was written by somebody else or changed"),
        (b"[]", "not an object"),
        (b"", "Expecting value"),
        (sealed(b"[]", None), "not an object"),
    ],
)
def test_what_is_no_statement_of_ours(data, want):
    with pytest.raises(ValueError, match=want):
        open_envelope(data, (OPERATOR.key,))


@pytest.mark.parametrize("pem", [b"", b"key", OPERATOR.public])
def test_no_private_key(pem):
    with pytest.raises(ConfigError, match="no unencrypted private key"):
        pem_signer(pem)


@pytest.mark.parametrize("pem", [b"", b"key", OPERATOR.private])
def test_no_public_key(pem):
    with pytest.raises(ConfigError, match="no public key"):
        pem_key(pem)
