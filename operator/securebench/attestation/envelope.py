"""Signed envelopes (DSSE) around statements, and the keys that sign and check them.

Signers and keys are those of securesystemslib: besides keys in PEM it has signers that leave the
key in a key management service, behind the same two methods.

Source: contract 15.9; decision 0070.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnsupportedLibraryError, VerificationError
from securesystemslib.signer import CryptoSigner, Key, Signer, SSlibKey

from securebench.errors import ConfigError, SecureBenchError
from securebench.protocol.messages import decode_object

__all__ = [
    "Key",
    "OpenedEnvelope",
    "Signer",
    "SigningFailedError",
    "key_id",
    "open_envelope",
    "pem_key",
    "pem_signer",
    "sealed",
    "service_signer",
]

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"

MAX_SAID: Final = 300
"""Characters of what a service's client says; some print whole answers."""

_BAD_PEM = (ValueError, TypeError, UnsupportedAlgorithm)


class SigningFailedError(SecureBenchError):
    """A signer did not sign; one that asks a service has errors of its own."""


class OpenedEnvelope(NamedTuple):
    """An envelope that was read.

    Attributes:
        statement: What it holds; nobody vouches for it where ``signed_by`` is empty.
        key_ids: Key IDs of all its signatures, whether or not they hold.
        signed_by: Ids of the given keys whose signatures hold.
    """

    statement: dict[str, object]
    key_ids: tuple[str, ...]
    signed_by: tuple[str, ...]


def sealed(payload: bytes, signer: Signer | None) -> bytes:
    """Return the file with a statement, signed unless there is no signer.

    Args:
        payload: The statement as JSON.
        signer: Signs it.

    Raises:
        SigningFailedError: The signer did not, or not with the key that its public part says.
    """
    envelope = Envelope(payload, PAYLOAD_TYPE, {})
    if signer is not None:
        try:
            envelope.sign(signer)
        except Exception as error:  # each client of a service has errors of its own
            raise SigningFailedError(_said(error)) from error
        if not _is_signed(envelope, signer.public_key):
            raise SigningFailedError("the service signs with another key than the public one")
    return _encode(envelope)


def open_envelope(data: bytes, keys: tuple[Key, ...]) -> OpenedEnvelope:
    """Read the file with a statement.

    Args:
        keys: Keys whose signatures count.

    Raises:
        ValueError: It is none, or not in the form in which it is written: every byte counts.
    """
    envelope = _decode(data)
    holding = tuple(key.keyid for key in keys if _is_signed(envelope, key))
    statement = decode_object(envelope.payload)
    return OpenedEnvelope(statement, tuple(envelope.signatures), holding)


def pem_signer(pem: bytes) -> Signer:
    """Return the signer of an unencrypted private key.

    Raises:
        ConfigError: It is none.
    """
    try:
        return CryptoSigner(load_pem_private_key(pem, None))
    except _BAD_PEM:
        raise ConfigError("holds no unencrypted private key in PEM (PKCS 8)") from None


def service_signer(uri: str, public_pem: bytes) -> Signer:
    """Return the signer of a key that stays in a key management service, which is not asked yet.

    Args:
        uri: Names the key as securesystemslib does, e.g. ``hv:securebench/1``.
        public_pem: Its public part.

    Raises:
        ConfigError: There is no such service, its client is not installed, or the key is none.
    """
    key = pem_key(public_pem)
    try:
        return Signer.from_priv_key_uri(uri, key)
    except UnsupportedLibraryError as error:
        raise ConfigError(f"needs a client that is not installed: {error}") from None
    except KeyError as error:  # the signer for AWS looks the scheme up in a table
        raise ConfigError(f"is of a kind that its service does not sign with: {error}") from None
    except Exception as error:  # each client of a service has errors of its own
        raise ConfigError(f"cannot be used: {_said(error)}") from error


def pem_key(pem: bytes) -> Key:
    """Return a public key.

    Raises:
        ConfigError: It is none.
    """
    try:
        return SSlibKey.from_crypto(load_pem_public_key(pem))
    except _BAD_PEM:
        raise ConfigError("holds no public key in PEM") from None


def key_id(signer: Signer | None) -> str:
    """Return the id of a signer's key; empty without a signer."""
    return "" if signer is None else signer.public_key.keyid


def _is_signed(envelope: Envelope, key: Key) -> bool:
    try:
        envelope.verify([key], 1)
    except VerificationError:
        return False
    return True


def _said(error: Exception) -> str:
    """Return an error of a service's client as one line."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}…"


def _encode(envelope: Envelope) -> bytes:
    return json.dumps(envelope.to_dict(), sort_keys=True).encode() + b"\n"


def _decode(data: bytes) -> Envelope:
    raw = decode_object(data)
    if raw.get("payloadType") != PAYLOAD_TYPE:
        raise ValueError("holds no in-toto statement")
    try:
        envelope = Envelope.from_dict(raw)
        again = _encode(envelope)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("is no DSSE envelope") from None
    if again != data:
        raise ValueError("was written by somebody else or changed")
    return envelope
