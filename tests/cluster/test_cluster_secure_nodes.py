"""Nodes that prove to one another who they are: a running cluster that begins to, strangers at their doors, clusters by one word."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest
from cli_runs import replog
from cluster_kit import QUICK, Cluster, StartCluster, check_healed
from cluster_load import Load, Tail

from replog.broker.node.environment import peer_network
from replog.certs.authority import create_authority, issue
from replog.certs.cluster_certificates import create_cluster_certificates, issue_node
from replog.client import Admin, Producer
from replog.cluster import LocalCluster
from replog.cluster.embedded import embedded
from replog.cluster.node_spec import ConfigValue, NodeSpec
from replog.config.server_keys import InterBrokerTransport
from replog.controller.requests import RegisterBroker
from replog.errors import BrokerNotAvailableError, ReplogError
from replog.rpc import node_tls
from replog.rpc.messages import Hello
from replog.rpc.node_tls import NodeTls
from replog.rpc.transport import PeerConnection
from replog.tcp.node_names import NodeName
from replog.tcp.tls_settings import TlsSettings
from replog.testing.history import History

pytestmark = pytest.mark.cluster

TOPIC = "flights"
SILENT = 500
ELSEWHERE = "127.0.0.2"
"""Where strangers come from: another address than that of the nodes, as in a network."""


# ---- a running cluster begins to speak TLS ---------------------------------------------------------------------------


def set_keys(spec: NodeSpec, keys: dict[str, ConfigValue]) -> None:
    """Sets keys in the file of a node, in place of those of the same name."""
    lines = spec.config_file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not any(line.startswith(f"{json.dumps(key)} =") for key in keys)]
    spec.config_file.write_text(
        "\n".join([*kept, *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in keys.items()), ""])
    )


def tls_keys(cluster: Cluster, node_id: int) -> dict[str, ConfigValue]:
    folder = cluster.local.directory / "between-nodes"
    return {
        "listener.name.inter.broker.ssl.keystore.location": str(folder / f"node-{node_id}.pem"),
        "listener.name.inter.broker.ssl.truststore.location": str(folder / "ca.pem"),
    }


ROUNDS: tuple[dict[str, ConfigValue], ...] = (
    {"inter.broker.accepted.protocols": ["PLAINTEXT", "SSL"]},
    {"security.inter.broker.protocol": "SSL"},
    {"inter.broker.accepted.protocols": ["SSL"]},
)
"""What each round of restarts sets."""


OVER = pytest.mark.parametrize("over", InterBrokerTransport, ids=lambda kind: kind.value)
"""What nodes meet over."""


@OVER
async def test_a_running_cluster_changes_to_tls_node_by_node(
    start_cluster: StartCluster, over: InterBrokerTransport
) -> None:
    """Goal: nobody pauses and nothing acknowledged is lost; at the end plain text is not heard any more."""
    cluster, history = await start_cluster(3, inter_broker_transport=over.value), History()
    await cluster.admin.create_topic(TOPIC, 3, 3, {"min.insync.replicas": 2})
    create_cluster_certificates(cluster.local.directory / "between-nodes", cluster.local.cluster_id, cluster.node_ids)
    async with Load(cluster, TOPIC, history) as load, Tail(cluster, TOPIC, history):
        for number, keys in enumerate(ROUNDS):
            for node_id in cluster.node_ids:
                own = tls_keys(cluster, node_id) if not number else {}
                set_keys(cluster.local.nodes[node_id], {**own, **keys})
                await cluster.local.stop(node_id)
                await load.more_acknowledged(20)  # while it is away
                cluster.local.start_node(node_id)
                await cluster.local.wait_until_ready()
                for partition in range(3):
                    await cluster.isr_is(cluster.node_ids, TOPIC, partition)
                await load.more_acknowledged(20)
    await check_healed(cluster, TOPIC, history)
    connection = peer_network(over).transport.connect(cluster.local.nodes[1].peer_address, purpose="test")
    with pytest.raises(ReplogError, match="TLS"):
        await connection.open_fetch(Hello(cluster.local.cluster_id, 2, UUID(int=2)))
    await connection.close()


# ---- strangers ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def over() -> InterBrokerTransport:
    """What the nodes of `secured` meet over, where the test does not say."""
    return InterBrokerTransport.GRPC


@pytest.fixture
async def secured(tmp_path: Path, over: InterBrokerTransport) -> AsyncIterator[Cluster]:
    keys = {**QUICK, "metrics.listener": "127.0.0.1:0", "inter.broker.transport": over.value}
    local = await LocalCluster.start(tmp_path / "cluster", config=keys, secure=True)
    admin = Admin(local.bootstrap_servers, security=local.security)
    try:
        await admin.create_topic(TOPIC, 3, 3, {"min.insync.replicas": 2})
        yield Cluster(local, admin)
    finally:
        await admin.close()
        await local.kill_all()


def certificates(cluster: Cluster) -> Path:
    return cluster.local.directory / "certs"


@asynccontextmanager
async def dialing(cluster: Cluster, over: InterBrokerTransport, own: Path) -> AsyncIterator[PeerConnection]:
    """Dials node 1 as whoever the certificate of a file makes of it."""
    settings = TlsSettings(str(own), str(certificates(cluster) / "ca.pem"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_tls, "_require_own", lambda *_, **__: None)
        tls = NodeTls(NodeName(cluster.local.cluster_id, 2), settings, dials=True, accepts_plain=False)
    hello = Hello(cluster.local.cluster_id, 2, UUID(int=2))
    address = cluster.local.nodes[1].peer_address
    connection = peer_network(over, tls).transport.connect(address, purpose="test", hello=hello, node_id=1)
    try:
        yield connection
    finally:
        await connection.close()


async def speak_as(cluster: Cluster, connection: PeerConnection, node_id: int, kind: str) -> None:
    """Begins what only a node may do, as one of them."""
    hello = Hello(cluster.local.cluster_id, node_id, UUID(int=node_id))
    async with asyncio.timeout(30):
        match kind:
            case "hello":
                await connection.open_presence(hello)
            case "fetch":
                await connection.open_fetch(hello)
            case "vote":
                await connection.open_quorum(hello)
            case _:
                asked = RegisterBroker(node_id, cluster.local.cluster_id, hello.incarnation_id, "127.0.0.1", 1, ())
                await connection.controller_call(asked, timeout_ms=10_000)


@OVER
async def test_who_is_not_the_node_is_refused_and_both_sides_are_told(
    secured: Cluster, tmp_path: Path, over: InterBrokerTransport
) -> None:
    """Goal: with each way to speak; the cluster goes on, and the log says why."""
    other = tmp_path / "other"
    create_authority(other)
    told = {
        certificates(secured) / "node-3.pem": "the caller says that it is node 2",
        certificates(secured) / "client.pem": "names none",
        issue_in(certificates(secured), "x", 2): "is that of replog://x/node/2",
        issue_in(
            other, secured.local.cluster_id, 2
        ): "alert|closed the stream|reset|Broken pipe|may not believe the certificate",
    }
    for own, why in told.items():
        for kind in ("hello", "fetch", "vote", "registration"):
            async with dialing(secured, over, own) as connection:
                with pytest.raises(ReplogError, match=why):
                    await speak_as(secured, connection, 2, kind)
    lines = [line for line in secured.log_text(1).splitlines() if "inter.broker does not know who it is" in line]
    assert len(lines) == 1  # a minute and address
    if over is InterBrokerTransport.GRPC:
        assert "CERTIFICATE_VERIFY_FAILED" in secured.log_text(1)  # what only gRPC knows of
    await goes_on(secured)


def issue_in(folder: Path, cluster_id: str, node_id: int) -> Path:
    return issue(folder, f"of-{cluster_id}", "node", node=NodeName(cluster_id, node_id))


async def goes_on(cluster: Cluster) -> None:
    """Checks that records are acknowledged by all replicas."""
    async with Producer(cluster.bootstrap_servers, acks="all", security=cluster.local.security) as producer:
        for partition in range(3):
            await (await producer.send(TOPIC, b"on", partition=partition))
            await cluster.isr_is(cluster.node_ids, TOPIC, partition)


def hello_bytes() -> bytes:
    """The first bytes of a handshake."""
    outgoing, context = ssl.MemoryBIO(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@OVER
async def test_strangers_who_hold_the_door_hold_up_no_node(secured: Cluster, over: InterBrokerTransport) -> None:
    """Goal: half handshakes, bytes that trickle, silence and plain text leave the nodes alone, one that comes back and new certificates, too."""
    host, _, port = secured.local.nodes[1].peer_address.rpartition(":")
    half = hello_bytes()[:100]
    firsts = (b"", half, half[:1], struct.pack(">ihhi", 10, 18, 0, 1) + b"\xff\xff")
    strangers: list[socket.socket] = []
    with ExitStack() as stack:
        for number in range(SILENT):
            made = socket.create_connection((host, int(port)), timeout=20, source_address=(ELSEWHERE, 0))
            strangers.append(stack.enter_context(made))
            made.sendall(firsts[number % len(firsts)])
        renewed = certificates(secured) / "renewed.pem"
        renewed.write_bytes((certificates(secured) / "node-1.pem").read_bytes())
        renewed.replace(certificates(secured) / "node-1.pem")
        await goes_on(secured)
        await secured.local.kill(2)
        secured.local.start_node(2)
        await secured.local.wait_until_ready()
        await goes_on(secured)
        await asyncio.to_thread(read_to_their_ends, strangers)
    told = "a connection from 127.0.0.2 was ended" if over is InterBrokerTransport.TCP else "Handshake failed"
    assert told in secured.log_text(1)


def read_to_their_ends(connections: Sequence[socket.socket]) -> None:
    """Returns when the other side has ended each of them; raises TimeoutError where it does not."""
    for each in connections:
        each.settimeout(60)
        with suppress(ConnectionError):
            while each.recv(1 << 10):
                pass


async def test_a_node_with_a_wrong_certificate_does_not_start(secured: Cluster) -> None:
    folder = certificates(secured)
    await secured.local.stop(3)
    (folder / "node-3.pem").rename(folder / "before.pem")
    (folder / "node-2.pem").rename(folder / "node-3.pem")
    secured.local.start_node(3)
    with pytest.raises(
        BrokerNotAvailableError, match=r"its certificate names replog://.*/node/2, and this is .*/node/3"
    ):
        await secured.local.wait_until_ready()


async def test_a_node_comes_later_with_a_certificate_of_its_own(secured: Cluster) -> None:
    node_id = secured.local.add_node(config=QUICK)
    await secured.local.wait_until_ready()
    assert (certificates(secured) / f"node-{node_id}.pem").exists()
    with pytest.raises(ReplogError, match="is there already"):
        issue_node(certificates(secured), secured.local.cluster_id, node_id)


# ---- by one word -------------------------------------------------------------------------------------------------------


def test_the_command_line_makes_a_secure_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    try:
        made = replog("cluster", "start", "--secure", "--nodes", 1, "--dir", folder, "--port", 0)
        assert made.status == 0, made.err
        assert f"export REPLOG_CLIENT_CONFIG={folder}/certs/client.toml" in made.out
        assert (folder / "certs").stat().st_mode & 0o777 == 0o700
        assert replog("topics", "create", TOPIC, "--dir", folder).status == 0
        servers = next(line for line in made.out.splitlines() if "REPLOG_BOOTSTRAP" in line).partition("=")[2]
        listed = replog(
            "--client-config", folder / "certs/client.toml", "topics", "list", "--bootstrap-servers", servers
        )
        assert TOPIC in listed.out
        assert replog("cluster", "restart", "--dir", folder).status == 0
        assert "running" in replog("cluster", "status", "--dir", folder).out
    finally:
        replog("cluster", "stop", "--dir", folder)


@pytest.mark.parametrize(("brokers", "over"), [(1, "tcp"), (3, "tcp"), (3, "grpc")])
async def test_brokers_in_this_process_are_secure(brokers: int, over: str) -> None:
    async with embedded(brokers=brokers, config={"inter.broker.transport": over}, secure=True) as cluster:
        async with Admin(cluster.bootstrap_servers, security=cluster.security) as admin:
            await admin.create_topic(TOPIC, 1, brokers)
        async with Producer(cluster.bootstrap_servers, acks="all", security=cluster.security) as producer:
            await (await producer.send(TOPIC, b"seen"))
        async with Admin(cluster.bootstrap_servers, timeout_ms=1_000) as stranger:
            with pytest.raises(ReplogError):
                await stranger.describe_cluster()


async def test_a_kept_folder_keeps_its_certificates(tmp_path: Path) -> None:
    for partitions in (1, 2):
        async with (
            embedded(tmp_path / "kept", secure=True) as cluster,
            Admin(cluster.bootstrap_servers, security=cluster.security) as admin,
        ):
            if partitions == 1:
                await admin.create_topic(TOPIC, 1, 1)
            else:
                assert TOPIC in await admin.describe_topics([TOPIC])
