"""A key management service of one key, behind the interface of those of securesystemslib."""

from __future__ import annotations

from contextlib import contextmanager
from unittest import mock

from securesystemslib.signer import SIGNER_FOR_URI_SCHEME, Signer

from securebench.attestation.envelope import pem_signer
from support.sealed_runs import OPERATOR

URI = "test-kms:bench"


@contextmanager
def service(failures=0, key=OPERATOR):
    """Offer the scheme ``test-kms``, which fails so many times; yield what it was asked to sign."""
    asked = []

    class Service(Signer):
        def __init__(self, public_key):
            self._public_key = public_key

        @property
        def public_key(self):
            return self._public_key

        @classmethod
        def from_priv_key_uri(cls, _uri, public_key, _secrets_handler=None):
            return cls(public_key)

        def sign(self, payload):
            asked.append(payload)
            if len(asked) <= failures:
                raise ConnectionError("connection refused")
            return pem_signer(key.private).sign(payload)

    with mock.patch.dict(SIGNER_FOR_URI_SCHEME, {"test-kms": Service}):
        yield asked
