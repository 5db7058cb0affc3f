"""How long does a client that asks for little wait while another one sends the largest requests of each API?"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any, Self
from uuid import UUID

import msgspec
import psutil

from bench.held_broker import HOLD_BYTES, HoldFile
from bench.meter import Meter
from bench.model import Measured, Metric, Params, Scenario, WrongResultError
from bench.scenarios.ack_latency import percentile
from bench.scenarios.idle_connections import OneNode
from bench.systems.replog_brokers import ReplogBrokers
from replog.client import Admin
from replog.cluster import LocalCluster, NodeSpec
from replog.protocol.private import PrivateApi
from replog.protocol.served import SERVED, Served
from replog.records import encode_batch
from replog.wire.messages.fetch import FetchRequest
from replog.wire.messages.headers import RequestHeader
from replog.wire.messages.metadata import MetadataRequest
from replog.wire.messages.offset_commit import OffsetCommitRequest
from replog.wire.messages.produce import ProduceRequest
from replog.wire.primitives import Writer

TOPICS = 20
TOPIC_PARTITIONS = 500
WIDE = 10_000
"""Elements of a list that stands alone, or of the outer one."""
DEEP = 10
DEEPER = 1_000
NAMES = ("new", "known", "same")
REQUESTS = 3
"""Of each shape, one after the other."""
ANSWER_S = 30.0
READY_MS = 300_000
"""How long a broker may take until it has opened all replicas, on a busy machine."""
GROUP = "innocent"
NOT_SENT = frozenset({"add_raft_voter", "remove_raft_voter", "unregister_broker"})
"""What would take the node apart if it were done."""

PRODUCE_P99_MS = Metric("innocent_produce_p99_ms", "ms")
FETCH_P99_MS = Metric("innocent_fetch_p99_ms", "ms")
WAIT_MAX_MS = Metric("innocent_wait_max_ms", "ms")
HOLD_MAX_MS = Metric("loop_hold_max_ms", "ms")
CPU_MAX_MS = Metric("broker_cpu_max_ms", "ms")
ANSWERED_MAX_MS = Metric("answered_max_ms", "ms")
REQUEST_KIB = Metric("request_max_kib", "KiB")
ANSWER_KIB = Metric("answer_max_kib", "KiB")


HOLD_FILE = "longest-hold"


class HeldCluster(LocalCluster):
    """Brokers that run under `bench.held_broker`."""

    def _spawn(self, spec: NodeSpec, *, accept_empty: bool) -> subprocess.Popen[bytes]:
        hold_file = spec.directory / HOLD_FILE
        hold_file.write_bytes(bytes(HOLD_BYTES))
        command = [sys.executable, "-m", "bench.held_broker", str(hold_file), "--config", str(spec.config_file)]
        command += ["--parent-pid", str(os.getpid()), *(["--accept-empty"] if accept_empty else [])]
        with spec.log_file.open("ab") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


class HeldNode(OneNode):
    """One broker of ours that notes how long its loop is held."""

    def __init__(self) -> None:
        self._held = ReplogBrokers(HeldCluster, nodes_count=1)
        super().__init__(self._held)

    def holds(self) -> HoldFile:
        """Returns the longest hold of its loop."""
        (spec,) = self._held.cluster.nodes.values()
        return HoldFile(spec.directory / HOLD_FILE)


class LargeRequestsScenario(Scenario[HeldNode]):
    """Fills every list of a request with ten thousand names, in several shapes; a small client goes on beside it every 2 ms.

    Names are new, known, or one that is known again and again; lists within lists are wide or deep.  Of the shapes the worst counts:
    The small client asks for an append with `acks` `all`, a fetch, the metadata of one topic and a commit of one offset, in turn:
    `innocent_produce_p99_ms` and `innocent_fetch_p99_ms` say how long one in a hundred of its appends and fetches has taken or longer,
    `innocent_wait_max_ms` is the longest that any of its requests has taken, `loop_hold_max_ms` the processor time of the longest step of the broker's loop, which a
    busy machine changes little, `broker_cpu_max_ms` what one request has cost beside those, `answered_max_ms` how long its own sender has waited.  A broker may refuse, and may end the connection.

    Args:
        apis: The names of the APIs; by default all that are served, but those that take a node apart.
        topics: The number of topics that are known, each with 500 partitions.
        systems: By default all there are.
    """

    name = "large-requests"
    question = "How long does a client that asks for little wait beside the largest requests of each API?"

    def __init__(
        self, apis: Sequence[str] | None = None, topics: int = TOPICS, systems: Sequence[HeldNode] | None = None
    ) -> None:
        self._topics = topics
        served = [each.name for each in SERVED if not isinstance(each.load().request, PrivateApi)]
        self._apis = [name for name in served if _module(name) not in NOT_SENT] if apis is None else list(apis)
        self._systems = [HeldNode()] if systems is None else systems

    def systems(self) -> Sequence[HeldNode]:
        return self._systems

    def cases(self) -> Sequence[Params]:
        return [{"api": name} for name in self._apis if _has_list(_served(name).load().request)]

    def warm_up(self, system: HeldNode, params: Params, meter: Meter) -> None:  # noqa: ARG002 -- as of the base
        asyncio.run(_prepare(system.bootstrap_servers, self._topics))

    def measure(self, system: HeldNode, params: Params, meter: Meter) -> Measured:  # noqa: ARG002 -- our own processor time does not count
        api = _served(str(params["api"]))
        (process_id,) = system.process_ids()
        broker = psutil.Process(process_id)
        worst = dict.fromkeys((HOLD_MAX_MS, CPU_MAX_MS, ANSWERED_MAX_MS, REQUEST_KIB, ANSWER_KIB), 0.0)
        shapes = _shapes(api)
        holds = system.holds()
        with _Innocent(system.bootstrap_servers) as innocent:
            idle = innocent.cpu_of(broker, lambda: time.sleep(0.5))
            for data in shapes:
                for _ in range(REQUESTS):
                    holds.longest_s = 0.0
                    try:
                        found = _asked(system.bootstrap_servers, data, broker, innocent, idle)
                    except TimeoutError:
                        text = f"{api.name}: {len(data):,} bytes were not answered within {ANSWER_S:g} s"
                        raise WrongResultError(text) from None
                    found[HOLD_MAX_MS] = holds.longest_s * 1e3
                    worst = {metric: max(value, found[metric]) for metric, value in worst.items()}
        return innocent.waited() | worst


# ---- requests --------------------------------------------------------------------------------------------------------


def _module(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def _topic(number: int) -> str:
    return f"known-{number % TOPICS:03}"


class _Filler:
    """Fills a request.

    Args:
        module: The module of its classes, in which the names of types are looked up.
        names: Which names: one of `NAMES`.
        wide: The elements of outer lists.
        deep: The elements of lists within lists.
    """

    def __init__(self, module: str, names: str, wide: int, deep: int) -> None:
        self._namespace = vars(sys.modules[module])
        self._names = names
        self._counts = (wide, deep)
        self._next = 0
        self._known_hints: dict[
            type[Any], dict[str, Any]
        ] = {}  # to find them takes longer than to fill one of 10,000 elements

    def request(self, kind: type[Any]) -> Any:
        """Returns a request of which every list is full."""
        return self._filled(kind, 0)

    def _filled(self, kind: type[Any], depth: int) -> Any:
        hints = self._hints(kind)
        return kind(**{name: self._value(name, hint, depth) for name, hint in hints.items()})

    def _hints(self, kind: type[Any]) -> dict[str, Any]:
        if kind not in self._known_hints:
            found = typing.get_type_hints(kind, self._namespace)
            self._known_hints[kind] = {each.name: found[each.name] for each in msgspec.structs.fields(kind)}
        return self._known_hints[kind]

    def _value(self, name: str, hint: Any, depth: int) -> Any:
        options = [each for each in typing.get_args(hint) if each is not type(None)]
        origin = typing.get_origin(hint)
        if origin is list:
            count = self._counts[min(depth, 1)] if depth < 2 else 1
            return [self._value(name, options[0], depth + 1) for _ in range(count)]
        if origin is not None and options:
            return self._value(name, options[0], depth)
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self._filled(hint, depth)
        return self._plain(name, hint)

    def _plain(self, name: str, hint: Any) -> Any:
        self._next += 1
        match hint:
            case _ if hint is str:
                return self._name()
            case _ if hint is bool:
                return name == "validate_only"
            case _ if hint is UUID:
                return UUID(int=self._next if self._names != "same" else 1)
            case _ if hint is int:
                return self._number(name)
            case _ if hint is float:
                return 0.0
            case _:
                return b""

    def _name(self) -> str:
        match self._names:
            case "new":
                return f"new-{self._next}"
            case "known":
                return _topic(self._next)
            case _:
                return _topic(0)

    def _number(self, name: str) -> int:
        if name.endswith(("timeout_ms", "timeout", "wait_ms")):
            return 1_000
        if "partition" in name or "index" in name:
            return self._next % TOPIC_PARTITIONS if self._names != "same" else 0
        return {"coordinator_keys": 0, "num_partitions": 1, "replication_factor": 1, "max_bytes": 1 << 20}.get(name, 0)


def _served(name: str) -> Served:
    return next(each for each in SERVED if each.name == name)


def _has_list(request: Any) -> bool:
    hints = typing.get_type_hints(request, vars(sys.modules[request.__module__]))
    kinds = [kind for hint in hints.values() for kind in (hint, *typing.get_args(hint))]
    return any(typing.get_origin(kind) is list for kind in kinds)


def _shapes(api: Served) -> list[bytes]:
    """Returns the requests: of each kind of names one with wide lists, and one with deep ones."""
    request: Any = api.load().request
    made: list[bytes] = []
    for names in NAMES:
        for wide, deep in ((WIDE, 1), (DEEP, DEEPER)):
            message = _Filler(request.__module__, names, wide, deep).request(request)
            data = _framed(message, api.versions[-1])
            if len(data) > 200:
                made.append(data)
    return made


def _framed(message: Any, version: int) -> bytes:
    writer = Writer()
    RequestHeader(message.API_KEY, version, 1, "large").write(writer, 2 if version >= message.FLEXIBLE_FROM else 1)
    message.write(writer, version)
    body = writer.joined()
    return struct.pack(">i", len(body)) + body


# ---- clients ---------------------------------------------------------------------------------------------------------


async def _prepare(address: str, topics: int) -> None:
    async with Admin(address) as admin:
        known = set(await admin.list_topics())
        for number in range(topics):
            if _topic(number) not in known:
                await admin.create_topic(_topic(number), num_partitions=TOPIC_PARTITIONS, replication_factor=1)
        # Replicas are opened in the order in which they are created, those of offsets last; commits are refused until then.
        await admin.alter_group_offsets(GROUP, {(_topic(0), 0): 1}, timeout_ms=READY_MS)


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), ANSWER_S)


def _answer_bytes(connection: socket.socket) -> int:
    """Returns the size of the next answer; 0 where the connection is ended instead."""
    size = b""
    while len(size) < 4:
        part = connection.recv(4 - len(size))
        if not part:
            return 0
        size += part
    left = total = struct.unpack(">i", size)[0]
    buffer = bytearray(min(total, 1 << 20) or 1)
    while left:
        left -= connection.recv_into(buffer, min(left, len(buffer))) or left
    return int(total)


def _asked(address: str, data: bytes, broker: psutil.Process, innocent: _Innocent, idle: float) -> dict[Metric, float]:
    answer_bytes, answered_s = 0, 0.0

    def ask() -> None:
        nonlocal answer_bytes, answered_s
        begun_s = time.perf_counter()
        with _connected(address) as connection, suppress(ConnectionError):
            connection.sendall(data)
            answer_bytes = _answer_bytes(connection)
        answered_s = time.perf_counter() - begun_s
        time.sleep(0.05)

    begun_s = time.perf_counter()
    used_s = innocent.cpu_of(broker, ask)
    return {
        CPU_MAX_MS: max(0.0, used_s - idle / 0.5 * (time.perf_counter() - begun_s)) * 1e3,
        ANSWERED_MAX_MS: answered_s * 1e3,
        REQUEST_KIB: len(data) / 1024,
        ANSWER_KIB: answer_bytes / 1024,
    }


class _Innocent:
    """Appends a small record, fetches, asks for a topic or commits an offset every 2 ms, in turn, and keeps how long each has taken.

    Args:
        address: The address of the broker.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._waits_s: dict[str, list[float]] = {name: [] for name in _small_requests()}
        self._ends = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        if self._trouble:
            raise WrongResultError(f"the small client cannot go on: {self._trouble}")

    def waited(self) -> dict[Metric, float]:
        """Returns how long its requests have taken, once it has ended."""
        return {
            PRODUCE_P99_MS: percentile(sorted(self._waits_s["produce"]), 99) * 1e3,
            FETCH_P99_MS: percentile(sorted(self._waits_s["fetch"]), 99) * 1e3,
            WAIT_MAX_MS: max(max(waits) for waits in self._waits_s.values()) * 1e3,
        }

    def cpu_of(self, broker: psutil.Process, work: Callable[[], None]) -> float:
        """Returns the seconds of processor time that a broker uses while something is done."""
        before = broker.cpu_times()
        work()
        after = broker.cpu_times()
        return float(after.user + after.system - before.user - before.system)

    def _run(self) -> None:
        requests = cycle(_small_requests().items())
        try:
            with _connected(self._address) as connection:
                while not self._ends.wait(0.002):
                    name, data = next(requests)
                    begun_s = time.perf_counter()
                    connection.sendall(data)
                    if not _answer_bytes(connection):
                        self._trouble = "the broker has ended its connection"
                        return
                    self._waits_s[name].append(time.perf_counter() - begun_s)
        except OSError as error:
            self._trouble = f"{type(error).__name__}: {error}"


def _small_requests() -> dict[str, bytes]:
    """Returns what a client asks for that does little: an append to all replicas, a fetch of it, the metadata of one topic, a commit."""
    data = ProduceRequest.PartitionProduceData(0, encode_batch([(0, None, b"v", ())]))
    appended = [ProduceRequest.TopicProduceData(_topic(0), partition_data=[data])]
    offset = OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)
    committed = [OffsetCommitRequest.OffsetCommitRequestTopic(_topic(0), partitions=[offset])]
    fetched = [FetchRequest.FetchTopic(_topic(0), partitions=[FetchRequest.FetchPartition(partition_max_bytes=1_000)])]
    return {
        "produce": _framed(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=appended), 9),
        "fetch": _framed(FetchRequest(max_wait_ms=0, min_bytes=0, topics=fetched), 12),
        "metadata": _framed(MetadataRequest([MetadataRequest.MetadataRequestTopic(name=_topic(0))]), 12),
        "commit": _framed(OffsetCommitRequest(GROUP, topics=committed), 9),
    }


SCENARIO = LargeRequestsScenario()
