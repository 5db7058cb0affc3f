"""`replog certs`: what it makes, and how it says what is wrong."""

from __future__ import annotations

import ssl
from pathlib import Path

from tests.cluster.cli_runs import replog_here


def test_three_commands_make_all_that_a_cluster_needs(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert replog_here("certs", "init", folder).out == (
        f"{folder}/ca.pem is the authority for 3,650 days; keep {folder}/ca.key to yourself\n"
    )
    made = replog_here("certs", "node", folder, "--host", "a.example", "--host", "10.0.0.1", "--days", 30)
    assert made.out == f"{folder}/node.pem is for localhost, 127.0.0.1, ::1, a.example, 10.0.0.1\n"
    assert (
        replog_here("certs", "client", folder, "--name", "alice").out == f"{folder}/alice.pem is of the client alice\n"
    )
    for name in ("node", "alice"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / f"{name}.pem")


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    replog_here("certs", "init", tmp_path)
    before = (tmp_path / "ca.key").read_bytes()
    done = replog_here("certs", "init", tmp_path)
    assert (done.status, done.err) == (
        2,
        f"error: {tmp_path}/ca.key is there already: use another name, or move it away\n",
    )
    assert (tmp_path / "ca.key").read_bytes() == before


def test_a_certificate_needs_an_authority(tmp_path: Path) -> None:
    done = replog_here("certs", "node", tmp_path)
    assert done.status == 2
    assert f"make one by `replog certs init {tmp_path}`" in done.err
