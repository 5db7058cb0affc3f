"""Certificates for tests: an authority, and what it signs, as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = dt.timedelta(days=2)
ORGANIZATION = "Example"
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


class Authority:
    """Signs certificates.

    Args:
        folder: The folder of its files.
        name: Its name, and the beginning of the names of its files.

    Attributes:
        path: The PEM file with its own certificate.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key(), LIFE)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_signing(), critical=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, name: str, *, file: str = "", expired: bool = False) -> Path:
        """Makes a certificate for a name, also valid for this machine; returns the PEM file with its key and itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = _builder(subject, self._name, key.public_key(), -LIFE / 2 if expired else LIFE)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(LOOPBACK)])
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = builder.add_extension(names, critical=False).add_extension(uses, critical=False)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())  # Python 3.13 asks for it
        made = signed.add_extension(signer, critical=False).sign(self._key, hashes.SHA256())
        path = self._folder / (file or f"{name}.pem")
        beside = path.with_suffix(".new")
        beside.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + _pem(made)
        )
        return beside.replace(path)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: dt.timedelta
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(now - LIFE).not_valid_after(now + life)


def _signing() -> x509.KeyUsage:
    """Returns the use of an authority's key: it signs certificates."""
    others = dict.fromkeys(
        (
            "digital_signature",
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    return x509.KeyUsage(key_cert_sign=True, **others)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
