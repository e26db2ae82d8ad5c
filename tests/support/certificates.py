"""Certificate authorities of tests, and the certificates of their servers."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        """Its certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, path: Path, names: Iterable[str], life: dt.timedelta = DAY) -> Path:
        """Write a server's certificate and its key into one file.

        Args:
            path: Of the file.
            names: DNS names, wildcards included, and addresses.
            life: From now on; negative: until then. It began a year ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [_alternative(name) for name in names]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        server = ExtendedKeyUsageOID.SERVER_AUTH
        certificate = (
            _builder(_name("server"), self.certificate.subject, key, life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([server]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        path.touch(mode=0o600)
        path.write_bytes(private_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        return path

    def server_context(
        self, path: Path, names: Iterable[str], life: dt.timedelta = DAY
    ) -> ssl.SSLContext:
        """Return the TLS settings of a server whose certificate is written to a file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.issue(path, names, life))
        return context


def new_authority(name: str = "SecureBench test authority", life: dt.timedelta = DAY) -> Authority:
    """Make a certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(name), _name(name), key, life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a key in PEM, unencrypted."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, life: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 365 * DAY)
        .not_valid_after(now + life)
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
