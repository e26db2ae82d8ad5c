"""The test's certificate authority, made once, and the certificates of its servers."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from outside.places import AUTHORITY, FOLDER

LIFE = dt.timedelta(days=3650)
CA_KEY = FOLDER / "ca.key"


def ensure_authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority and its key; both are made when one is missing."""
    if AUTHORITY.exists() and CA_KEY.exists():
        key = serialization.load_pem_private_key(CA_KEY.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(AUTHORITY.read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("SecureBench test authority")
    builder = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256())
    _write_key(CA_KEY, key)
    AUTHORITY.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def server_context(label: str, names: tuple[str, ...]) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        label: Names its files.
        names: DNS names of the certificate, wildcards included.
    """
    authority, signer = ensure_authority()
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = (
        _builder(_name(names[0]), authority.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(alternatives, critical=False)
        .add_extension(issuer, critical=False)
    )
    certificate = builder.sign(signer, hashes.SHA256())
    paths = FOLDER / f"{label}.crt", FOLDER / f"{label}.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(paths[1], key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    return context


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
