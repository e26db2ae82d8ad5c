"""The key that signs statements, looked up anew each time: it may change while runs are active."""

from __future__ import annotations

from typing import NamedTuple

from securebench.attestation.envelope import Signer, key_id, pem_signer, service_signer
from securebench.controller.settings.parts import Signing
from securebench.controller.settings.settings import Settings
from securebench.core.errors import ConfigError


class SigningKey(NamedTuple):
    """The operator's key at one time.

    Attributes:
        signer: Signs with it; None without one.
        problem: Why there is none although the settings name one, in one sentence, or empty.
    """

    signer: Signer | None = None
    problem: str = ""

    @property
    def id(self) -> str:
        """Identifies the key; empty without one."""
        return key_id(self.signer)


def signing_key(settings: Settings) -> SigningKey:
    """Return the key that the settings name, of a Secret or a service; never an error. Blocks."""
    wanted = settings.signing
    if wanted.uri:
        return _key_of_service(wanted)
    if not wanted.secret:
        return SigningKey()
    place = f"key {wanted.key} of Secret {wanted.secret}"
    try:
        return SigningKey(pem_signer((settings.signing_root / wanted.key).read_bytes()))
    except FileNotFoundError:
        problem = f"{place} is not there; create it, and see that settings.signing names it"
    except OSError as error:
        problem = f"{place} cannot be read: {error.strerror}"
    except ConfigError as error:
        problem = f"{place} {error.reason}; replace it"
    return SigningKey(problem=problem)


def _key_of_service(wanted: Signing) -> SigningKey:
    try:
        return SigningKey(service_signer(wanted.uri, wanted.public_key.encode()))
    except ConfigError as error:
        problem = f"the key {wanted.uri} of settings.signing {error.reason}"
    return SigningKey(problem=problem)
