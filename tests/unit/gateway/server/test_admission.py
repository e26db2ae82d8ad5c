"""A launch token is the only thing that says who a connection is of (A-143, A-178)."""

import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from securebench.gateway.decisions import Cause, RefusedError
from securebench.gateway.launches import Identity
from securebench.gateway.server import KEYS_SECONDS, Admission
from securebench.protocol.gateway import KEYS_FILE
from support.gateways import (
    AUDIENCE,
    EC_KEY,
    POD,
    POD_UID,
    RSA_KEY,
    claims,
    config,
    jwk,
    token,
    write_keys,
)

OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
HMAC = b"0123456789abcdef0123456789abcdef"


class Monotonic:
    def __init__(self):
        self.time = 100.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Monotonic()


@pytest.fixture
def admission(tmp_path, clock):
    write_keys(tmp_path, jwk(EC_KEY, "one"), jwk(RSA_KEY, "two"))
    return Admission(config(), tmp_path / KEYS_FILE, clock)


def refused(admission, text):
    with pytest.raises(RefusedError) as caught:
        admission.identity(text)
    return caught.value.cause is Cause.TOKEN


def bound(**changes):
    return {**claims()["kubernetes.io"], **changes}


@pytest.mark.parametrize("aud", [AUDIENCE, [AUDIENCE]])
def test_a_token_of_a_harness_pod_is_accepted(admission, aud):
    assert admission.identity(token(aud=aud)) == Identity(POD, POD_UID)


def test_both_kinds_of_keys_are_good(admission):
    assert admission.identity(token(RSA_KEY, "two", "RS256")) == Identity(POD, POD_UID)


PAST = int(time.time()) - 60
TOMORROW = PAST + 86_400
"""Also for a test that runs long after its module was loaded."""
WRONG_CLAIMS = {
    "other run": {"aud": ["securebench-gateway-other"]},
    "audience of the API server too": {"aud": [AUDIENCE, "https://kubernetes.default.svc"]},
    "no audience": {"aud": None},
    "expired": {"exp": PAST},
    "no expiry": {"exp": None},
    "not yet": {"nbf": TOMORROW},
    "other account": {"sub": "system:serviceaccount:bench:default"},
    "no subject": {"sub": None},
    "other namespace in the subject": {"sub": "system:serviceaccount:x:securebench-harness"},
    "other namespace": {"kubernetes.io": bound(namespace="x")},
    "other account of the Pod": {"kubernetes.io": bound(serviceaccount={"name": "default"})},
    "no Pod": {"kubernetes.io": bound(pod=None)},
    "a Pod without a uid": {"kubernetes.io": bound(pod={"name": POD})},
    "a Pod with a strange uid": {"kubernetes.io": bound(pod={"name": POD, "uid": "../x"})},
    "Pod of another run": {"pod": "sb-ffffffffffff-0-1-1"},
    "a name that is a path": {"pod": f"{POD}/../../x"},
    "no binding": {"kubernetes.io": "x"},
}


@pytest.mark.parametrize("changes", WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_any_other_claim_is_refused(admission, changes):
    assert refused(admission, token(**changes))


def forged(header, key=HMAC, algorithm="HS256"):
    return jwt.encode(claims(), key, algorithm=algorithm, headers=header)


FORGED = {
    "other key, known name": token(OTHER_KEY),
    "unknown key": token(OTHER_KEY, "three"),
    "algorithm of the other key": token(RSA_KEY, "one", "RS256"),
    "shared secret": forged({"kid": "one"}),
    "no signature": forged({"kid": "one"}, None, "none"),
    "no key name": jwt.encode(claims(), EC_KEY, algorithm="ES256"),
    "a stronger hash than the key's": token(RSA_KEY, "two", "RS512"),
    "no token": "x",
    "empty": "",
    "dots": "..",
    "not base64": "a.b.c",
    "half": token()[:-20],
    "changed": token()[:-4] + "AAAA",
}


@pytest.mark.parametrize("text", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(admission, text):
    assert refused(admission, text)


def test_keys_are_read_again_for_an_unknown_one_but_not_all_the_time(admission, tmp_path, clock):
    admission.identity(token())
    write_keys(tmp_path, jwk(EC_KEY, "one"), jwk(OTHER_KEY, "three"))
    assert refused(admission, token(OTHER_KEY, "three"))
    clock.time += KEYS_SECONDS
    assert admission.identity(token(OTHER_KEY, "three")).pod == POD
    assert refused(admission, token(RSA_KEY, "two", "RS256"))


@pytest.mark.parametrize("text", [None, "", "[]", '{"keys": []}', "{"])
def test_known_keys_stay_while_the_file_cannot_be_read(admission, tmp_path, clock, text):
    admission.identity(token())
    clock.time += KEYS_SECONDS
    if text is None:
        (tmp_path / KEYS_FILE).unlink()
    else:
        (tmp_path / KEYS_FILE).write_text(text)
    assert refused(admission, token(OTHER_KEY, "three"))
    assert admission.identity(token()).pod == POD


UNUSABLE = {
    "for encryption": jwk(EC_KEY, "one", use="enc"),
    "shared": {"kty": "oct", "kid": "one", "k": "AAAA", "alg": "HS256"},
    "no key": "x",
    "damaged": {**jwk(EC_KEY, "one"), "x": "AA"},
    "other algorithm": jwk(RSA_KEY, "one", alg="RS512"),
    "of no kind": {"kid": "one"},
    "without a name": {**jwk(EC_KEY, "one"), "kid": None},
}


@pytest.mark.parametrize("entry", UNUSABLE.values(), ids=UNUSABLE)
def test_unusable_keys_are_passed_over(tmp_path, clock, entry):
    write_keys(tmp_path, entry, jwk(RSA_KEY, "two"))
    admission = Admission(config(), tmp_path / KEYS_FILE, clock)
    assert refused(admission, token())
    assert admission.identity(token(RSA_KEY, "two", "RS256")).pod == POD


@pytest.mark.parametrize("text", [None, "", "[]", '{"keys": 1}', "{"])
def test_nobody_comes_in_without_a_file_of_keys(tmp_path, clock, text):
    if text is not None:
        (tmp_path / KEYS_FILE).write_text(text)
    assert refused(Admission(config(), tmp_path / KEYS_FILE, clock), token())
