"""`replog certs`: what it makes, and how it says what is wrong."""

from __future__ import annotations

import ssl
import stat
import tomllib
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from replog.tcp.node_names import NodeName, certified_node
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


def test_one_command_makes_all_that_nodes_need(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    done = replog_here(
        "certs", "cluster", folder, "--nodes", 2, "--cluster-id=c", "--client", "alice", "--client", "bob"
    )
    assert done.out == (
        f"cluster.id=c\n{folder}/node-ID.pem is for nodes 1 to 2, {folder}/ca.pem for everybody\n"
        f"{folder}/alice.pem, {folder}/bob.pem: clients; {folder}/client.toml is for commands\n"
    )
    for node_id in (1, 2):
        certificate = x509.load_pem_x509_certificates((folder / f"node-{node_id}.pem").read_bytes())[0]
        assert certified_node(certificate.public_bytes(Encoding.DER)) == NodeName("c", node_id)
    assert sorted(tomllib.loads((folder / "client.toml").read_text())) == ["security", "ssl"]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    private = {"ca.key", "node-1.pem", "node-2.pem", "alice.pem", "bob.pem"}
    assert {name for name, mode in modes.items() if mode == 0o600} == private
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_node_among_nodes_has_both_ids(tmp_path: Path) -> None:
    replog_here("certs", "init", tmp_path)
    done = replog_here("certs", "node", tmp_path, "--node-id", 3)
    assert (done.status, done.err) == (2, "error: --node-id and --cluster-id go together: a node is one of a cluster\n")
    done = replog_here("certs", "node", tmp_path, "--node-id", 3, "--cluster-id", "a/b")
    assert "cluster id 'a/b' must be 1 to 64 of A-Z a-z 0-9 _ -" in done.err
    assert replog_here("certs", "node", tmp_path, "--node-id", 3, "--cluster-id", "c").status == 0
