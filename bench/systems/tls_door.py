"""Where brokers under test serve clients over TLS, beside the door in plain text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from replog.certs.authority import create_authority, issue

KEY_FILE = "node.pem"


@dataclass(frozen=True, slots=True)
class TlsDoor:
    """A door that clients come in by who believe an authority.

    Attributes:
        servers: The addresses.
        authority: The file of the certificate of whoever signed the brokers' certificate.
    """

    servers: str
    authority: Path


def create_certificates(folder: Path) -> tuple[Path, Path]:
    """Makes an authority, and one certificate for all brokers; returns the files of both (`KEY_FILE` has the key, too)."""
    authority = create_authority(folder)
    return authority, issue(folder, Path(KEY_FILE).stem, "node")
