"""What a listener offers to whoever comes: versions and suites of TLS, and what it does not do at all."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.unit.kafka.tls_kit import TlsFiles, serving_tls

AEAD = {"ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"}
"""The suites of TLS 1.2 that a listener with a key of an elliptic curve has."""

OLD = ("TLSv1", "TLSv1_1")
PATIENCE_S = 20


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def open_client(files: TlsFiles, version: ssl.TLSVersion, suites: str = "ALL:@SECLEVEL=0") -> ssl.SSLContext:
    """A client that speaks one version, and takes whatever it is offered."""
    context = ssl.create_default_context(cafile=str(files.authority.path))
    context.load_cert_chain(str(files.client))
    context.set_ciphers(suites)
    context.minimum_version = context.maximum_version = version
    return context


class Shaken(NamedTuple):
    """What was agreed on in a handshake, or why there was none."""

    suite: str = ""
    version: str | None = None
    compression: str | None = None
    has_ticket: bool = False
    refusal: str = ""


def shaken(address: str, context: ssl.SSLContext) -> Shaken:
    """Connects, and ends the connection behind the handshake."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as made:
                suite, session = made.cipher(), made.session
                assert suite is not None
                has_ticket = session is not None and session.has_ticket
                return Shaken(suite[0], made.version(), made.compression(), has_ticket)
        except ssl.SSLError as error:
            return Shaken(refusal=error.reason or str(error))


def taken(address: str, files: TlsFiles) -> set[str]:
    """The suites of TLS 1.2 that are taken one by one, of all that OpenSSL has."""
    every: Iterable[str] = {each["name"] for each in open_client(files, ssl.TLSVersion.TLSv1_2).get_ciphers()}
    found = set()
    for suite in every:
        if suite.startswith("TLS_"):
            continue  # of TLS 1.3
        context = open_client(files, ssl.TLSVersion.TLSv1_2, f"{suite}:@SECLEVEL=0")
        found.add(shaken(address, context).suite)
    return found - {""}


async def test_of_tls_1_2_only_the_suites_that_are_safe_are_taken(files: TlsFiles) -> None:
    async with serving_tls(files) as it:
        assert it.node.address is not None
        assert await asyncio.to_thread(taken, it.node.address, files) == AEAD


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")
@pytest.mark.parametrize("version", OLD)
async def test_old_versions_are_not_spoken(files: TlsFiles, version: str) -> None:
    async with serving_tls(files) as it:
        assert it.node.address is not None
        context = open_client(files, ssl.TLSVersion[version])
        told = await asyncio.to_thread(shaken, it.node.address, context)
        assert told == Shaken(refusal="TLSV1_ALERT_PROTOCOL_VERSION"), "the node says so, not this client"


@pytest.mark.parametrize(
    ("version", "name"), [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]
)
async def test_nothing_is_compressed_and_no_session_is_taken_up_again(
    files: TlsFiles, version: ssl.TLSVersion, name: str
) -> None:
    async with serving_tls(files) as it:
        assert it.node.address is not None
        made = await asyncio.to_thread(shaken, it.node.address, open_client(files, version))
        assert made == Shaken(made.suite, name)
        assert made.suite


@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192", "secp521r1", "X448"])
async def test_a_stranger_cannot_choose_keys_that_are_dear(files: TlsFiles, group: str) -> None:
    """CVE-2002-20001: a handshake with ffdhe8192 took 150 ms of the loop."""
    context = open_client(files, ssl.TLSVersion.TLSv1_3)
    context.set_ecdh_curve(group)
    async with serving_tls(files) as it:
        assert it.node.address is not None
        told = await asyncio.to_thread(shaken, it.node.address, context)
        assert told == Shaken(refusal="SSLV3_ALERT_HANDSHAKE_FAILURE")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
async def test_a_client_cannot_renegotiate(files: TlsFiles) -> None:
    def asked(address: str) -> str:
        words = ["openssl", "s_client", "-connect", address, "-tls1_2", "-CAfile", str(files.authority.path)]
        words += ["-cert", str(files.client), "-key", str(files.client)]
        done = subprocess.run(
            words, input="R\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=Path(files.folder)
        )
        return done.stdout + done.stderr

    async with serving_tls(files) as it:
        assert it.node.address is not None
        told = await asyncio.to_thread(asked, it.node.address)
        assert "RENEGOTIATING" in told
        assert "no renegotiation" in told
