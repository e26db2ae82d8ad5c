"""The key that signs statements, read anew each time: a Secret may change while runs are active."""

from __future__ import annotations

from typing import NamedTuple

from securebench.attestation.envelope import Signer, key_id, pem_signer
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
    """Return the key of the Secret that the settings name; never an error. Blocks."""
    wanted = settings.signing
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
