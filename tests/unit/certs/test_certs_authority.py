"""An authority of one's own: what it signs is taken by OpenSSL, for what it is for; nothing is written over, keys are private."""

from __future__ import annotations

import datetime as dt
import shutil
import ssl
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal
from unittest import mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from replog.certs import authority
from replog.certs.authority import LOCAL_HOSTS, create_authority, issue
from replog.errors import ConfigError
from replog.tcp.der import end_of_validity
from replog.tcp.node_names import NodeName, certified_hosts, host_of_node


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_authority(tmp_path / "certs")
    return tmp_path / "certs"


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificates(path.read_bytes())[0]


def test_private_keys_can_be_read_by_their_owner_only(folder: Path) -> None:
    issue(folder, "one", "node")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"ca.key": 0o600, "ca.pem": 0o644, "one.pem": 0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_node_is_reached_here_and_by_the_names_given(folder: Path) -> None:
    made = loaded(issue(folder, "one", "node", ["kafka.example", "10.0.0.7", "localhost"]))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    assert found == {*LOCAL_HOSTS, "kafka.example", "10.0.0.7"}
    assert made.subject.rfc4514_string() == "CN=one"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssl_takes_each_for_what_it_is_for(folder: Path) -> None:
    node, client = issue(folder, "one", "node"), issue(folder, "alice", "client")

    def verify(path: Path, purpose: str) -> int:
        command = [
            "openssl",
            "verify",
            "-x509_strict",
            "-CAfile",
            str(folder / "ca.pem"),
            "-purpose",
            purpose,
            str(path),
        ]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode

    assert [verify(node, "sslserver"), verify(node, "sslclient"), verify(client, "sslclient")] == [0, 0, 0]
    assert verify(client, "sslserver") != 0


def test_one_file_is_certificate_and_key(folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(issue(folder, "alice", "client"))
    context.load_verify_locations(folder / "ca.pem")
    (known,) = context.get_ca_certs()
    assert known["notAfter"]


@pytest.mark.parametrize("kind", ["node", "client"])
def test_a_file_has_no_authority_that_the_other_side_has_to_know_anyway(
    folder: Path, kind: Literal["node", "client"]
) -> None:
    (certificate,) = x509.load_pem_x509_certificates(issue(folder, "alone", kind).read_bytes())
    assert certificate.subject != certificate.issuer


def test_it_is_valid_as_long_as_asked_and_not_longer_than_the_authority(tmp_path: Path) -> None:
    create_authority(tmp_path / "short", days=10)
    short, long = (
        loaded(issue(tmp_path / "short", "one", "node", days=3)),
        loaded(issue(tmp_path / "short", "two", "node")),
    )
    end = loaded(tmp_path / "short" / "ca.pem").not_valid_after_utc
    now = dt.datetime.now(dt.UTC)
    assert abs(short.not_valid_after_utc - now - dt.timedelta(days=3)) < dt.timedelta(minutes=1)
    assert abs(long.not_valid_after_utc - end) < dt.timedelta(minutes=1)
    assert short.not_valid_before_utc < now


def test_an_authority_that_has_expired_signs_nothing(tmp_path: Path) -> None:
    with mock.patch.object(authority, "_now", return_value=dt.datetime.now(dt.UTC) - dt.timedelta(days=5)):
        create_authority(tmp_path / "old", days=2)
    with pytest.raises(ConfigError, match="has expired: make a new one"):
        issue(tmp_path / "old", "one", "node")


def test_a_failure_in_the_middle_leaves_no_file(folder: Path) -> None:
    before = sorted(folder.iterdir())
    with mock.patch("os.fsync", side_effect=OSError("full")), pytest.raises(OSError, match="full"):
        issue(folder, "one", "node")
    assert sorted(folder.iterdir()) == before


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "authority-there": (create_authority, "ca.key is there already"),
    "no-authority": (
        lambda folder: issue(folder / "none", "one", "node"),
        "there is no authority in .* `replog certs init",
    ),
    "name-of-the-authority": (lambda folder: issue(folder, "ca", "node"), "and not ca"),
    "name-of-another-folder": (lambda folder: issue(folder, "../one", "node"), "must be 1 to 64 letters"),
    "empty-name": (lambda folder: issue(folder, "", "client"), "must be 1 to 64 letters"),
    "host": (lambda folder: issue(folder, "one", "node", ["a b"]), "neither the name of a host nor an address"),
    "hosts": (lambda folder: issue(folder, "one", "node", [f"h{i}" for i in range(101)]), "101 hosts"),
    "days": (lambda folder: issue(folder, "one", "node", days=0), "days is 0; it must be 1 to"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(folder: Path, name: str) -> None:
    make, text = WRONG[name]
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match=text):
        make(folder)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_is_never_written_over(folder: Path) -> None:
    made = issue(folder, "one", "node").read_bytes()
    with pytest.raises(ConfigError, match=r"one\.pem is there already"):
        issue(folder, "one", "client")
    assert (folder / "one.pem").read_bytes() == made


def test_a_key_of_another_authority_is_refused(folder: Path, tmp_path: Path) -> None:
    create_authority(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "ca.key", folder / "ca.key")
    with pytest.raises(ConfigError, match="does not belong to"):
        issue(folder, "one", "node")


@pytest.mark.parametrize("cluster_id", ["c", "Jq0vPVd3RZmDxA3mVYbu2Q", "x" * 64])
def test_a_node_is_found_by_names_of_hosts_that_no_machine_has(tmp_path: Path, cluster_id: str) -> None:
    """Goal: other clusters, and those whose ids differ in case alone, have other ones; each is a name by RFC 1035."""
    create_authority(tmp_path)
    der = loaded(issue(tmp_path, "n", "node", node=NodeName(cluster_id, 7))).public_bytes(Encoding.DER)
    own, any_node = host_of_node(cluster_id, 7), host_of_node(cluster_id, None)
    assert certified_hosts(der) == ["localhost", own, any_node]
    for name in (own, any_node):
        assert len(name) <= 253
        assert all(1 <= len(label) <= 63 for label in name.split("."))
        assert name == name.lower()
    assert len({own, any_node, host_of_node(cluster_id.swapcase(), 7), host_of_node(cluster_id, 77)}) == 4


@pytest.mark.parametrize("year", [2049, 2050])
def test_a_certificate_says_how_long_it_is_valid(tmp_path: Path, year: int) -> None:
    """Goal: also after 2049, from when on the time is written in another way."""
    now = dt.datetime(year, 3, 1, 12, 30, 59, tzinfo=dt.UTC)
    with mock.patch.object(authority, "_now", return_value=now):
        create_authority(tmp_path)
        der = loaded(issue(tmp_path, "n", "client", days=9)).public_bytes(Encoding.DER)
    assert end_of_validity(der) == now + dt.timedelta(days=9)
