"""The port of the metrics: an answer whatever the node and other readers do."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest
from metrics_kit import scrape
from prometheus_client import CollectorRegistry, Gauge

from replog.broker.metrics import service
from replog.broker.metrics.service import MetricsServer
from replog.config.server import Endpoint
from replog.errors import BrokerClosedError, ConfigError
from replog.tcp.certificates import Certificates
from replog.tcp.tls_settings import ClientAuth, TlsSettings
from tests.unit.kafka.tls_kit import TlsFiles, connected


class Failing:
    """A collector that cannot."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def collect(self) -> Iterator[object]:
        raise self.error


@contextlib.contextmanager
def serving(
    registry: CollectorRegistry, host: str = "127.0.0.1", certificates: Certificates | None = None
) -> Iterator[str]:
    it = MetricsServer(Endpoint(host, 0), certificates)
    try:
        it.start(registry)
        yield it.address
    finally:
        it.stop()


def gauge() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("answer", "To everything.", registry=registry).set(42)
    return registry


def test_a_scrape_and_another() -> None:
    with serving(gauge()) as address:
        for _ in range(2):
            status, text = scrape(address)
            assert (status, "answer 42.0" in text) == (200, True)
    with pytest.raises(OSError, match="refused"):
        scrape(address)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6_has_brackets() -> None:
    try:
        with serving(gauge(), "::1") as address:
            assert address.startswith("[::1]:")
            assert scrape(address)[0] == 200
    except ConfigError:
        pytest.skip("no IPv6 loopback here")


@pytest.mark.parametrize(
    ("error", "words"),
    [(BrokerClosedError("the node is stopping"), "the node is stopping"), (TimeoutError(), "too busy to tell")],
)
def test_a_node_that_cannot_tell_says_so(error: Exception, words: str) -> None:
    registry = CollectorRegistry()
    registry.register(Failing(error))  # type: ignore[arg-type]
    with serving(registry) as address:
        status, text = scrape(address)
        assert (status, words in text) == (503, True)


@contextlib.contextmanager
def silent(address: str, count: int) -> Iterator[list[socket.socket]]:
    """Connections that say nothing."""
    host, port = address.split(":")
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((host, int(port)), timeout=20)) for _ in range(count)]


def test_a_silent_client_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap: one scrape was answered at a time, and waited for all that had connected before it."""
    monkeypatch.setattr(service._Handler, "timeout", 600)
    with serving(gauge()) as address, silent(address, service.SCRAPES_MAX - 1):
        assert scrape(address)[0] == 200


def test_connections_beyond_the_bound_are_closed_and_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Trap: a line for each let whoever connects fill the disk."""
    with serving(gauge()) as address, silent(address, service.SCRAPES_MAX), silent(address, 20) as beyond:
        assert [each.recv(1) for each in beyond] == [b""] * 20
        assert caplog.text.count("8 connections are open") == 1


def test_who_sends_a_byte_at_a_time_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SCRAPE_S_MAX", -1)
    with serving(gauge()) as address, silent(address, 1) as (slow,):
        slow.sendall(b"G")
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""


def test_a_taken_port_is_told_at_once() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot serve metrics on 127.0.0.1:{port}") as raised:
            MetricsServer(Endpoint("127.0.0.1", port))
    assert raised.value.field == "metrics.listener"


def test_it_may_be_stopped_before_it_is_started() -> None:
    MetricsServer(Endpoint("127.0.0.1", 0)).stop()


async def test_the_loop_runs_on_while_a_scrape_waits() -> None:
    with serving(gauge()) as address:
        assert (await asyncio.to_thread(scrape, address))[0] == 200


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


def scrape_over_tls(address: str, context: ssl.SSLContext) -> str:
    with connected(address, context) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


@pytest.mark.parametrize("client_auth", ClientAuth)
def test_a_port_over_tls(files: TlsFiles, client_auth: ClientAuth, caplog: pytest.LogCaptureFixture) -> None:
    settings = TlsSettings(str(files.broker), str(files.authority.path), client_auth)
    with serving(gauge(), certificates=Certificates(settings, "metrics")) as address:
        assert "answer 42.0" in scrape_over_tls(address, files.context(files.client))
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20):  # says nothing, and holds nobody up for long
            if client_auth is not ClientAuth.REQUIRED:
                assert "answer 42.0" in scrape_over_tls(address, files.context())
                return
            with contextlib.suppress(ssl.SSLError, ConnectionError):  # as the alert comes, or the reset behind it
                assert not scrape_over_tls(address, files.context())
            for _ in range(200):  # before the end of the silent one is told: one line a minute is, whoever it is about
                assert "answer 42.0" in scrape_over_tls(address, files.context(files.client))
                if "peer did not return a certificate" in caplog.text:
                    break
    assert "metrics.listener does not know who came from" in caplog.text
    assert "peer did not return a certificate" in caplog.text


def test_plain_text_is_not_served_over_tls(files: TlsFiles) -> None:
    settings = TlsSettings(str(files.broker))
    with serving(gauge(), certificates=Certificates(settings, "metrics")) as address, pytest.raises(OSError):
        scrape(address)
