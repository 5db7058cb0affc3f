"""A node that serves others and one that calls it, over the real transport of nodes, on simulated machines of their own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from replog.controller.requests import CreateTopicsResponse
from replog.errors import InconsistentClusterIdError
from replog.rpc.calls import IncomingCall
from replog.rpc.messages import FetchRequest, FetchResponse, Hello, client_hello
from replog.rpc.node_messages import DescribeNodeRequest, DescribeQuorumRequest, DescribeQuorumResponse
from replog.rpc.transport import PeerConnection, RequestContext
from replog.testing.simulated_network import SimulatedNetwork
from replog.testing.simulated_process import SimulatedProcess
from replog.testing.simulated_transport import SimulatedHost, SimulatedInternet
from replog.testing.virtual_loop import VirtualLoop

HELLO = client_hello("c", "tester")
QUORUM = DescribeQuorumResponse(1, 0, 0, 0, 0, is_dynamic=False, members=())
ADDRESS = "127.0.0.1:9000"


class Handlers:
    """A node that answers what a test tells it to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.calls = 0
        self.contexts: list[RequestContext] = []
        self.read: list[int] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.ended = 0

    def check_hello(self, hello: Hello) -> Hello:
        if hello.cluster_id != "c":
            raise InconsistentClusterIdError(f"this is cluster c, not {hello.cluster_id}")
        return Hello("c", 1, UUID(int=1))

    check_caller = check_hello

    async def handle_node_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        self.calls += 1
        self.contexts.append(context)
        try:
            if isinstance(call.request, DescribeNodeRequest):
                await asyncio.Event().wait()
            if self.error:
                raise self.error
            return QUORUM
        finally:
            self.ended += 1

    async def handle_controller_call(self, call: IncomingCall[Any], context: RequestContext) -> Any:
        self.contexts.append(context)
        assert call.forwarded
        return CreateTopicsResponse(())

    async def handle_fetch_stream(self, hello: Hello, stream: Any, context: RequestContext) -> None:
        self.contexts.append(context)
        try:
            while True:
                await self.reading.wait()
                request = await stream.receive()
                self.read.append(request.correlation_id)
                if self.error:
                    raise self.error
                if request.timeout_ms == 0:
                    return
                await stream.send(FetchResponse(request.correlation_id, (), ()))
        finally:
            self.ended += 1

    handle_quorum_stream = handle_fetch_stream


class World:
    """A server process and a caller on hosts of their own."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.network = SimulatedNetwork(loop, random.Random(5))
        self.internet = SimulatedInternet(self.network)
        self.caller: SimulatedHost = self.internet.host("caller")
        self.host: SimulatedHost = self.internet.host("server")
        self.handlers = Handlers()
        self.process: SimulatedProcess = loop.new_process("server")
        self.connection: PeerConnection = self.caller.peer_network().transport.connect(
            ADDRESS, purpose="test", hello=HELLO
        )

    async def serve(self) -> None:
        self.process.on_kill.append(self.host.tcp.lose_process)

        async def start() -> None:
            host, port = ADDRESS.split(":")
            await self.host.peer_network().bind(host, int(port)).start(self.handlers)  # type: ignore[arg-type]  # one handler for both kinds

        await self.process.create_task(start())

    async def call(self, timeout_ms: int = 5_000) -> Any:
        return await self.connection.call(DescribeQuorumRequest(), timeout_ms=timeout_ms, cluster_id="c")

    async def echo(self, stream: Any, number: int, *, timeout_ms: int = 1) -> int:
        await stream.send(FetchRequest(number, timeout_ms, -1, -1, 0, 0, 0, ()))
        found: int = (await stream.receive()).correlation_id
        return found

    async def settle(self) -> None:
        await asyncio.sleep(20)


def run(test: Callable[[World], Awaitable[None]], *, serve: bool = True) -> World:
    loop = VirtualLoop(random.Random(4))
    world: list[World] = []

    async def main() -> None:
        world.append(World(loop))
        if serve:
            await world[0].serve()
        await test(world[0])

    loop.run(main())
    return world[0]
