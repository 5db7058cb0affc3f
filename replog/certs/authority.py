"""An authority in a folder, which signs certificates of nodes and of clients.

    DIR/ca.pem     the authority's certificate: what the others are given to believe it
    DIR/ca.key     its private key; whoever has it can be anybody
    DIR/NAME.pem   private key (PKCS #8) and certificate of a node or a client, in one file

One file is what Kafka's brokers and Java clients call a PEM store, and what OpenSSL, librdkafka and Python take as certificate and as
key.  Files with a private key can be read by their owner only.  A file is never written over: a crash leaves a whole one or none.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from replog.errors import ConfigError
from replog.host.extras import install_command
from replog.tcp.node_names import NodeName, hosts_of_node, parse_node_name

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
"""As long as browsers and some TLS libraries take a certificate at most."""

DAYS_MAX: Final = 36_500
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""What the certificate of each node is for, beside the hosts that are named."""

HOSTS_MAX: Final = 100
Kind = Literal["node", "client"]

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?")
_SLACK: Final = dt.timedelta(minutes=5)
"""How much earlier than now a certificate is valid, for machines whose clocks are late."""


def create_authority(folder: Path, days: int = AUTHORITY_DAYS) -> Path:
    """Makes an authority, and returns the path of its certificate.

    Args:
        folder: The folder, which is made where there is none.
        days: How long it is valid, 1 to 36,500 days.

    Raises:
        ConfigError: There is one in the folder, the days are out of range, or the extra is not installed.
        OSError: The folder cannot be written to.
    """
    _require_days(days)
    _require_cryptography()
    from cryptography import x509

    key_path, path = folder / "ca.key", folder / "ca.pem"
    _refuse_existing(key_path, path)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = _new_key()
    name = _named(f"replog authority {os.urandom(4).hex()}")  # two authorities are never taken for one another
    builder = (
        _builder(name, name, key, dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    certificate = _signed(builder, key)
    _write(key_path, _pem_of_key(key), 0o600)
    _write(path, _pem(certificate), 0o644)
    return path


def issue(
    folder: Path,
    name: str,
    kind: Kind,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
    node: NodeName | None = None,
) -> Path:
    """Makes a certificate with its private key, signed by the authority of a folder; returns the path of the file.

    Args:
        folder: The folder of the authority.
        name: The common name, and that of the file: letters, digits, dots, dashes; a broker may take it for the user.
        kind: "node": it serves at `LOCAL_HOSTS` and `hosts`, and connects; "client": it connects only.
        hosts: The names and addresses by which clients reach the node.
        days: How long it is valid; not longer than the authority.
        node: The node that it makes its holder among other nodes; None: it serves clients alone.

    Raises:
        ConfigError: There is no authority, the file is there already, or an argument is out of range.
        OSError: The folder cannot be written to.
    """
    _require_days(days)
    if not _NAME.fullmatch(name) or name == "ca":
        raise ConfigError(
            "name", name, f"name {name!r} must be 1 to 64 letters, digits, dots, dashes or underscores, and not ca"
        )
    if node is not None and parse_node_name(str(node)) != node:
        raise ConfigError(
            "cluster-id", node.cluster_id, f"cluster id {node.cluster_id!r} must be 1 to 64 of A-Z a-z 0-9 _ -"
        )
    path = folder / f"{name}.pem"
    _refuse_existing(path)
    _require_cryptography()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority, authority_key = _load(folder)
    length = min(dt.timedelta(days=days), authority.not_valid_after_utc - _now())
    if length <= dt.timedelta():
        raise ConfigError(
            "DIR", str(folder), f"the authority in {folder} has expired: make a new one in another folder"
        )
    roles = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if kind == "node" else [])]
    key = _new_key()
    builder = (
        _builder(_named(name), authority.subject, key, length)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(roles), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
    )
    if kind == "node":
        builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(hosts, node)), critical=False)
    certificate = _signed(builder, authority_key)
    _write(path, _pem_of_key(key) + _pem(certificate), 0o600)
    return path


# ---- parts -----------------------------------------------------------------------------------------------------------


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401 -- whether it is there
    except ImportError:
        reason = f"certificates are made by the library cryptography: {install_command('security')}"
        raise ConfigError("cryptography", None, reason) from None


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _usage(*, signs_certificates: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _named(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(subject: Any, issuer: Any, key: Any, length: dt.timedelta) -> Any:
    from cryptography import x509

    now, public = _now(), key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SLACK)
        .not_valid_after(now + length)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _signed(builder: Any, key: Any) -> x509.Certificate:
    from cryptography.hazmat.primitives.hashes import SHA256

    certificate: x509.Certificate = builder.sign(key, SHA256())
    return certificate


def _alternatives(hosts: Sequence[str], node: NodeName | None) -> list[Any]:
    from cryptography import x509

    if len(hosts) > HOSTS_MAX:
        raise ConfigError("host", None, f"{len(hosts)} hosts are named; a certificate is for {HOSTS_MAX} at most")
    found: list[Any] = []
    for host in dict.fromkeys((*LOCAL_HOSTS, *hosts)):
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            if not _HOST.fullmatch(host) or len(host) > 253:
                raise ConfigError("host", host, f"host {host!r} is neither the name of a host nor an address") from None
            found.append(x509.DNSName(host))
    if node is not None:
        found += [x509.UniformResourceIdentifier(str(node)), *map(x509.DNSName, hosts_of_node(node))]
    return found


def _load(folder: Path) -> tuple[x509.Certificate, Any]:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = load_pem_private_key((folder / "ca.key").read_bytes(), None)
    except FileNotFoundError as error:
        raise ConfigError(
            "DIR",
            str(folder),
            f"there is no authority in {folder} ({error.filename}): make one by `replog certs init {folder}`",
        ) from None
    except (TypeError, ValueError) as error:
        raise ConfigError("DIR", str(folder), f"the authority in {folder} cannot be read: {error}") from None
    if certificate.public_key() != key.public_key():
        raise ConfigError("DIR", str(folder), f"{folder}/ca.key does not belong to {folder}/ca.pem")
    return certificate, key


def _pem(certificate: x509.Certificate) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _pem_of_key(key: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text


def _require_days(days: int) -> None:
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError("days", days, f"days is {days}; it must be 1 to {DAYS_MAX}")


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise ConfigError("DIR", str(path), f"{path} is there already: use another name, or move it away")


def _write(path: Path, data: bytes, mode: int) -> None:
    """Writes a file beside its place, and gives it the name when it is whole; it is never readable by others in between."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(beside, path)  # which fails where somebody was faster
        except FileExistsError:
            raise ConfigError("DIR", str(path), f"{path} is there already: use another name, or move it away") from None
    finally:
        beside.unlink()
