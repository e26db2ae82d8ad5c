"""The test's certificate authority, made once, and the certificates of its servers."""

from __future__ import annotations

import datetime as dt
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outside.places import AUTHORITY, FOLDER
from support.certificates import Authority, new_authority, private_pem

LIFE = dt.timedelta(days=3650)
CA_KEY = FOLDER / "ca.key"


def ensure_authority() -> Authority:
    """Return the authority; it is made when its certificate or key is missing."""
    if AUTHORITY.exists() and CA_KEY.exists():
        key = serialization.load_pem_private_key(CA_KEY.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Authority(x509.load_pem_x509_certificate(AUTHORITY.read_bytes()), key)
    made = new_authority(life=LIFE)
    FOLDER.mkdir(parents=True, exist_ok=True)
    CA_KEY.touch(mode=0o600)
    CA_KEY.write_bytes(private_pem(made.key))
    AUTHORITY.write_text(made.pem, encoding="ascii")
    return made


def server_context(label: str, names: tuple[str, ...]) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        label: Names its file.
        names: DNS names of the certificate, wildcards included.
    """
    return ensure_authority().server_context(FOLDER / f"{label}.pem", names, LIFE)
